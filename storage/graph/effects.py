"""What an op does besides computing a value, read off its record: writes, shared memory, randomness, contexts.

The answers come from names and constants alone, from tables in this file, so they are the same in every torch version;
identity (`dedup`) depends on them. In doubt an op has the effect.
"""

from storage.graph.record import Op, Ref, Value, refs

_CONTEXTS = frozenset(
    ("torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast", "torch._C._set_grad_enabled")
)

# Position of `inplace` in functions of torch.nn.functional.
_INPLACE_POSITION = {
    "relu": 1, "relu6": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "selu": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "hardtanh": 3, "threshold": 3, "rrelu": 4, "dropout": 3, "dropout1d": 3, "dropout2d": 3,
    "dropout3d": 3, "alpha_dropout": 3, "feature_alpha_dropout": 3,
}  # fmt: skip

# Operators that update running statistics: positions of the statistics and of the switch, and its default. Those
# without a switch, at -1, always do.
_STATISTICS = {
    "torch.nn.functional.batch_norm": ((1, 2), ("running_mean", "running_var"), 5, "training", False),
    "torch.nn.functional.instance_norm": ((1, 2), ("running_mean", "running_var"), 5, "use_input_stats", True),
    "torch.batch_norm": ((3, 4), ("running_mean", "running_var"), 5, "training", True),
    "torch.instance_norm": ((3, 4), ("running_mean", "running_var"), 5, "use_input_stats", True),
    "torch.native_batch_norm": ((3, 4), ("running_mean", "running_var"), 5, "training", True),
    "torch.batch_norm_update_stats": ((1, 2), ("running_mean", "running_var"), -1, "", True),
    "torch.batch_norm_gather_stats": ((3, 4), ("running_mean", "running_var"), -1, "", True),
    "torch.batch_norm_gather_stats_with_counts": ((3, 4), ("running_mean", "running_var"), -1, "", True),
    "torch.fused_moving_avg_obs_fake_quant": (
        (3, 4, 5, 6), ("running_min", "running_max", "scale", "zero_point"), -1, "", True,
    ),
}  # fmt: skip

_RANDOM = frozenset(
    """rand rand_like randn randn_like randint randint_like randperm bernoulli bernoulli_ multinomial normal normal_
    uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ poisson binomial gumbel_softmax native_dropout
    fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices
    rrelu_with_noise rrelu_with_noise_ pca_lowrank svd_lowrank""".split()
)

# Ops whose result is new memory, unless they write. Any other op may return what it was given, or a view of it.
_NEW_MEMORY = frozenset(
    """add sub rsub mul truediv div floordiv floor_divide mod remainder fmod pow neg abs matmul mm bmm addmm baddbmm
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm layer_norm
    group_norm instance_norm rms_norm relu relu6 gelu silu mish elu selu celu leaky_relu prelu hardswish hardsigmoid
    hardtanh softplus sigmoid tanh softmax log_softmax exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square reciprocal
    sin cos tan asin acos atan atan2 sinh cosh erf erfinv sign floor ceil clamp clamp_min clamp_max maximum minimum sum
    mean prod var std amax amin argmax argmin cumsum cumprod logsumexp cat concat concatenate stack embedding gather
    index_select where masked_fill eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and
    bitwise_or bitwise_xor bitwise_not and_ or_ xor invert isnan isinf max_pool1d max_pool2d max_pool3d avg_pool1d
    avg_pool2d avg_pool3d scaled_dot_product_attention clone arange zeros ones full empty zeros_like ones_like full_like
    empty_like rand randn rand_like randn_like tril triu one_hot outer addcmul addcdiv lerp new_zeros new_ones new_full
    new_empty size dim numel topk argsort""".split()
)

# Functions that renormalise rows of a weight in place where a norm is given: positions of the norm and of the weight.
_RENORMALISING = {
    "torch.nn.functional.embedding": (3, "max_norm", 1, "weight"),
    "torch.nn.functional.embedding_bag": (3, "max_norm", 1, "weight"),
}

