"""Hand-written families: a function and the inputs that it takes, small enough for the Triton interpreter."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from storage.records import Input
from tests.agent.support import ANY, FLOATS, PAIR, in_dtype, tensor


@dataclass(frozen=True)
class Family:
    """`modules` is how many modules the pass has, each with `kernels` a variant; `margin` is `Distill`'s."""

    function: Callable
    inputs: tuple[Input, ...]
    modules: int = 1
    kernels: str = "one kernel"
    dtypes: tuple[str, ...] = FLOATS
    margin: float = PAIR


def _parameter(*shape: int) -> Input:
    return tensor(*shape, role="parameter", mean=1.0, std=0.1)


def _buffer(*shape: int) -> Input:
    return tensor(*shape, role="buffer")


def _add_relu(x, y):
    return F.relu(torch.add(x, y))


def _bias_gelu(x, b):
    return F.gelu(x + b)


def _bias_gelu_tanh(x, b):
    return F.gelu(x + b, approximate="tanh")


def _silu_mul(x, y):
    return F.silu(x) * y


def _residual_layer_norm(x, y, w, b):
    total = x + y
    return total, F.layer_norm(total, (40,), w, b, 1e-5)


def _rms_norm(x, w):
    high = x.to(torch.float32)
    high = high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * high.to(x.dtype)


def _rms_norm_float32(x, w):
    high = x.float()
    return w * (high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + 1e-6))


def _attention_softmax(s, m):
    return torch.softmax(s * 0.125 + m, dim=-1)


def _causal_softmax(s, m):
    return F.softmax(s.masked_fill(m == 0, float("-inf")), dim=-1)


def _batch_norm_relu(x, m, v, w, b):
    return F.relu(F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5), inplace=True)


def _batch_norm_add_relu(x, m, v, w, b, r):
    y = F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5)
    y += r
    return F.relu(y, inplace=True)


def _bias_dropout_residual(x, b, r):
    return r + F.dropout(x + b, 0.1, False, False)


def _mean_and_variance(x):
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * 2.0, x.var((2, 3), unbiased=False)


def _channel_mean(x):
    """Reduces a dimension whose neighbours are not neighbours in memory."""
    return F.relu(x).mean(1)


def _heads(x, b):
    return (x + b).view(2, 6, 4, 10).transpose(1, 2) * 0.5


def _rotate(x, c, s):
    first, second = x[..., :8], x[..., 8:]
    return x * c + torch.cat((-second, first), dim=-1) * s


def _chunked_gate(x):
    gate, value = x.chunk(2, dim=-1)
    return torch.sigmoid(gate) * torch.tanh(value)


def _split_heads(x, w, b):
    """Two outputs that are views into one buffer, at different offsets."""
    first, second = F.layer_norm(x * 2.0, (40,), w, b, 1e-5).view(6, 8, 5).split([2, 3], 2)
    return first.permute(1, 2, 0), second.transpose(0, 1)


def _cube(x):
    return torch.tanh(0.79 * (x + 0.044715 * torch.pow(x, 3.0)))


def _embedding_layer_norm(i, table, p, w, b):
    return F.layer_norm(F.embedding(i, table) + p, (24,), w, b, 1e-12)


def _pool(x):
    return F.relu(F.max_pool2d(x, 3, 2, 1))


def _upsample_add(x, y):
    return F.interpolate(x, scale_factor=2.0, mode="nearest") + y


def _average_pool(x):
    return F.avg_pool2d(F.hardswish(x), 2, 2)


def _squeeze_excite(x, g):
    return x * F.hardsigmoid(g) + x


def _in_place_residual(x, y):
    x += y
    return F.relu(x, inplace=True)


def _in_place_clamp(x, y):
    return x.mul_(0.5).clamp_(-1.0, 1.0) + y


def _log_softmax_and_best(x):
    return F.log_softmax(x, dim=-1), torch.argmax(x, dim=-1)


def _extremes(x):
    return x.amax(-1) - x.amin(-1)


def _integers(i, j):
    return (i + j) // 3, (i * 2 - j).to(torch.float32) / 7, i != j


def _causal_mask(m):
    """What a model makes of an attention mask: positions alone, and one input."""
    query = torch.arange(9, device="cuda")[None, None, :, None]
    key = (torch.arange(7, device="cuda") + 0)[None, None, None, :]
    seen = query.new_ones((), dtype=torch.bool) & (key <= query).to("cuda")
    batch = torch.arange(2, device="cuda")[:, None, None, None]
    return (seen & m.to(device="cuda", dtype=torch.bool)[batch, key]).expand(2, -1, 9, 7)


