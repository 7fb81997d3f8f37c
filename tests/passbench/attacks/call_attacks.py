"""Attacks on the rule that a call knows its own inputs and nothing else, and honest passes that come near to it.

They use what the static policy allows: what stops them is how calls are made, and how outputs are taken and compared.
"""

from tests.passbench.attacks import call_samples as on
from tests.passbench.attacks.attack_kinds import (
    EXACT,
    NO_GAIN,
    RETURNED_AGAIN,
    REWRITTEN,
    SPOILT,
    UNEVEN,
    WORKS,
    WRONG,
    Attack,
    Honest,
    Step,
    output,
    outside,
    static,
)
from tests.passbench.attacks.attack_samples import add_relu, row_sums, steps, sum_and_relu, transposed_add_relu

WRONG_IN_TIME = Step("timed_outputs_checked", ("wrong", "runtime_error"), SPOILT)
MAY_WORK = Step("no layer left", ("ok", "wrong", "runtime_error"))
"""It works where exchanges have as few calls as on a CPU; more of them come in numbers that it cannot foresee."""
ALLOCATED_BEFORE = output("runtime_error", "allocated before their calls|returns memory")
LOOSE = Step("comparison", ("ok",), least=-2, most=1)

CALL_ATTACKS: tuple[Attack, ...] = (
    # When a call is computed
    Attack(
        "last_call_computes",
        add_relu,
        (
            Step("sealed_calls", ("wrong", "runtime_error"), SPOILT + "|has (changed after|written over)"),
            Step("evidence", ("rejected", "wrong", "runtime_error"), f"{UNEVEN}|has written over|{SPOILT}"),
            MAY_WORK,
        ),
        "outputs of some calls, nobody knows which, are taken as soon as the call ends",
    ),
    # What an output is
    Attack(
        "output_in_a_list",
        add_relu,
        (output("runtime_error", "is not where eager has it"), WORKS),
        "an output lies in the result where eager's does",
    ),
    Attack(
        "output_under_a_key",
        add_relu,
        (output("runtime_error", "is not where eager has it"), WORKS),
        "no key of a dictionary makes another place in the result look like eager's",
    ),
    Attack(
        "ring_of_outputs",
        add_relu,
        (
            RETURNED_AGAIN,
            # Uneven where observed calls are among the first. On a GPU the outputs of a call have changed when they are
            # compared: a later call of the exchange has written over them.
            Step("evidence", ("rejected", "runtime_error", "wrong"), f"{UNEVEN}|{REWRITTEN.reason}|{WRONG.reason}"),
            MAY_WORK,
        ),
        "memory that was returned is the caller's; some outputs are held to see whether it stays so",
    ),
    Attack(
        "bump_allocator",
        add_relu,
        (RETURNED_AGAIN, MAY_WORK),
        "outputs of two calls share no allocation",
    ),
    Attack(
        "preallocated_outputs",
        add_relu,
        (ALLOCATED_BEFORE, MAY_WORK),
        "no output lies in memory that was there before the calls of its exchange",
    ),
    Attack(
        "decoys_for_outputs",
        on.padded,
        (ALLOCATED_BEFORE, MAY_WORK),
        "what a tensor had before is known by the storage, not by how much torch has given out",
    ),
    Attack(
        "zeros_of_earlier_calls",
        on.padded_far,
        # Uneven where it is observed before and behind its eighth call.
        (
            Step("poisoned_outputs", ("runtime_error", "rejected"), f"{SPOILT}|{UNEVEN}"),
            Step("no layer left", ("ok", "wrong", "runtime_error", "rejected"), f"{SPOILT}|{UNEVEN}"),
        ),
        "timed calls find nothing of earlier ones in fresh memory",
    ),
    Attack(
        "writes_earlier_output",
        add_relu,
        (
            output("runtime_error", "has written over the output of an earlier one"),
            REWRITTEN,
            WRONG_IN_TIME,
            WORKS,
        ),
        "outputs that are held are compared with what they were",
    ),
    Attack(
        "one_tensor_twice",
        on.relu_and_clamp,
        (output("runtime_error", "shares memory with output 0"), WORKS),
        "who writes to one of eager's outputs does not change the other",
    ),
    Attack(
        "expanded_output",
        on.expanded_sums,
        (output("runtime_error", "has strides"), WORKS),
        "strides are eager's, or a contiguous tensor's",
    ),
    Attack(
        "hides_strides",
        on.expanded_sums,
        (static("rebinding"), output("runtime_error", "has been given an attribute stride"), WORKS),
        "a tensor has torch's attributes and no others",
    ),
    Attack(
        "shape_of_all_tensors",
        on.expanded_sums,
        (static("rebinding"), output("runtime_error", "torch.Tensor has been given an attribute"), WORKS),
        "the class has torch's attributes, too",
    ),
    Attack(
        "gapped_output",
        add_relu,
        (output("runtime_error", "has strides"), WORKS),
        "strides are eager's, or a contiguous tensor's",
    ),
    Attack(
        "skips_in_place",
        on.multiply_and_add,
        (
            Step("inputs_unchanged", ("wrong",), "leaves its input x as it is"),
            Step("comparison", ("ok", "wrong"), "input 0, written in place", least=0, most=1),
        ),
        "inputs that eager writes to are results: they change, and are compared as outputs are",
    ),
    Attack(
        "output_elsewhere",
        add_relu,
        (
            static("forbidden_call"),
            output("runtime_error", "output 0 is on cpu"),
            Step("evidence", ("rejected",), "evidence_operator: aten._pin_memory"),
            NO_GAIN,
        ),
        "the device is eager's",
        ("cuda",),
    ),
    Attack("hides_nan", on.logarithm, (Step("comparison", ("wrong",), "expected nan"),), "NaN is where eager has NaN"),
    # What inputs are
    Attack(
        "assumed_moments",
        on.normalised,
        (Step("comparison", ("ok", "wrong"), least=0, most=1),),
        "mean and variance change from call to call: right at loose levels alone",
    ),
    Attack(
        "ignores_scale_and_bias",
        on.scaled_and_shifted,
        (LOOSE,),
        "what a record declares constant is drawn with a spread",
    ),
    Attack(
        "keeps_weight_sum",
        on.scaled_by_sums,
        (LOOSE,),
        "what a record declares constant differs from call to call: right at loose levels alone",
    ),
    Attack("comparison_left_out", on.two_ids, (WRONG,), "integers are drawn as what the graph compares them with, too"),
    # What a kernel reaches
    Attack(
        "reads_address",
        add_relu,
        (static("address"), outside(), Step("two_processes", ("ok", "runtime_error"))),
        "no integer becomes a pointer; an interpreted kernel reaches its arguments alone",
        ("cpu",),
    ),
    Attack(
        "reads_behind", add_relu, (outside(), NO_GAIN), "an interpreted kernel reaches its arguments alone", ("cpu",)
    ),
    Attack(
        "writes_beside",
        add_relu,
        (
            outside("writes over its input"),
            Step("inputs_unchanged", ("wrong",), "writes over its input"),
            Step("timed_outputs_checked", ("wrong", "runtime_error"), SPOILT),
        ),
        "memory around inputs is compared, too",
    ),
    # What a worker takes
    Attack(
        "takes_host_memory",
        add_relu,
        (Step("resource_limits", ("runtime_error",), "memory"),),
        "a worker has limits, and its failure is its own",
        ("cpu",),
    ),
    Attack(
        "takes_gpu_memory",
        add_relu,
        (Step("resource_limits", ("runtime_error",), "(?i)memory"),),
        "a worker has a share of the GPU, and its failure is its own",
        ("cuda",),
    ),
    Attack(
        "takes_pinned_memory",
        add_relu,
        (static("forbidden_call"), output("runtime_error", "GiB of pinned memory"), NO_GAIN),
        "pinned memory has a limit of its own",
        ("cuda",),
    ),
    Attack(
        "takes_other_gpu",
        add_relu,
        (Step("one_gpu", ("runtime_error", "compile_error"), "(?i)device"),),
        "a worker sees one GPU",
        ("cuda",),
    ),
)

CALL_HONEST: tuple[Honest, ...] = (
    Honest("two_outputs_one_allocation", sum_and_relu, EXACT),
    Honest("cached_constant", steps, EXACT),
    Honest("plans_by_shape", add_relu, EXACT),
    Honest("contiguous_output", transposed_add_relu, EXACT),
    Honest("in_place_not_returned", on.multiply_and_keep),  # a GPU makes one rounding of product and sum
    Honest("nan_as_eager", on.logarithm),
    Honest("scratch_of_the_call", row_sums),
    Honest("replaces_scratch", add_relu, EXACT),
    Honest("views_as_eager", on.halves, EXACT),
)