# Random while training: position of the probability, of the training switch, its name and default.
_RANDOM_IN_TRAINING = {
    "dropout": (1, 2, "training", True), "dropout_": (1, 2, "train", True), "dropout1d": (1, 2, "training", True),
    "dropout2d": (1, 2, "training", True), "dropout3d": (1, 2, "training", True),
    "alpha_dropout": (1, 2, "training", False), "alpha_dropout_": (1, 2, "train", True),
    "feature_alpha_dropout": (1, 2, "training", False), "feature_alpha_dropout_": (1, 2, "train", True),
    "feature_dropout": (1, 2, "train", True), "feature_dropout_": (1, 2, "train", True),
    "rrelu": (-1, 3, "training", False), "rrelu_": (-1, 3, "training", False),
    "lstm": (5, 6, "train", True), "gru": (5, 6, "train", True), "rnn_tanh": (5, 6, "train", True),
    "rnn_relu": (5, 6, "train", True),
    "multi_head_attention_forward": (10, 13, "training", True),
}  # fmt: skip


def base_name(op: Op) -> str:
    """The op's name without its namespace: `torch.relu` and `.relu` → relu, `torch.ops.aten.relu.default` → relu."""
    parts = op.target.split(".")
    return parts[-2] if op.target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


def argument(op: Op, position: int, name: str, default: Value = None) -> Value:
    """The argument at `position` or under `name`, or `default` if it is not given."""
    if name in op.kwargs:
        return op.kwargs[name]
    return op.args[position] if 0 <= position < len(op.args) else default


def operand_in_front(op: Op) -> Op:
    """The call with its first operand as an argument where it is given by name: `torch.relu(input=x)`."""
    name = next((name for name in ("input", "self") if name in op.kwargs), None)
    if op.args or name is None or not _BEFORE_INPUT.isdisjoint(op.kwargs):
        return op
    return Op(op.kind, op.target, (op.kwargs[name],), {key: v for key, v in op.kwargs.items() if key != name})


_BEFORE_INPUT = frozenset(("condition", "grad_output", "sorted_sequence"))
"""Parameters that come before one that is called `input` or `self`."""


def is_context(op: Op) -> bool:
    """Whether the op enters or leaves a context, such as autocast, that changes what other ops compute."""
    return op.target in _CONTEXTS


def is_random(op: Op) -> bool:
    """Whether the op draws random numbers, or might: dropout does unless `training` is the constant False or p = 0."""
    name = base_name(op)
    if name in _RANDOM:
        return True
    if name == "scaled_dot_product_attention":
        return argument(op, 4, "dropout_p", 0.0) != 0
    if name in _RANDOM_IN_TRAINING:
        p_position, position, switch, default = _RANDOM_IN_TRAINING[name]
        probability = argument(op, p_position, "dropout_p" if name.startswith("multi_head") else "p", 0.5)
        return probability != 0 and argument(op, position, switch, default) is not False
    return False


def makes_new_memory(op: Op) -> bool:
    """Whether the result of an op that writes nothing is certain to share no memory with its operands."""
    return base_name(op) in _NEW_MEMORY


def writes(op: Op) -> tuple[Ref, ...]:
    """The values whose memory the op changes: by in-place operators and methods, `inplace=True`, `out=`, assignments,
    running statistics, and weights that are renormalised."""
    name = base_name(op)
    written: list[Ref] = []
    if _is_inplace(op, name) and op.args:
        written += refs(op.args[0])
    if "out" in op.kwargs:
        written += refs(op.kwargs["out"])
    if op.target in _STATISTICS:
        positions, names, switch, switch_name, default = _STATISTICS[op.target]
        if argument(op, switch, switch_name, default) is not False:
            for position, stat in zip(positions, names, strict=True):
                written += refs(argument(op, position, stat))
    if op.target in _RENORMALISING:
        position, name, weight, weight_name = _RENORMALISING[op.target]
        if argument(op, position, name) is not None:
            written += refs(argument(op, weight, weight_name))
    return tuple(dict.fromkeys(written))


def _is_inplace(op: Op, name: str) -> bool:
    if op.target.startswith("operator."):
        return name == "setitem" or (name.startswith("i") and name[1:] in _AUGMENTED)
    if name.endswith("_") and not name.endswith("__") and name != "requires_grad_":
        return True
    return argument(op, inplace_position(op), "inplace", False) is not False


def inplace_position(op: Op) -> int:
    """The position of the op's argument `inplace`; −1 if it can only be given by name, or not at all."""
    return _INPLACE_POSITION.get(base_name(op), -1)


_AUGMENTED = frozenset("add and concat floordiv lshift matmul mod mul or pow rshift sub truediv xor".split())
