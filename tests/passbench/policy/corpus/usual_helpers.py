"""Honest passes with helpers of many libraries: partial launchers and grids that functions make, enumerations that
parse, strategies behind a protocol, cases of shapes, what is known of a device. `BY_HELPERS`, name → sources, each for
`relu(x + y)`.
"""

from tests.passbench.policy.corpus.honest_habits import ADD_RELU, IMPORTS, RETURNS

_BODIES = {
    "partial_launchers": """
def elementwise_grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def launch(x, y, *, block=1024, num_warps=4):
    out = torch.empty_like(x)
    n = out.numel()
    add_relu[elementwise_grid(n)](x, y, out, n, BLOCK=block, num_warps=num_warps)
    return out


large = functools.partial(launch, num_warps=8)
small = functools.partial(large, block=256, num_warps=2)


@torch.fx.wrap
def fused(x, y):
    op = small if x.numel() < 1 << 14 else large
    return op(x, y)
""",
    "enumeration_that_parses": """
import enum


@enum.unique
class Activation(enum.IntEnum):
    IDENTITY = 0
    RELU = 1
    GELU = 2

    @property
    def is_cheap(self) -> bool:
        return self in (Activation.IDENTITY, Activation.RELU)

    @classmethod
    def parse(cls, name: str) -> "Activation":
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"unknown activation {name!r}; expected one of {[a.name for a in cls]}") from None


@torch.fx.wrap
def fused(x, y):
    out, act = torch.empty_like(x), Activation.parse("relu")
    warps = 4 if act.is_cheap else 8
    add_relu[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512, num_warps=warps)
    return out
""",
    "strategies_by_protocol": """
@typing.runtime_checkable
class Strategy(typing.Protocol):
    def applies(self, x: torch.Tensor) -> bool: ...

    def run(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...


class Eager:
    def applies(self, x):
        return x.numel() < 32

    def run(self, x, y):
        return torch.relu(torch.add(x, y))


class Blocks:
    def __init__(self, block: int = 512) -> None:
        self.block = block
        self.launches = 0

    def applies(self, x):
        return True

    def grid(self, meta):
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    def run(self, x, y):
        self.launches += 1
        out = torch.empty_like(x)
        add_relu[self.grid](x, y, out, n=x.numel(), BLOCK=self.block)
        return out


STRATEGIES: typing.Sequence[Strategy] = (Eager(), Blocks())


@torch.fx.wrap
def fused(x, y):
    return next(one for one in STRATEGIES if one.applies(x)).run(x, y)
""",
    "cases_of_shapes": """
def kind_of(shape) -> str:
    match tuple(shape):
        case ():
            return "scalar"
        case (rows, columns) if rows == columns:
            return "square"
        case (_, _, *rest):
            return f"{len(rest)} more"
        case _:
            return "vector"


@torch.fx.wrap
def fused(x, y):
    assert x.shape == y.shape, f"{x.shape=} is {kind_of(x.shape)}"
    block = 64
    while (programs := triton.cdiv(x.numel(), block)) > 65535:
        block *= 2
    out = torch.empty_like(x)
    add_relu[(programs,)](x, y, out, x.numel(), BLOCK=block)
    return out
""",
    "what_is_known_of_a_device": """
class DeviceInfo:
    _made = {}

    def __init__(self, device):
        self.device = device

    @classmethod
    def of(cls, device):
        key = (device.type, device.index)
        if key not in cls._made:
            cls._made[key] = cls(device)
        return cls._made[key]

    @functools.cached_property
    def programs(self):
        if self.device.type != "cuda":
            return 8
        return 4 * torch.cuda.get_device_properties(self.device).multi_processor_count


@torch.fx.wrap
def fused(x, y):
    n, out = x.numel(), torch.empty_like(x)
    block = max(16, min(4096, triton.next_power_of_2(triton.cdiv(n, DeviceInfo.of(x.device).programs))))
    add_relu[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
""",
}

BY_HELPERS = {name: (IMPORTS + ADD_RELU + body.lstrip("\n") + RETURNS).lstrip("\n") for name, body in _BODIES.items()}
