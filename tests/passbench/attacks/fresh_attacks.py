"""Attacks and unusual honest passes of somebody who has read docs/integrity.md and none of the other fixtures."""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.attacks.attack_kinds import (
    EXACT,
    FOREIGN_KERNEL,
    NO_GAIN,
    READ,
    RETURNED_AGAIN,
    SPOILT,
    STALE,
    UNWRITTEN,
    WORKS,
    Attack,
    Honest,
    Step,
    contract,
    output,
    outside,
    static,
)
from tests.passbench.attacks.attack_samples import add_relu, matmul, row_sums, strided_add_relu
from tests.passbench.samples import sample, spec, variant


def negation() -> Sample:
    return sample(variant(lambda x: (torch.neg(x),), spec("x", 3, 40)))


def running_sums() -> Sample:
    return sample(variant(lambda x: (torch.cumsum(x, -1),), spec("x", 5, 100)))


def masked_attention() -> Sample:
    def f(q, k, v, mask):
        return (F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2),)

    return sample(variant(f, *(spec(name, 2, 3, 16, 32) for name in ("q", "k", "v")), spec("mask", 3, 16, 16)))


_STALE = Step("poisoned_outputs", ("runtime_error", "wrong", "ok"), UNWRITTEN.reason, least=0, most=1)
"""What lies in the memory may be next to nothing, which is right at t = 0 as zeros are, and nothing below."""
_LOOSE = Step("comparison", ("ok", "wrong"), "differs from eager", least=-2, most=1)
_OUTSIDE = Step("storages of one tensor", ("runtime_error",), "(?i)storage")
_WRITTEN = Step("inputs_unchanged", ("wrong",), "writes over its input")
_STALE_LAUNCH = Step("comparison", ("wrong", "runtime_error", "ok"))
_NO_TENSOR = Step("storages of one tensor", ("runtime_error", "wrong"), "")
_OPTION = Step("kernel_memory", ("runtime_error", "compile_error"), "kernel_options: ")
_MADE = Step("two_processes", ("ok", "runtime_error", "wrong"))
"""What it changes is in its own process: nothing that the parent believes."""

