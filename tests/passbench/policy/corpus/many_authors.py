"""Honest passes with habits of many authors: guards as decorators, checks by name, kernels under `if`, bases and their
constructors, notes on the error stream. `BY_MANY`, name → sources, each for `relu(x + y)`.
"""

from tests.passbench.policy.corpus.honest_habits import ADD_RELU, IMPORTS, RETURNS

_LAUNCH = """    add_relu[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""
_BODIES = {
    "guard_around_the_replacement": '''
def ensure_contiguous(fn):
    """Every tensor among the arguments is made contiguous."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        def maybe_to_contiguous(x):
            return x.contiguous() if isinstance(x, torch.Tensor) else x

        args = [maybe_to_contiguous(a) for a in args]
        kwargs = {k: maybe_to_contiguous(v) for k, v in kwargs.items()}
        return fn(*args, **kwargs)

    return wrapper


@torch.fx.wrap
@ensure_contiguous
def fused(x, y):
    out = torch.empty_like(x)
$LAUNCH''',
    "checks_by_name": """
def check(t: torch.Tensor, name: str) -> None:
    if t.ndim > 4:
        raise ValueError("%s has strides %s" % (name, t.stride()))
    if t.numel() == 0:
        raise ValueError("{} has {} dimensions".format(name, t.ndim))


@torch.fx.wrap
def fused(x, y):
    for name, t in (("x", x), ("y", y)):
        check(t, name)
    tensors = {"x": x, "y": y}
    for name, t in tensors.items():
        assert t.dtype == torch.float32, f"{name} is {t.dtype}"
    for i, (name, t) in enumerate([("x", x), ("y", y)]):
        if t.device != x.device:
            raise RuntimeError(f"input {i} ({name}) is on {t.device}")
    out = torch.empty_like(x)
$LAUNCH""",
    "kernel_where_triton_is": '''
HAS_TRITON = hasattr(tl, "program_id")

if HAS_TRITON:

    @triton.jit
    def add_relu_of_rows(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        """A row.

        Indented as the lines around."""
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
        tl.store(out_ptr + i, tl.maximum(total, 0.0), mask=i < n)


@torch.fx.wrap
def fused(x, y):
    if not HAS_TRITON:
        return torch.relu(x + y)
    out, n = torch.empty_like(x), x.numel()
    add_relu_of_rows[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out
''',
    "a_base_and_its_constructor": """
class Operation:
    def __init__(self, block: int):
        super().__init__()
        self.block = block

    def grid(self, n):
        return (triton.cdiv(n, self.block),)


class AddRelu(Operation):
    def __init__(self, block: int = 256, num_warps: int = 4):
        super().__init__(block)
        self.num_warps = num_warps

    def grid(self, n):
        return super().grid(max(n, 1))

    def __call__(self, x, y):
        out = torch.empty_like(x)
        add_relu[self.grid(x.numel())](x, y, out, x.numel(), BLOCK=self.block, num_warps=self.num_warps)
        return out


OPERATION = AddRelu()


@torch.fx.wrap
def fused(x, y):
    return OPERATION(x, y)
""",
    "notes_on_the_error_stream": """
import sys

DEBUG = torch.version.hip is None


@torch.fx.wrap
def fused(x, y):
    if DEBUG:
        print("[fused]", tuple(x.shape), x.stride(), x.dtype, file=sys.stderr, flush=True)
    out = torch.empty_like(x)
$LAUNCH""",
}

BY_MANY = {
    name: (IMPORTS + ADD_RELU + body.replace("$LAUNCH", _LAUNCH).lstrip("\n") + RETURNS).lstrip("\n")
    for name, body in _BODIES.items()
}
