"""TorchInductor's element operations as Triton expressions, for compiled kernels and the interpreter alike, and how
Triton source names dtypes and numbers.

Helpers are small `@triton.jit` functions that a kernel's module carries when it uses them; libdevice has most of them,
but Triton's interpreter has none of it without PassBench. The exact ones have the bits of eager's CUDA kernels
(`benchmarks/agent/h200_distill/rounding.txt`) in compiled kernels. Triton's libdevice is older than CUDA 13, whose
`erf` and `pow` have other bits: these are written out as torch's kernels have them.
"""

import math

import torch

EXPRESSIONS: dict[str, str] = {
    "abs": "tl.abs({0})",
    "add": "{0} + {1}",
    "and_": "{0} & {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_left_shift": "{0} << {1}",
    "bitwise_not": "~{0}",
    "bitwise_or": "{0} | {1}",
    "bitwise_right_shift": "{0} >> {1}",
    "bitwise_xor": "{0} ^ {1}",
    "ceil": "tl.ceil({0})",
    "cos": "tl.cos({0})",
    "div_rn": "tl.div_rn({0}, {1})",
    "eq": "{0} == {1}",
    "erf": "tl.erf({0})",
    "erfc": "1.0 - tl.erf({0})",
    "exact_cos": "libdevice.cos({0})",
    "exact_erf": "erf_of_cuda({0})",
    "exact_exp": "libdevice.exp({0})",
    "exact_log1p": "libdevice.log1p({0})",
    "exact_pow": "power_of_cuda({0}, {1})",
    "exact_sigmoid": "tl.div_rn(1.0, 1.0 + libdevice.exp(-{0}))",
    "exact_sin": "libdevice.sin({0})",
    "exact_tanh": "libdevice.tanh({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "expm1": "expm1({0})",
    "floor": "tl.floor({0})",
    "floordiv": "floor_divide({0}, {1})",
    "fma": "tl.fma({0}, {1}, {2})",
    "fmod": "{0} % {1}",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "identity": "{0}",
    "int_truediv": "{0} / {1}",
    "isinf": "tl.abs({0}) == float('inf')",
    "isnan": "{0} != {0}",
    "le": "{0} <= {1}",
    "log": "tl.log({0})",
    "log10": "tl.log({0}) * 0.4342944819032518",
    "log1p": "log1p({0})",
    "log2": "tl.log2({0})",
    "logical_and": "{0} & {1}",
    "logical_not": "{0} == 0",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}",
    "lshift": "{0} << {1}",
    "lt": "{0} < {1}",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "mod": "{0} % {1}",
    "mul": "{0} * {1}",
    "mul_rn": "{0} * {1}",
    "ne": "{0} != {1}",
    "neg": "-{0}",
    "or_": "{0} | {1}",
    "pow": "power({0}, {1})",
    "reciprocal": "1.0 / {0}",
    "reciprocal_rn": "tl.div_rn(1.0, {0})",
    "relu": "tl.maximum({0}, 0, propagate_nan=tl.PropagateNan.ALL)",
    "remainder": "remainder({0}, {1})",
    "round": "round_half_even({0})",
    "rshift": "{0} >> {1}",
    "rsqrt": "tl.rsqrt({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))",
    "sign": "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to({0}.dtype)",
    "sin": "tl.sin({0})",
    "sqrt": "tl.sqrt({0})",
    "sqrt_rn": "tl.sqrt_rn({0})",
    "square": "{0} * {0}",
    "sub": "{0} - {1}",
    "tan": "tl.sin({0}) / tl.cos({0})",
    "tanh": "tanh({0})",
    "truediv": "{0} / {1}",
    "trunc": "truncate({0})",
    "truncdiv": "{0} // {1}",
    "where": "tl.where({0}, {1}, {2})",
    "xor": "{0} ^ {1}",
}
"""Operation → expression over its operands."""

_COMPARISONS = frozenset("eq ne lt le gt ge".split())
TO_BOOL = _COMPARISONS | frozenset("isnan isinf logical_and logical_or logical_not logical_xor signbit".split())
"""Operations whose result is a bool."""

ROUND_SCALARS = _COMPARISONS | {"fmod", "remainder"}
"""Operations for which eager rounds a scalar to the half type of the elements."""

IN_FULL = {"sqrt": "sqrt_rn", "truediv": "div_rn", "reciprocal": "reciprocal_rn"}
"""Operations of which Triton's own are approximations in float32, and eager's are not."""

