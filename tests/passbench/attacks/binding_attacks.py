"""Attacks by what names and fields are bound to: something else than the static policy takes them for."""

from tests.passbench.attacks.attack_kinds import READ, WORKS, Attack, Honest, Step, static
from tests.passbench.attacks.attack_samples import add_relu

BINDING_ATTACKS = (
    Attack(
        "handler_frees_a_built_in",
        add_relu,
        (static("rebinding"), WORKS),
        "a name that a handler binds is gone behind it, and is the built-in again",
    ),
    Attack(
        "kernel_that_is_never_bound",
        add_relu,
        (static("rebinding"), WORKS),
        "a kernel in a block that does not run binds no name, which is then the built-in",
    ),
    Attack(
        "instance_made_again",
        add_relu,
        (static("replacement_func"), READ, WORKS),
        "the graph calls no method that makes an instance: its arguments are those of CLASS(…)",
    ),
    Attack(
        "static_maker",
        add_relu,
        (static("decorator"), READ, WORKS),
        "a method that Python calls is one of instances, so that it is known which argument is which",
    ),
    Attack(
        "inherited_field",
        add_relu,
        (static("host_read"), READ, WORKS),
        "which argument is which field depends on the bases: each may be any",
    ),
    Attack(
        "unpacked_into_fields",
        add_relu,
        (static("host_read"), READ, WORKS),
        "a field holds an item of the list that is unpacked, and not the list",
    ),
    Attack(
        "operator_calls_back",
        add_relu,
        (static("forbidden_call"), READ, WORKS),
        "no operator calls what it is given: nobody has followed with what",
    ),
    Attack(
        "class_behind_a_function",
        add_relu,
        (static("rebinding"), READ, WORKS),
        "a name means one thing in a module",
    ),
    Attack(
        "two_classes_of_a_name",
        add_relu,
        (static("rebinding"), WORKS),
        "the policy looks at a class by its name, and ends with a finding",
    ),
    Attack(
        "method_through_a_class",
        add_relu,
        (static("host_read"), READ, WORKS),
        "through its class a method gets its instance first",
    ),
    Attack(
        "base_with_fields",
        add_relu,
        (static("host_read"), READ, WORKS),
        "what a data class is made with is what its fields hold, whoever makes it",
    ),
    Attack(
        "next_in_line",
        add_relu,
        (static("host_read"), READ, WORKS),
        "bases are in Python's order",
    ),
    Attack(
        "generator_that_ends_late",
        add_relu,
        (static("expression"), WORKS),
        "no code of a pass runs but in its calls: none when a generator is collected",
    ),
    Attack(
        "case_that_rebinds",
        add_relu,
        (static("host_read"), READ, WORKS),
        "a lambda is known by its name where nothing else has that name",
    ),
    Attack(
        "returned_by_a_generator",
        add_relu,
        (static("host_read"), READ, WORKS),
        "a generator that waits for another gets what that returns",
    ),
    Attack(
        "other_name_of_a_property",
        add_relu,
        (static("host_read"), READ, WORKS),
        "what is read as an attribute follows from what its decorator stands for",
    ),
    Attack(
        "field_by_another_type",
        add_relu,
        (static("host_read"), READ, WORKS),
        "which argument is which field follows from what the types stand for",
    ),
    Attack(
        "match_hands_on",
        add_relu,
        (static("replacement_func"), Step("inputs_unchanged", ("wrong",), "writes over its input")),
        "a case binds names as an assignment does",
    ),
    Attack(
        "shared_bytes",
        add_relu,
        (static("forbidden_call"), WORKS),
        "Python has one object for all bytes of one letter, and no tensor shares its memory",
        ("cpu",),
    ),
    *(
        Attack(name, add_relu, (static(rule), WORKS), why)
        for name, rule, why in (
            ("partial_of_a_script", "forbidden_name", "an import that never runs says nothing of a name"),
            ("type_that_asks", "annotation", "a type may name anything, and hands it to nothing of the pass"),
            ("name_in_a_decorator", "rebinding", "a := in a decorator of a class binds a name of the module"),
            ("union_of_a_function", "annotation", "a union of one thing is that thing"),
            ("variables_of_types", "annotation", "for a variable any type may be put in"),
            ("hash_of_a_module", "rebinding", "a data class calls a function of its module that nobody names"),
            ("type_of_a_field", "forbidden_call", "a field keeps what is written for its type"),
            ("base_without_a_class", "module_statement", "a class that derives from an instance is a call"),
            ("address_by_an_instance", "address", "an instance hands out what a kernel indexes it by"),
            ("member_that_is_made", "forbidden_call", "Python calls methods of an enumeration that nobody names"),
        )
    ),
)

BINDING_HONEST = (
    Honest("classes_in_a_row", add_relu),
    Honest("configurations_that_derive", add_relu),
    Honest("handler_and_scratch", add_relu),
)
