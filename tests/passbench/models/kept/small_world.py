"""A model whose forward reads Python of all kinds, each of which a test changes."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn

FACTOR = 2.0
REGISTRY = {"kind": torch.relu}


def scaled(x: torch.Tensor, by: float = 3.0) -> torch.Tensor:
    return x * by


def adding(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + number

    return add


ADD = adding(1.0)


class Slotted:
    """Has no dictionary."""

    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by


class Shifted:
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.125


class ShiftedMore:
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.25


SLOTTED, SHIFTED = Slotted(2.0), Shifted()


class Halved(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


class Reading(nn.Module):
    """Reads a global, a registry, a function and its default, a closure, a configuration and attributes of its own."""

    sign = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.config = SimpleNamespace(deep=SimpleNamespace(shift=0.5))
        self.sizes = [2, 2]
        self.register_buffer("missing", None)
        self.scale = nn.Parameter(torch.ones(4))
        self.scale.times = 3.0
        self.queue, self.chosen = deque([1.5]), {"doubled"}

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.config.deep.shift

    def forward(self, x: torch.Tensor, *, twice: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        x = REGISTRY["kind"](self.first(x)) * FACTOR * self.sign
        x = ADD(scaled(self.middle(x)))
        x = SHIFTED.of(x) * SLOTTED.by * self.queue[0] * self.scale * self.scale.times
        if "doubled" in self.chosen:
            x = x * 2
        x = x.where(x.__ge__(-9.0), x)  # a method that stored graphs spell otherwise
        if twice:
            x = x + x
        if self.missing is not None:
            x = x + self.missing
        return self.second(x).view(-1, *self.sizes), x
