"""Honest passes with habits of compiler engineers: constants in classes, data classes of arguments, own errors, partial
operators, tables of overloads, assembly in blocks. `HABITS`, name → sources, each for `relu(x + y)`.
"""

IMPORTS = """
import dataclasses
import functools
import typing

import torch
import triton
import triton.language as tl
"""
ADD_RELU = '''

def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """One block of relu(x + y)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(total, 0.0), mask=i < n)


'''
RETURNS = """

def replacement_func():
    return fused
"""
_BODIES = {
    "constants_of_a_class": '''
class Limits:
    """Sizes of launches; each is made of those before."""

    WARP = 32
    WARPS = 4
    THREADS = WARP * WARPS
    BLOCKS = [THREADS, THREADS * 2]
    LARGEST = BLOCKS[-1]


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    block = Limits.LARGEST if x.numel() > Limits.THREADS else Limits.BLOCKS[0]
    add_relu[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block, num_warps=Limits.WARPS)
    return out
''',
    "data_class_of_arguments": '''
@dataclasses.dataclass
class Arguments:
    """What a launch gets."""

    x: torch.Tensor
    y: torch.Tensor
    n: int
    out: typing.Optional[torch.Tensor] = None


def launch(arguments: Arguments) -> torch.Tensor:
    out = torch.empty_like(arguments.x)
    add_relu[(triton.cdiv(arguments.n, 128),)](arguments.x, arguments.y, out, arguments.n, BLOCK=128)
    return out


@torch.fx.wrap
def fused(x, y):
    arguments = Arguments(x=x.contiguous(), y=y.contiguous(), n=x.numel())
    if arguments.n == 0:
        return torch.empty_like(x)
    return launch(arguments)
''',
    "sizes_in_a_frozen_class": '''
@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    block: int = 256
    warps: int = dataclasses.field(default=4)

    @property
    def threads(self) -> int:
        return self.warps * 32

    @classmethod
    def of(cls, n: int) -> "Tile":
        return cls(block=max(16, min(1024, triton.next_power_of_2(n))))


@functools.lru_cache(maxsize=None)
def grid_of(tile: Tile, n: int) -> tuple[int, ...]:
    return (triton.cdiv(n, tile.block),)


@torch.fx.wrap
def fused(x, y):
    tile, out = Tile.of(x.numel()), torch.empty_like(x)
    add_relu[grid_of(tile, x.numel())](x, y, out, x.numel(), BLOCK=tile.block, num_warps=tile.warps)
    return out
''',
    "errors_of_its_own": '''
class UnsupportedError(ValueError):
    """Shapes or dtypes that the kernel does not take."""


def check(x, y):
    if x.shape != y.shape:
        raise UnsupportedError(f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype not in (torch.float32, torch.float16):
        raise TypeError(f"dtype {x.dtype!s} is not supported")


@torch.fx.wrap
def fused(x, y):
    try:
        check(x, y)
    except (UnsupportedError, TypeError) as error:
        raise RuntimeError(f"cannot fuse: {error}") from error
    out = torch.empty_like(x)
    add_relu[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
''',
    "partial_operator": '''
positive = functools.partial(torch.clamp, min=0.0)


@torch.fx.wrap
def fused(x, y):
    """Clamp the sum at zero."""
    return positive(x + y)
''',
    "table_of_launchers": '''
def small(x, y, out, n):
    add_relu[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)


def large(x, y, out, n):
    add_relu[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024, num_warps=8)


LAUNCHERS: dict[str, typing.Callable] = {"small": small, "large": large}


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    LAUNCHERS["small" if (n := x.numel()) <= 4096 else "large"](x, y, out, n)
    return out
''',
    "table_of_overloads": '''
STEPS = {"add": torch.ops.aten.add.Tensor, "act": torch.ops.aten.relu.default}


@torch.fx.wrap
def fused(x, y):
    total = STEPS["add"](x, y)
    return STEPS["act"](total)
''',
    "assembly_in_a_block": '''
@triton.jit
def by_assembly(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    result = tl.inline_asm_elementwise(
        asm="""
        {
        // what is positive stays
        .reg .f32 zero;
        mov.f32 zero, 0f00000000;
        max.f32 $0, $1, zero;
        }
        """,
        constraints=("=f,"  # the result
                     "f"),
        args=[total],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(out_ptr + i, result, mask=i < n)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    kernel = by_assembly if x.is_cuda else add_relu
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
''',
    "methods_named_as_launches_are": '''
class FusedAddReLU:
    BLOCK = 256

    def __init__(self, num_warps: int = 4):
        self.num_warps = num_warps
        self._kernel = add_relu
        self._cache = {}

    def _grid(self, n):
        if n not in self._cache:
            self._cache[n] = (triton.cdiv(n, self.BLOCK),)
        return self._cache[n]

    def _launch(self, x, y, out):
        add_relu[self._grid(x.numel())](x, y, out, x.numel(), BLOCK=self.BLOCK, num_warps=self.num_warps)
        return out

    def __call__(self, x, y):
        return self._launch(x, y, torch.empty_like(x))


OPERATION = FusedAddReLU(num_warps=4)


@torch.fx.wrap
def fused(x, y):
    return OPERATION(x, y)
''',
    "a_tensor_and_sizes_of_one_function": '''
def flattened(x):
    """The tensor as rows, with their number and their length."""
    if x.dim() == 1:
        return x.view(1, -1), 1, x.numel()
    rows = x.reshape(-1, x.shape[-1])
    return rows, rows.shape[0], rows.shape[1]


def together(x, y):
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return x.expand(shape), y.expand(shape), functools.reduce(lambda a, b: a * b, shape, 1)


@torch.fx.wrap
def fused(x, y):
    x, y, total = together(x, y)
    if total == 0:
        return torch.empty_like(x)
    rows, height, width = flattened(x)
    out = torch.empty_like(rows)
    add_relu[(triton.cdiv(height * width, 256),)](rows, y, out, height * width, BLOCK=256)
    return out.view(x.shape)
''',
    "writes_to_what_it_has_made": '''
@torch.fx.wrap
def fused(x, y):
    return (x + y).relu_()
''',
    "names_for_types": '''
Shape = tuple[int, ...]
Number = int | float
Size = int | tuple[int, ...] | None
Sizes = dict[torch.dtype, list[int]]


class Plan(typing.NamedTuple):
    grid: Shape
    block: int


def planned(n: Number) -> Plan:
    return Plan(grid=(triton.cdiv(n, 256),), block=256)


@torch.fx.wrap
def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    plan, out = planned(x.numel()), torch.empty_like(x)
    add_relu[plan.grid](x, y, out, x.numel(), BLOCK=plan.block)
    return out
''',
}  # fmt: skip

HABITS = {name: (IMPORTS + ADD_RELU + body.lstrip("\n") + RETURNS).lstrip("\n") for name, body in _BODIES.items()}
