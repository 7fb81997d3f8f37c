"""Attacks on PassBench, and honest passes that look like some, with the verdict that each must get."""

from collections.abc import Callable, Iterator

from storage.records import Sample
from tests.passbench.attacks import attack_samples as on
from tests.passbench.attacks.attack_kinds import (
    ENDED,
    EXACT,
    FOREIGN_KERNEL,
    NO_GAIN,
    NOT_DELIVERED,
    READ_OR_RETURNED,
    REMEMBERED,
    RETURNED_AGAIN,
    REWRITTEN,
    SPOILT,
    STALE,
    UNWRITTEN,
    WORKS,
    WRONG,
    Attack,
    Honest,
    Step,
    contract,
    late,
    output,
    static,
)
from tests.passbench.attacks.binding_attacks import BINDING_ATTACKS, BINDING_HONEST
from tests.passbench.attacks.call_attacks import CALL_ATTACKS, CALL_HONEST
from tests.passbench.attacks.fresh_attacks import FRESH_ATTACKS, FRESH_HONEST
from tests.passbench.attacks.library_attacks import LIBRARY_ATTACKS, LIBRARY_HONEST
from tests.passbench.attacks.member_attacks import MEMBER_ATTACKS


def _library(why: str, *names: str, what: Callable[[], Sample] = on.add_relu) -> Iterator[Attack]:
    """Attempts at what has become legal: operators of the library, by some road or other. They gain nothing."""
    for name in names:
        yield Attack(name, what, (NO_GAIN,), why)


def _hooks(*names: str, rule: str = "hook", what: Callable[[], Sample] = on.sixteen) -> Iterator[Attack]:
    for name in names:
        yield Attack(name, what, (static(rule), WORKS), "hooks of Triton choose sizes; what they compute is legal work")