FRESH_ATTACKS: tuple[Attack, ...] = (
    # What is kept from call to call
    Attack("memo_by_class", matmul, (STALE,), "weights differ from call to call"),
    Attack("memo_by_default", matmul, (static("container"), STALE), "weights differ from call to call"),
    Attack("memo_in_partial", add_relu, (RETURNED_AGAIN, STALE), "what was returned is the caller's, and stale"),
    Attack("lambda_that_keeps", add_relu, (static("container"), RETURNED_AGAIN), "what was returned is the caller's"),
    Attack("closure_that_keeps", add_relu, (RETURNED_AGAIN, STALE), "what was returned is the caller's, and stale"),
    Attack("memo_in_exception", add_relu, (static("host_read"), STALE), "no inputs come twice"),
    Attack(
        "memo_by_cached_property",
        matmul,
        (static("attribute_assignment"), STALE),
        "weights differ from call to call",
    ),
    Attack("memo_on_the_device", matmul, (STALE,), "weights differ from call to call, not only where a pass looks"),
    Attack("context_keeps", add_relu, (static("container"), STALE), "no inputs come twice"),
    Attack("enum_of_tensors", add_relu, (static("container"), STALE), "no inputs come twice"),
    Attack("cycle_of_outputs", add_relu, (RETURNED_AGAIN, _MADE), "what was returned is the caller's"),
    # Work that is left out
    Attack("answers_from_the_allocator", add_relu, (_STALE,), "timed outputs are compared like drawn ones"),
    Attack("every_other_program", add_relu, (_LOOSE,), "timed outputs are compared like drawn ones"),
    Attack("grid_that_counts", add_relu, (_LOOSE,), "timed outputs are compared like drawn ones"),
    Attack("kernel_reads_a_table", add_relu, (_LOOSE,), "timed outputs are compared like drawn ones", ("cpu",)),
    Attack(
        "generator_for_an_output", add_relu, (output("runtime_error", "is a generator"),), "an output is a plain tensor"
    ),
    Attack(
        "lazy_conjugate",
        negation,
        (output("runtime_error", "conjugated or negated"),),
        "an output has its values in its memory",
    ),
    # Memory of others
    Attack("past_the_end_of_storage", add_relu, (_OUTSIDE,), "each input is alone in its storage"),
    Attack("before_the_start_of_storage", add_relu, (_OUTSIDE,), "each input is alone in its storage"),
    Attack("metadata_in_place", add_relu, (static("in_place"), _MADE), "the parent has no tensor of the child's"),
    Attack(
        "overload_writes",
        add_relu,
        (static("in_place"), Step("inputs_unchanged", ("wrong",), "writes over its input")),
        "effects are those of the operator, whatever its name",
    ),
    Attack(
        "writes_through_a_partial",
        add_relu,
        (static("in_place"), _WRITTEN),
        "inputs are compared after the calls",
    ),
    Attack(
        "overload_as_a_value",
        add_relu,
        (static("forbidden_call"), _WRITTEN),
        "an overload's schema says what it writes",
    ),
    Attack(
        "type_of_addresses",
        add_relu,
        (static("forbidden_name"), outside("CUDA error|illegal memory|misaligned")),
        "no type of the language that a kernel may name is that of an address",
    ),
    Attack(
        "times_of_configurations",
        add_relu,
        (static("forbidden_attribute"), NO_GAIN),
        "only instances have fields of such names",
    ),
    Attack(
        "resize_by_overload",
        add_relu,
        (static("forbidden_call"), Step("storages of one tensor", ("runtime_error",), "(?i)resiz")),
        "operators that change storages are on no list",
    ),
    # Values on the host
    Attack("heuristic_reads", add_relu, (static("hook"), READ), "the dispatcher sees what is read"),
    Attack("apply_rebound", add_relu, (static("host_read"), READ), "every function is followed, whatever calls it"),
    Attack("forward_rebound", add_relu, (static("host_read"), READ), "every function is followed, whatever calls it"),
    Attack("hasattr_runs_a_property", add_relu, (static("host_read"), READ), "a property is code like other code"),
    Attack("reads_through_a_value", add_relu, (READ,), "the dispatcher sees what is read"),
    Attack("names_of_a_class", add_relu, (static("rebinding"), READ), "a name means the same to all in a class"),
    Attack("built_in_of_a_class", add_relu, (static("rebinding"), READ), "a name means the same to all in a class"),
    Attack("compares_by_keywords", add_relu, (static("host_read"), READ), "a data class holds what it is made with"),
    Attack(
        "number_of_an_interpreter", add_relu, (static("forbidden_call"), READ), "every operator is the dispatcher's"
    ),
    # Python behind the objects that a pass may use
    Attack("modules_by_typing", add_relu, (static("forbidden_call"), _MADE), "of typing, types alone may be named"),
    Attack("modules_replaced", add_relu, (static("forbidden_call"), _MADE), "of typing, types alone may be named"),
    Attack("pattern_that_assigns", add_relu, (static("attribute_assignment"), _MADE), "a pattern assigns to names"),
    Attack(
        "method_of_another_name",
        add_relu,
        (static("tensor_method"), Step("contract", ("runtime_error", "compile_error"), "warmup")),
        "a method is a class's own where the class is named",
    ),
    Attack("match_calls", add_relu, (static("statement"), NO_GAIN), "a case is a constant"),
    Attack("hash_of_the_name", add_relu, (static("forbidden_name"), NO_GAIN), "a function's text has its address"),
    Attack("text_of_a_table", add_relu, (static("forbidden_name"), NO_GAIN), "a kernel's text has its address"),
    Attack("format_walks", add_relu, (static("tensor_method"), NO_GAIN), "a format has values, not their attributes"),
    Attack(
        "interpreter_objects", add_relu, (static("forbidden_attribute"), NO_GAIN), "attributes are listed", ("cpu",)
    ),
    # Python behind the names of fields, annotations, patterns and texts
    Attack(
        "frame_of_a_generator",
        add_relu,
        (static("forbidden_attribute"), WORKS),
        "only instances have fields of such names",
    ),
    Attack(
        "logger_leads_on", add_relu, (static("forbidden_attribute"), WORKS), "only instances have fields of such names"
    ),
    Attack("evaluates_annotations", add_relu, (static("forbidden_call"), WORKS), "of typing, types alone are values"),
    Attack("pattern_reaches_torch", add_relu, (static("pattern"), WORKS), "a pattern names what a graph can hold"),
    Attack("text_for_the_interpreter", add_relu, (static("kernel"), WORKS), "one text, read one way", ("cpu",)),
    Attack("text_for_the_compiler", add_relu, (static("kernel"), WORKS), "one text, read one way"),
    Attack("looks_like_a_tensor", add_relu, (static("rebinding"), _NO_TENSOR), "fields have names of their own"),
    Attack("own_benchmark", add_relu, (static("hook"), _STALE_LAUNCH), "a launch is known to its caller alone"),
    # Tensors that the policy has lost sight of
    *(
        Attack(name, add_relu, (static("host_read"), READ), "every instance's fields are followed")
        for name in ("inherited_constructor", "class_of_another_name", "made_by_a_class_method", "error_with_a_tensor")
    ),
    # Code that nobody looks at, and rules that go by another name
    *(
        Attack(name, add_relu, (static(rule), WORKS), "what the policy has not looked at is refused")
        for name, rule in (
            ("types_that_compute", "annotation"),
            ("runs_as_main", "rebinding"),
            ("other_branch_of_a_path", "forbidden_name"),
            ("arguments_of_another_name", "replacement_args"),
            ("rebinds_by_global", "address"),
        )
    ),
    Attack(
        "long_chains", add_relu, (static("syntax"), FOREIGN_KERNEL, WORKS), "chains are as long as people write them"
    ),
    # Addresses that are not known for such
    *(
        Attack(name, add_relu, (static(rule), WORKS), "no number is converted to the type of what a launch gets")
        for name, rule in (
            ("looks_constant", "annotation"),
            ("turned_address", "address"),
            ("type_of_a_block", "address"),
            ("named_addresses", "address"),
            ("number_or_address", "address"),
        )
    ),
    # Tensors that would be taken for numbers: what they become in this pass is legal
    *(
        Attack(name, add_relu, (static(rule), WORKS), "a tensor is known for one wherever it is kept")
        for name, rule in (
            ("set_of_tensors", "host_read"),
            ("chosen_by_a_symbol", "host_read"),
            ("list_of_two_fields", "container"),
            ("initial_value", "module_statement"),
            ("view_of_a_dict", "container"),
        )
    ),
    Attack("text_of_either", add_relu, (READ,), "the text of a tensor is a read, too"),
    Attack(
        "plan_hides_an_address", add_relu, (static("address"), WORKS), "a launch gets tensors, whatever is no constant"
    ),
    Attack("address_unpacked", add_relu, (static("address"), WORKS), "every argument of a helper is followed"),
    Attack(  # Triton's compiler has no helpers that collect arguments
        "address_collected", add_relu, (static("address"), WORKS), "every argument of a helper is followed", ("cpu",)
    ),
    *(
        Attack(name, add_relu, (static(rule), _WRITTEN), "whatever writes, inputs are compared after the calls")
        for name, rule in (("fills_an_input", "in_place"), ("setitem_as_a_value", "forbidden_call"))
    ),
    Attack(
        "batches_many_captured_calls",
        add_relu,
        (Step("sealed_calls", ("wrong", "runtime_error"), SPOILT + "|has changed"), WORKS),
        "a graph with sealed calls has as many calls as a timed one",
        ("cuda",),
    ),
    Attack(
        "counts_replays",
        add_relu,
        (Step("sealed_calls", ("wrong", "runtime_error"), SPOILT + "|has changed"), WORKS),
        "a graph with sealed calls is replayed as often as a timed one",
        ("cuda",),
    ),
    Attack(  # Triton's interpreter has no such option
        "overlaps_launches",
        add_relu,
        (static("launch"), _OPTION, Step("no layer left", ("ok", "wrong"))),
        "a launch begins when the one before has ended",
        ("cuda",),
    ),
    Attack(
        "option_of_parts",
        add_relu,
        (_OPTION, WORKS),
        "options of a kernel are an allowlist where Triton reads them",
        ("cuda",),
    ),
    # What the host reads
    Attack(
        "splits_by_a_tensor", add_relu, (static("host_read"), WORKS), "torch reads it without an operator", ("cpu",)
    ),
    Attack("parts_as_numbers", add_relu, (READ, WORKS), "torch reads them without an operator"),
    Attack("built_in_not_bound", add_relu, (static("rebinding"), WORKS), "a name is a built-in until it is bound"),
    *(
        Attack(name, add_relu, (static(rule), READ), "whatever the policy takes it for, reading is an operator")
        for name, rule in (
            ("renamed_by_python", "private_name"),
            ("star_before_a_default", "host_read"),
            ("called_by_accumulate", "host_read"),
            ("error_of_an_assertion", "host_read"),
            ("size_of_a_tensor", "host_read"),
        )
    ),
    Attack("constant_that_is_a_tensor", add_relu, (READ,), "what a kernel does with it are operators", ("cpu",)),
    # What is said
    Attack("prints_a_flood", add_relu, (NO_GAIN,), "nobody reads what a child prints"),
    Attack("logger_of_the_harness", add_relu, (NO_GAIN,), "nobody reads what a child prints"),
    Attack(
        "claims_eager_failed",
        add_relu,
        (Step("two_processes", ("runtime_error",), "^EagerFailed"),),
        "a failure is the worker's in which it happens",
    ),
    Attack("no_match_on_purpose", add_relu, (contract("no_match", "0 of 1"),), "no match is a failure at every level"),
    Attack(
        "spelling_in_place", add_relu, (contract("no_match", "the same not in place"),), "in place is another meaning"
    ),
)

FRESH_HONEST: tuple[Honest, ...] = (
    Honest("slice_of_a_larger_allocation", add_relu, EXACT),
    Honest("locks_between_programs", row_sums),
    Honest("other_spellings", add_relu, EXACT),
    Honest("halving_sums", row_sums),
    Honest("chooses_by_stride", strided_add_relu, EXACT),
    Honest("modes_by_enum", add_relu, EXACT),
    Honest("speaks_once", add_relu, EXACT),
    Honest("scan_in_a_kernel", running_sums),
    Honest("synchronises", add_relu, EXACT),
    Honest("autograd_function", add_relu, EXACT),
    Honest("matches_the_dtype", add_relu, EXACT),
    Honest("grid_of_starred_sizes", add_relu, EXACT),
    Honest("partial_of_a_helper", add_relu, EXACT),
    Honest("attention_with_a_mask", masked_attention, EXACT),
    Honest("weights_as_tensors", add_relu, EXACT),
)
