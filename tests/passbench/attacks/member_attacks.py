"""Attacks by what others do with members and functions of a pass: it reads the name of a member off an object of a
library, or Python, torch and the standard library call what nobody has followed."""

from tests.passbench.attacks.attack_kinds import READ, WORKS, Attack, contract, static
from tests.passbench.attacks.attack_samples import add_relu

MEMBER_ATTACKS = (
    Attack(
        "array_of_a_size",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "a number of numpy leads to ctypes and all modules; its members are no names of fields",
    ),
    Attack(
        "memory_of_an_array",
        add_relu,
        (static("forbidden_call"), WORKS),
        "an array of numpy's shares its memory with a tensor, and hands out what was written there",
        ("cpu",),
    ),
    Attack(
        "interpreter_of_a_kernel",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "an interpreted kernel has what compiles text",
        ("cpu",),
    ),
    Attack(
        "module_of_python",
        add_relu,
        (static("module_name"), contract("compile_error", "has the name of a module")),
        "__main__ is what Python runs, whatever file of the pass has its name",
    ),
    Attack(
        "method_of_a_tensor",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "torch.Tensor as a value has the methods of tensors",
    ),
    Attack(
        "class_by_default",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "a class that a data class holds is a value; its methods may be called on anything, such as a generator",
    ),
    Attack(
        "text_of_an_instance",
        add_relu,
        (static("forbidden_name"), WORKS),
        "where a class has a __str__ alone, repr shows an address",
    ),
    Attack(
        "text_of_a_late_field",
        add_relu,
        (static("host_read"), READ, WORKS),
        "the text of a data class has what its fields are set to later",
    ),
    Attack(
        "equality_by_name",
        add_relu,
        (static("private_name"), READ, WORKS),
        "what Python calls is a method, whose form is checked",
    ),
    Attack("asked_by_torch", add_relu, (static("host_read"), READ, WORKS), "torch compares the dim() of what it gets"),
    Attack(
        "default_of_a_lambda",
        add_relu,
        (static("host_read"), READ, WORKS),
        "what a dict makes of a missing key is what the function returns",
    ),
    Attack(
        "ordered_by_a_variable",
        add_relu,
        (static("host_read"), READ, WORKS),
        "what max() compares is what the function returns that a variable holds",
    ),
    Attack(
        "function_by_a_tensor",
        add_relu,
        (static("host_read"), READ, WORKS),
        "which function of a list is called follows from a tensor's value",
    ),
    Attack(
        "type_in_a_cast",
        add_relu,
        (static("annotation"), WORKS),
        "a cast is left out of what is checked where brackets in its type make a type alone",
    ),
    Attack(
        "types_by_a_table",
        add_relu,
        (static("annotation"), WORKS),
        "a type variable stands in brackets of a built-in type, which no name of the pass hides",
    ),
    Attack(
        "kept_by_contains",
        add_relu,
        (static("forbidden_name"), WORKS),
        "a type is compared with what is written out, and handed to no method",
    ),
    Attack(
        "enumeration_of_methods",
        add_relu,
        (static("forbidden_call"), WORKS),
        "an enumeration without members is a base and no more",
    ),
    Attack(
        "text_by_a_table_of_types",
        add_relu,
        (static("forbidden_name"), READ, WORKS),
        "a defaultdict is given a type for what is missing, and none to hold",
    ),
    Attack(
        "kernel_keeps_values",
        add_relu,
        (static("kernel"), WORKS),
        "a kernel binds names, and puts nothing into what the host has",
        ("cpu",),
    ),
    Attack(
        "fields_that_run",
        add_relu,
        (static("forbidden_call"), WORKS),
        "a named tuple is known as a class where all its fields are texts",
    ),
    Attack(
        "table_in_a_type",
        add_relu,
        (static("annotation"), WORKS),
        "in a type, brackets and dots stand behind a name, of which it is known whether it is a class",
    ),
    Attack(
        "table_of_a_class",
        add_relu,
        (static("annotation"), WORKS),
        "what a name in the type of a field stands for is looked up in the class first",
    ),
    Attack(
        "decorated_instead",
        add_relu,
        (static("decorator"), WORKS),
        "decorators of libraries take options by name, and nothing that they could decorate",
    ),
    Attack(
        "base_by_a_variable",
        add_relu,
        (static("module_statement"), WORKS),
        "a base with the name of a built-in class is that class where the module does not bind the name",
    ),
)