ATTACKS: tuple[Attack, ...] = (
    *CALL_ATTACKS,
    *BINDING_ATTACKS,
    *FRESH_ATTACKS,
    *LIBRARY_ATTACKS,
    *MEMBER_ATTACKS,
    # Torch by every road: the source is refused; the dispatcher sees what ran.
    *_library("a library call is legal", "matmul_operator", what=on.matmul),
    *_library("methods compute", "tensor_methods"),
    *(
        Attack(name, on.add_relu, (static("module_as_value"), WORKS), "torch may not get another name")
        for name in ("rebind_assignment", "rebind_tuple", "rebind_dict", "rebind_default", "rebind_walrus")
    ),
    Attack("getattr_call", on.add_relu, (static("forbidden_name"), WORKS), "built-ins are an allowlist"),
    Attack("dunder_import", on.add_relu, (static("forbidden_name"), WORKS), "built-ins are an allowlist"),
    Attack("importlib_import", on.add_relu, (static("import"), WORKS), "imports are an allowlist"),
    Attack("exec_code", on.add_relu, (static("forbidden_name"), WORKS), "built-ins are an allowlist"),
    Attack("string_building", on.add_relu, (static("private_name"), WORKS), "no methods of strings, no dunder"),
    Attack("returns_torch_function", on.relu, (static("replacement_func"), WORKS), "a replacement is the pass's own"),
    Attack(
        "returns_torch_builtin",
        on.relu,
        (static("replacement_func"), contract("compile_error", "must return a function")),
        "a replacement is the pass's own, and a Python function",
    ),
    Attack(
        "computing_arguments",
        on.add_relu,
        (static("replacement_args"), Step("contract", ("runtime_error", "compile_error"), "Picked")),
        "arguments are picked from stand-ins, on which nothing can be computed",
    ),
    *_library("every module is read, listed or not", "hidden_helper"),
    *_library(
        "a kernel beside it costs time and hides nothing: the row names the operator", "decoy_kernel", what=on.matmul
    ),
    # The harness
    Attack(
        "imports_harness",
        on.add_relu,
        (static("import"), Step("poisoned_outputs", ("runtime_error",), "never written")),
        "the parent compares what is in memory; that nothing was copied there shows",
    ),
    Attack(
        "delays_work",
        on.add_relu,
        (static("import"), NOT_DELIVERED, late(), WORKS),
        "the parent looks at the inputs, and spoils them, before it collects",
    ),
    Attack("detects_type", on.add_relu, (NO_GAIN,), "the tensors are plain ones everywhere"),
    Attack("detects_name", on.add_relu, (static("private_name"), WORKS), "the tensors are plain ones everywhere"),
    Attack(
        "detects_stack",
        on.add_relu,
        (static("forbidden_call"), Step("timed_outputs_checked", ("wrong",)), WORKS),
        "outputs of timed calls are compared too",
    ),
    Attack(
        "counts_calls",
        on.add_relu,
        (Step("timed_outputs_checked", ("wrong",)), Step("no layer left", ("ok", "wrong"), "differs from eager")),
        "outputs of timed calls are compared too; on a GPU there are enough draws before",
    ),
    Attack(
        "patches_graph_module", on.add_relu, (static("attribute_assignment"), WRONG), "eager runs in another process"
    ),
    Attack("patches_event", on.add_relu, (static("attribute_assignment"), NO_GAIN), "the parent's clock decides"),
    Attack("patches_time", on.add_relu, (static("attribute_assignment"), NO_GAIN), "the parent's clock decides"),
    Attack("patches_allclose", on.add_relu, (static("attribute_assignment"), WRONG), "the parent compares"),
    Attack(
        "forges_reply",
        on.add_relu,
        (static("forbidden_call"), Step("two_processes", ("runtime_error", "timeout"))),
        "an answer carries the question's number; a child that says anything else is killed",
    ),
    Attack(
        "answers_early",
        on.add_relu,
        (static("import"), NOT_DELIVERED, late(), WORKS),
        "the inputs are gone once the child has answered",
    ),
    Attack(
        "exits_early",
        on.add_relu,
        (static("forbidden_call"), ENDED),
        "a process that ends has failed, with whatever status",
    ),
    Attack(
        "raises_exit",
        on.add_relu,
        (static("forbidden_name"), Step("two_processes", ("runtime_error",), "SystemExit")),
        "every exception is a failure of the pass",
    ),
    Attack(
        "starts_thread",
        on.add_relu,
        (static("forbidden_call"), UNWRITTEN),
        "outputs are taken when the call returns, from memory that held NaN",
    ),
    # Inputs and outputs
    Attack(
        "overwrites_input",
        on.add_relu,
        (static("in_place"), Step("inputs_unchanged", ("wrong",), "writes over its input y"), NO_GAIN),
        "inputs are compared afterwards; eager has its own copy anyway",
    ),
    Attack(
        "remembers_id",
        on.add_relu,
        (static("forbidden_name"), REMEMBERED),
        "tensors are new for each call: an id is unknown, or a dead tensor's and the output stale",
    ),
    Attack(
        "remembers_pointer",
        on.add_relu,
        (static("tensor_method"), REMEMBERED),
        "addresses move, and contents change where they do not",
    ),
    Attack(
        "remembers_version",
        on.add_relu,
        (static("private_name"), RETURNED_AGAIN, STALE),
        "versions repeat, contents do not",
    ),
    Attack(
        "remembers_content",
        on.add_relu,
        (static("host_read"), READ_OR_RETURNED, REMEMBERED),
        "reading a value is an operator; no content comes twice",
    ),
    Attack("remembers_shape", on.add_relu, (RETURNED_AGAIN, STALE), "contents change, and an output is the caller's"),
    Attack("baked_constants", on.small_add_relu, (STALE,), "no pass knows the seed"),
    Attack("packed_weights", on.matmul, (STALE,), "weights are drawn afresh for every call too"),
    Attack(
        "reads_ahead",
        on.add_relu,
        (
            Step("kernel_memory", ("wrong", "runtime_error", "rejected"), SPOILT + "|evidence_uneven|memory_outside"),
            Step("moving_addresses", ("wrong", "runtime_error", "rejected"), SPOILT + "|evidence_uneven"),
        ),
        "where the inputs of a batch's other calls lie must not follow from where this one's do",
    ),
    Attack(
        "low_precision_dot",
        on.unit_matmul,
        (Step("comparison", ("ok",), least=-3, most=1),),
        "correct at loose levels alone, which is what t_min says",
    ),
    Attack(
        "broadcast_output",
        on.add_relu,
        (output("runtime_error", r"\[1, 40\], where eager has"), WRONG),
        "shapes are eager's; the rows that are missing differ",
    ),
    Attack(
        "returns_input",
        on.times_one,
        (output("runtime_error", "shares memory with input 0"), REWRITTEN, late(), WORKS),
        "outputs share no memory unless eager's do; inputs are spoiled before outputs are collected",
    ),
    Attack(
        "unwritten_output",
        on.add_relu,
        (UNWRITTEN,),
        "fresh memory holds NaN, and eager's outputs are in another process",
    ),
    Attack(
        "all_zeros",
        on.unit_add_relu,
        (Step("comparison", ("ok",), least=0, most=1),),
        "right at no level below 0; levels 0 and 1 are the design's, and so loose",
    ),
    Attack(
        "reused_output",
        on.add_relu,
        (
            RETURNED_AGAIN,
            REWRITTEN,
            Step("timed_outputs_checked", ("wrong",)),
            WORKS,
        ),
        "what was returned is the caller's: nobody returns it again, or writes to it",
    ),
    Attack(
        "side_stream",
        on.add_relu,
        (static("forbidden_call"), NO_GAIN),
        "the whole device is synchronised within the parent's clock",
        ("cuda",),
    ),
    Attack(
        "lazy_tensor",
        on.add_relu,
        (static("module_statement"), output("runtime_error", "not a torch.Tensor"), UNWRITTEN),
        "outputs are exactly torch.Tensor; copying one out does not ask its class",
    ),
    # Native code
    Attack("ctypes_cublas", on.matmul, (static("import"), FOREIGN_KERNEL), "the profiler sees every kernel", ("cuda",)),
    Attack(
        "ctypes_pointers",
        on.add_relu,
        (static("import"), NO_GAIN),
        "slow, and right; where kernels run nobody reads device memory this way",
        ("cpu",),
    ),
    Attack(
        "inline_cpp",
        on.add_relu,
        (static("import"), Step("evidence", ("ok", "rejected", "runtime_error", "compile_error", "timeout"))),
        "C++ goes through the dispatcher, if there is a compiler at all",
    ),
    Attack(
        "shared_object",
        on.relu,
        (static("binary_file"), contract("compile_error", "cannot be imported: OSError")),
        "the child gets the sources that were read, nothing else",
    ),
    Attack("prebuilt_binary", on.add_relu, (static("binary_file"), NO_GAIN), "the child gets the sources alone"),
    Attack(
        "extern_libs",
        on.add_relu,
        (static("extern_libs"), Step("two_processes", ("ok", "runtime_error", "compile_error"))),
        "there is no such file",
    ),
    Attack(
        "extern_libs_in_dict",
        on.add_relu,
        (static("extern_libs"), Step("two_processes", ("ok", "runtime_error", "compile_error"))),
        "there is no such file",
    ),
    Attack(
        "ir_override",
        on.add_relu,
        (static("extern_libs"), Step("two_processes", ("ok", "runtime_error", "compile_error"))),
        "there is no such file",
    ),
    # Surroundings
    Attack("prints_score", on.add_relu, (NO_GAIN,), "nobody reads what a child prints"),
    Attack("kernel_prints_score", on.add_relu, (NO_GAIN,), "nobody reads what a child prints"),
    Attack("changes_environment", on.add_relu, (static("forbidden_call"), NO_GAIN), "thresholds are the parent's"),
    Attack("writes_score_file", on.add_relu, (static("forbidden_name"), NO_GAIN), "scores are the parent's"),
    Attack(
        "edits_harness",
        on.add_relu,
        (static("import"), Step("namespaces", ("runtime_error",), "Read-only file system"), WORKS),
        "files are read-only but for the child's own",
    ),
    Attack(
        "sees_processes",
        on.add_relu,
        (static("forbidden_call"), Step("namespaces", ("ok",))),
        "the child sees its own processes alone",
    ),
    Attack("leaves_process", on.add_relu, (static("import"), NO_GAIN), "what a child leaves is killed with it"),
    Attack("sets_affinity", on.add_relu, (static("forbidden_call"), NO_GAIN), "it is the child's own"),
    Attack(
        "sets_global_flags", on.add_relu, (static("attribute_assignment"), NO_GAIN), "eager runs in another process"
    ),
    # Triton's hooks, which get the arguments of a launch
    Attack(
        "grid_computes",
        on.sixteen,
        (static("hook"), WORKS),
        "a grid gets the tensors, in Triton's interpreter its own",
        ("cuda",),
    ),
    *_hooks("heuristic_computes", what=on.absolute),
    Attack(
        "prune_computes",
        on.sixteen,
        (static("hook"), RETURNED_AGAIN, WRONG),
        "so does pruning, once and then never again",
    ),
    *_hooks("pre_hook_computes"),
    Attack(
        "kernel_reads_clock",
        on.add_relu,
        (static("assembly"), NO_GAIN),
        "the time between calls tells sealed ones",
        ("cuda",),
    ),
    Attack(
        "kernel_builtins",
        on.add_relu,
        (static("forbidden_name"), Step("two_processes", ("runtime_error", "compile_error"))),
        "Triton's language is an allowlist by name, not by module",
    ),
    # What the static policy has once let through
    Attack("calls_pattern", on.add_relu, (static("forbidden_call"), WORKS), "the pattern is for matching"),
    Attack("reexport", on.add_relu, (static("reexport"), WORKS), "a name has one origin"),
    Attack("lambda_default", on.add_relu, (static("forbidden_name"), WORKS), "keyword-only defaults are expressions"),
    *_library("defaults are values of parameters", "function_default"),
    *_library("`**` may be there twice", "double_star"),
    Attack(
        "isinstance_argument", on.add_relu, (static("forbidden_name"), WORKS), "the second argument is an expression"
    ),
    Attack("format_spec", on.add_relu, (static("forbidden_name"), WORKS), "a format is an expression"),
    Attack("raise_from", on.add_relu, (static("forbidden_name"), ENDED), "a cause is an expression"),
    Attack(
        "encoding",
        on.relu,
        (static("encoding"), Step("two_processes", ("runtime_error",), "ended")),
        "the policy reads what Python will read",
    ),
    *_library("math computes on tuples too", "product_of_tuple", what=on.multiply),
    *_library("a list may have two names", "list_alias"),
    Attack("sibling_lambda", on.add_relu, (static("lambda_as_value"), WORKS), "a lambda gets what nobody has followed"),
    *_library("a lambda in a dict gets anything", "lambda_in_dict"),
    Attack("function_twice", on.add_relu, (static("rebinding"), WORKS), "a name stands for one function"),
    Attack("first_definition", on.add_relu, (static("forbidden_call"), WORKS), "a name stands for one function"),
    *_library("indexing gathers", "gathers", what=on.embedding),
    *_library("the copy that eager makes too", "converts_on_host", what=on.converted),
    *_library("`reversed` flips", "flips", what=on.flipped),
    Attack(
        "library_sibling",
        on.multiply,
        (static("import"), Step("contract", ("compile_error", "ok"), "has loaded already")),
        "Python finds the library first",
    ),
    Attack("local_import", on.add_relu, (static("rebinding"), WORKS), "an import holds for its function alone"),
    Attack(
        "comprehension_name", on.add_relu, (static("forbidden_name"), WORKS), "a loop variable holds for its loop alone"
    ),
)