INTEGER_OR_FLOAT = frozenset(
    """abs add sub mul neg maximum minimum relu square sign mod fmod remainder floordiv truncdiv where identity and_ or_
    xor lshift rshift bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift""".split()
)
"""Operations that keep the type of their operands; all others give floats."""

EXACT = frozenset("abs neg maximum minimum relu where identity".split())
"""Operations that return one of their operands' values, so that a rounded operand needs no further rounding."""

HELPERS: dict[str, str] = {
    "erf_of_cuda": '''
@triton.jit
def erf_of_cuda(x):
    """The error function as CUDA 13 computes it, in float32: a series around zero, and one of the power of two that is
    left to 1 elsewhere."""
    size = tl.abs(x)
    far = size >= 1.002959966659546
    t = tl.where(far, size, x * x)
    series = tl.where(far, 0.00011219871521461755, 8.483494457323104e-05)
    series = tl.fma(series, t, tl.where(far, -0.0013275252422317863, -0.0008213091641664505))
    series = tl.fma(series, t, tl.where(far, 0.00839653518050909, 0.005213488824665546))
    series = tl.fma(series, t, tl.where(far, -0.04024658352136612, -0.026868773624300957))
    series = tl.fma(series, t, tl.where(far, 0.15950430929660797, 0.11284004896879196))
    series = tl.fma(series, t, tl.where(far, 0.9129176735877991, -0.37612664699554443))
    series = tl.fma(series, t, tl.where(far, 0.6290600299835205, 0.12837915122509003))
    factor = tl.where(far, -size, x)
    near = tl.fma(series, factor, factor)
    rest = 1.0 - tl.exp2(near)
    return tl.where(far, tl.where(x < 0.0, -rest, rest), near)
''',
    "expm1": '''
@triton.jit
def expm1(x):
    """exp(x) - 1 without cancellation (Kahan)."""
    e = tl.exp(x)
    below = e - 1.0
    corrected = below * x / tl.log(e)
    result = tl.where(e == 1.0, x, tl.where(below == -1.0, -1.0, corrected))
    return tl.where(x > 80.0, below, result)
''',
    "floor_divide": '''
@triton.jit
def floor_divide(a, b):
    """Integer division that rounds down."""
    quotient = a // b
    remainder = a - quotient * b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), quotient - 1, quotient)
''',
    "log1p": '''
@triton.jit
def log1p(x):
    """log(1 + x) without cancellation (Kahan)."""
    u = 1.0 + x
    corrected = tl.log(u) * x / (u - 1.0)
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), x, corrected))
''',
    "power": '''
@triton.jit
def power(x, y):
    """x to the power of y; double precision inside keeps large results accurate."""
    base = tl.abs(x).to(tl.float64)
    exponent = (y + x * 0).to(tl.float64)
    magnitude = tl.where(base == 0.0, tl.where(exponent > 0.0, 0.0, float("inf")), tl.exp2(exponent * tl.log2(base)))
    half = exponent * 0.5
    whole = tl.floor(exponent) == exponent
    odd = whole & (tl.floor(half) != half)
    negative = tl.where(whole, tl.where(odd, -magnitude, magnitude), float("nan"))
    result = tl.where(x < 0, negative, magnitude)
    return tl.where(exponent == 0.0, 1.0, result).to((x + y).dtype)
''',
    "power_of_cuda": '''
@triton.jit
def power_of_cuda(x, y):
    """x to the power of y as CUDA 13 computes it, in float32: 2 to the power of y * log2(x). The logarithm and the
    product are sums of two numbers. One of x and y may be a constant."""
    base, exponent = tl.where(y == y, x, x), tl.where(x == x, y, y)
    size = tl.abs(base)
    tiny = size < 1.1754943508222875e-38
    bits = tl.where(tiny, size * 16777216.0, size).to(tl.int32, bitcast=True)
    whole = (bits - 1060439283) & -8388608
    scale = tl.fma(whole.to(tl.float32), 1.1920928955078125e-07, tl.where(tiny, -24.0, 0.0))
    mantissa = (bits - whole).to(tl.float32, bitcast=True)
    below, inverse = mantissa - 1.0, libdevice.fast_dividef(1.0, mantissa + 1.0)
    t = (below + below) * inverse
    square, gap = t * t, below - t
    t_rest = inverse * tl.fma(-t, below, gap + gap)
    series = tl.fma(square, 0.0006568862590938807, 0.0032181653659790754)
    series = tl.fma(series, square, 0.018033718690276146)
    series = tl.fma(series, square, 0.12022458761930466) * square
    high = tl.fma(t, 1.4426950216293335, scale)
    rest = tl.fma(t_rest, 1.4426950216293335, tl.fma(t, 1.4426950216293335, scale - high))
    rest = tl.fma(series * 3.0, t_rest, tl.fma(t, 1.925136672298322e-08, rest))
    rest = tl.fma(series, t, rest)
    logarithm = high + rest
    rest = rest - (logarithm - high)
    product = logarithm * exponent
    rest = tl.fma(rest, exponent, tl.fma(logarithm, exponent, -product))
    far = tl.abs(product) > 152.0
    near = tl.where(far, 0.0, (product + 12582912.0) - 12582912.0)  # the nearest integer, ties to even
    part = (product - near) + rest
    result = tl.fma(part, 0.00015239251661114395, 0.0013391353422775865)
    result = tl.fma(result, part, 0.009618839249014854)
    result = tl.fma(result, part, 0.055503588169813156)
    result = tl.fma(result, part, 0.24022644758224487)
    result = tl.fma(result, part, 0.6931471824645996)
    result = tl.fma(result, part, 1.0)
    shift = tl.where(near > 0.0, 0, -2097152000)
    result = result * (shift + 2130706432).to(tl.float32, bitcast=True)
    result = result * ((near.to(tl.int32) << 23) - shift).to(tl.float32, bitcast=True)
    result = tl.where(far, tl.where(product < 0.0, 0.0, float("inf")), result)
    half = exponent * 0.5
    half = tl.where(half < 0.0, tl.ceil(half), tl.floor(half))
    odd = tl.abs(exponent - (half + half)) == 1.0
    signed = tl.where(tl.floor(exponent) == exponent, tl.where(odd, result * -1.0, result), float("nan"))
    result = tl.where(base < 0.0, signed, result)
    result = tl.where((base == -1.0) & (tl.abs(exponent) == float("inf")), 1.0, result)
    ends = (base + base).to(tl.int32, bitcast=True)
    ends = tl.where(exponent < 0.0, ends ^ 2139095040, ends)
    ends = tl.where(odd, ends, ends & 2147483647).to(tl.float32, bitcast=True)
    result = tl.where((base == 0.0) | (size == float("inf")), ends, result)
    result = tl.where((base == base) & (exponent == exponent), result, base + exponent)
    return tl.where((base == 1.0) | (exponent == 0.0), 1.0, result)
''',
    "remainder": '''
@triton.jit
def remainder(a, b):
    """The remainder with the sign of the divisor."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "round_half_even": '''
@triton.jit
def round_half_even(x):
    """The nearest integer, ties to even; a zero has the sign of `x`."""
    low = tl.floor(x)
    above = x - low
    tie = tl.where(tl.floor(low * 0.5) * 2.0 == low, low, low + 1.0)
    nearest = tl.where(above < 0.5, low, tl.where(above > 0.5, low + 1.0, tie))
    return tl.where(nearest == 0.0, x * 0.0, nearest)
''',
    "tanh": '''
@triton.jit
def tanh(x):
    """Hyperbolic tangent: a series near zero, where the quotient would cancel."""
    square = x * x
    series = x * (1.0 - square * (0.3333333333 - square * (0.1333333333 - square * 0.0539682540)))
    decay = tl.exp(-2.0 * tl.abs(x))
    quotient = (1.0 - decay) / (1.0 + decay)
    return tl.where(tl.abs(x) < 0.15, series, tl.where(x < 0, -quotient, quotient))
''',
    "truncate": '''
@triton.jit
def truncate(x):
    """The integer part."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
''',
}
"""Helper name → source."""

_DTYPES = {torch.bool: "tl.int1"}


def triton_dtype(dtype: torch.dtype) -> str:
    """`torch.float32` → "tl.float32"."""
    return _DTYPES.get(dtype) or str(dtype).replace("torch.", "tl.")


def literal(number: bool | int | float) -> str:
    """A number as source; infinities and NaN are not literals in Python."""
    if isinstance(number, float) and not math.isfinite(number):
        return f"float('{number}')"
    return repr(number)