def _position_bias(table):
    """T5's buckets of distances."""
    distance = torch.arange(12, device="cuda")[None, :] - torch.arange(12, device="cuda")[:, None]
    back = -torch.min(distance, torch.zeros_like(distance))
    far = 4 + (torch.log(torch.abs(back).float() / 4) / 1.0986122886681098 * 4).to(torch.int64)
    far = torch.min(far, torch.full_like(far, 7))
    return F.embedding(torch.where(back < 4, back, far), table).permute(2, 0, 1)[None]


def _positions_of_tokens(m):
    """What a model makes of an attention mask of padded texts."""
    kept = m.ne(0).int()
    return (torch.cumsum(kept, dim=1).type_as(kept) * kept).long() + 1


def _scans(x):
    return (x * 0.5).cumsum(0), torch.cumprod(x * 0.1 + 1.0, dim=-1)


def _mirrored_positions(x):
    """A position counted down from behind another."""
    there = torch.arange(5, device="cuda")
    return x + torch.cat((there, there.flip(0))) * 2


def _rotary(x):
    frequencies = 1.0 / 100.0 ** (torch.arange(0, 8, 2, device="cuda").float() / 8)
    angles = torch.arange(3, device="cuda")[:, None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return x * angles.cos() + x.roll(4, -1) * angles.sin()


def _layer_scale(x, g, r):
    return r + x * g.view(1, -1, 1, 1)


def _mlp(x, w1, b1, w2, b2, g, c):
    """Around library calls: two regions."""
    hidden = F.gelu(F.linear(x, w1) + b1)
    return F.layer_norm(x + (F.linear(hidden, w2) + b2), (16,), g, c, 1e-5)


FAMILIES: dict[str, Family] = {
    "add_relu": Family(_add_relu, (tensor(4, 37), tensor(4, 37))),
    "bias_gelu": Family(_bias_gelu, (tensor(3, 5, 12), _parameter(12))),
    "bias_gelu_tanh": Family(_bias_gelu_tanh, (tensor(3, 5, 12), _parameter(12))),
    "silu_mul": Family(_silu_mul, (tensor(3, 50), tensor(3, 50))),
    "residual_layer_norm": Family(
        _residual_layer_norm,
        (tensor(2, 6, 40), tensor(2, 6, 40), _parameter(40), _parameter(40)),
        margin=ANY,
    ),
    "rms_norm": Family(_rms_norm, (tensor(2, 5, 48), _parameter(48)), dtypes=("float32",)),
    "rms_norm_float32": Family(_rms_norm_float32, (tensor(2, 5, 48), _parameter(48))),
    "attention_softmax": Family(_attention_softmax, (tensor(2, 3, 8, 17), tensor(2, 1, 8, 17))),
    "causal_softmax": Family(_causal_softmax, (tensor(2, 3, 6, 6), tensor(6, 6, dtype="int64", low=0, high=3))),
    "batch_norm_relu": Family(
        _batch_norm_relu, (tensor(2, 6, 5, 5), _buffer(6), _buffer(6), _parameter(6), _parameter(6))
    ),
    "batch_norm_add_relu": Family(
        _batch_norm_add_relu,
        (tensor(2, 6, 5, 5), _buffer(6), _buffer(6), _parameter(6), _parameter(6), tensor(2, 6, 5, 5)),
        dtypes=("float32", "bfloat16"),
    ),
    "batch_norm_channels_last": Family(
        _batch_norm_relu,
        (tensor(2, 6, 5, 4, stride=(120, 1, 24, 6)), _buffer(6), _buffer(6), _parameter(6), _parameter(6)),
    ),
    "bias_dropout_residual": Family(_bias_dropout_residual, (tensor(2, 5, 16), _parameter(16), tensor(2, 5, 16))),
    "mean_and_variance": Family(_mean_and_variance, (tensor(2, 4, 5, 7),), dtypes=("float32",)),
    "channel_mean": Family(_channel_mean, (tensor(2, 12, 5, 5),)),
    "heads": Family(_heads, (tensor(2, 6, 40), _parameter(40))),
    "rotate": Family(_rotate, (tensor(2, 3, 16), tensor(3, 16), tensor(3, 16)), dtypes=("float32", "bfloat16")),
    "chunked_gate": Family(_chunked_gate, (tensor(3, 4, 20),)),
    "split_heads": Family(_split_heads, (tensor(6, 40), _parameter(40), _parameter(40))),
    "cube": Family(_cube, (tensor(3, 50),), dtypes=("float32",)),
    "embedding_layer_norm": Family(
        _embedding_layer_norm,
        (
            tensor(2, 7, dtype="int64", low=0, high=29),
            tensor(30, 24, role="parameter", std=1.0),
            tensor(1, 7, 24),
            _parameter(24),
            _parameter(24),
        ),
    ),
    "pool": Family(_pool, (tensor(2, 3, 9, 9),)),
    "upsample_add": Family(_upsample_add, (tensor(2, 3, 4, 5), tensor(2, 3, 8, 10))),
    "average_pool": Family(_average_pool, (tensor(2, 3, 8, 8),), dtypes=("float32", "bfloat16")),
    "squeeze_excite": Family(_squeeze_excite, (tensor(2, 4, 6, 6), tensor(2, 4, 1, 1))),
    "in_place_residual": Family(_in_place_residual, (tensor(2, 30), tensor(2, 30))),
    "in_place_clamp": Family(_in_place_clamp, (tensor(2, 30), tensor(30))),
    "log_softmax_and_best": Family(_log_softmax_and_best, (tensor(6, 33),), dtypes=("float32",), margin=ANY),
    "extremes": Family(_extremes, (tensor(6, 33),)),
    "integers": Family(
        _integers,
        (tensor(5, 9, dtype="int64", low=-9, high=9), tensor(9, dtype="int64", low=-9, high=9)),
        dtypes=("float32",),
    ),
    "causal_mask": Family(_causal_mask, (tensor(2, 7, dtype="int64", low=0, high=1),), dtypes=("float32",)),
    "position_bias": Family(_position_bias, (tensor(8, 3, role="parameter"),)),
    "positions_of_tokens": Family(
        _positions_of_tokens, (tensor(2, 60, dtype="int64", low=0, high=1),), dtypes=("float32",)
    ),
    "scans": Family(_scans, (tensor(5, 19),), kernels="2 kernels", margin=ANY),
    "mirrored_positions": Family(_mirrored_positions, (tensor(3, 10),)),
    "rotary": Family(_rotary, (tensor(2, 3, 8),), dtypes=("float32",)),
    "layer_scale": Family(_layer_scale, (tensor(2, 6, 4, 4), _parameter(6), tensor(2, 6, 4, 4))),
    "strided": Family(_add_relu, (tensor(6, 10, stride=(1, 12)), tensor(6, 10, stride=(20, 2)))),
    "expanded": Family(_add_relu, (tensor(6, 10, stride=(0, 1)), tensor(6, 10))),
    "mlp": Family(
        _mlp,
        (
            tensor(3, 16),
            tensor(32, 16, role="parameter"),
            tensor(32, role="parameter"),
            tensor(16, 32, role="parameter"),
            tensor(16, role="parameter"),
            _parameter(16),
            _parameter(16),
        ),
        modules=2,
    ),
}


def in_steps(one: Input) -> Input:
    """The input with its last two dimensions the other way round in memory."""
    if len(one.shape) < 2:
        return one
    turned = torch.empty((*one.shape[:-2], one.shape[-1], one.shape[-2]), device="meta").transpose(-1, -2)
    return replace(one, stride=turned.stride())


def _longer(inputs: tuple[Input, ...], dim: int) -> tuple[Input, ...]:
    """All inputs with the first one's size along `dim`, counted from the end, with three more there."""
    size = inputs[0].shape[dim] if len(inputs[0].shape) >= -dim else None
    return tuple(
        tensor(*(n + 3 if place == dim else n for place, n in zip(range(-len(i.shape), 0), i.shape, strict=True)),
               dtype=i.dtype, role=i.role, mean=i.mean, std=i.std, low=i.low, high=i.high)
        if len(i.shape) >= -dim and i.shape[dim] == size
        else i
        for i in inputs
    )  # fmt: skip


def others(inputs: tuple[Input, ...]) -> list[tuple[Input, ...]]:
    """Inputs of other dtypes, strides and sizes, of which no variant is made."""
    lengths = [_longer(inputs, dim) for dim in (-1, -2, -3, -4)]
    wide = in_dtype(inputs, "float64")
    found = [wide, tuple(map(in_steps, inputs)), *lengths, in_dtype(lengths[1], "float16")]
    return [each for each in dict.fromkeys(found) if each != inputs]