HONEST: tuple[Honest, ...] = (
    *CALL_HONEST,
    *BINDING_HONEST,
    *FRESH_HONEST,
    *LIBRARY_HONEST,
    Honest("autotune_heuristics", on.add_relu, EXACT),
    Honest("several_kernels", on.softmax),
    Honest("shared_route", on.activations),
    Honest("configs_by_shape", on.add_relu, EXACT),
    Honest("processor_count", on.add_relu, EXACT),
    Honest("reused_scratch", on.row_sums),
    Honest("strided_inputs", on.strided_add_relu, EXACT),
    Honest("half_accumulation", on.half_matmul),
    Honest("atomics", on.total),
    Honest("tuple_outputs", on.sum_and_relu, EXACT),
    Honest("no_tensor_arguments", on.steps, EXACT),
    Honest("libdevice_and_assembly", on.negative_tanh, devices=("cuda",)),  # Triton's interpreter knows no assembly
    Honest("zeros_to_begin_with", on.relu, EXACT),
    Honest("in_place", on.in_place, EXACT),
    Honest("slower_than_eager", on.add_relu, EXACT),
    Honest("real_fusion", on.chain),
    Honest("slow_compilation", on.absolute, EXACT),
    Honest("names_and_comments", on.add_relu, EXACT),
    Honest("sibling_relative", on.add_relu, EXACT),
    Honest("sibling_in_package", on.add_relu, EXACT),
    Honest("sibling_as_alias", on.add_relu, EXACT),
    Honest("sibling_by_path", on.add_relu, EXACT),
    Honest("sibling_dotted", on.add_relu, EXACT),
    Honest("unused_imports", on.add_relu, EXACT),
    Honest("casts_in_host_code", on.add_relu, EXACT),
    Honest("linear_then_kernel", on.linear_sigmoid),
    Honest("captured_linear", on.linear_sigmoid),
    Honest("concatenated_weights", on.two_products),
    Honest("convolution_kept", on.conv_relu),
    Honest("einsum_pattern", on.einsum_half),
    Honest("cached_configuration", on.add_relu, EXACT),
    Honest("dataclass_configuration", on.add_relu, EXACT),
    Honest("names_of_built_ins", on.add_relu, EXACT),
    Honest("dtype_dispatch", on.add_relu, EXACT),
    Honest("multiprocessors_cached", on.add_relu, EXACT),
    Honest("helper_class", on.add_relu, EXACT),
    Honest("checks_with_messages", on.add_relu, EXACT),
    Honest("without_gradients", on.add_relu, EXACT),
    Honest("works_on_its_own_output", on.add_relu, EXACT),
    Honest("integer_parameters", on.scaled, EXACT),
    Honest("autotune_in_a_loop", on.add_relu, EXACT),
    Honest("layer_norm_by_library", on.add_norm),
    Honest("reduction_of_library", on.softmax),
    Honest("kernel_helpers", on.add_relu, EXACT),
    Honest("local_imports", on.add_relu, EXACT),
    Honest("reduced_shapes", on.add_relu, EXACT),
)
