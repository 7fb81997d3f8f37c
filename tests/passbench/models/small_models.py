"""Small models, each with one thing that a compiler of whole models must get right."""

import torch
import torch.nn.functional as F
from torch import nn


class Convolutional(nn.Module):
    """A batch norm behind a convolution, parallel linear layers, a table that depends on parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        self.query, self.key = nn.Linear(8, 4), nn.Linear(8, 4)
        self.table = nn.Parameter(torch.randn(20))
        self.register_buffer("index", torch.arange(8))

    def forward(self, x: torch.Tensor) -> dict:
        pooled = torch.relu(self.norm(self.conv(x))).mean((2, 3)) + self.table[self.index * 2].softmax(0)
        return {"sum": self.query(pooled) + self.key(pooled), "given": x, "rest": [pooled, 3]}


class Counting(nn.Module):
    """Changes a Python number in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2


class Flagged(nn.Module):
    """Sets a flag while it runs, and resets it."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.busy = True
        y = x * 2
        self.busy = False
        return y


class Caching(nn.Module):
    """Keeps a tensor from its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "table" not in self.kept:
            self.kept["table"] = torch.arange(x.shape[-1]).to(x)
        return x + self.kept["table"].cos()


class Breaking(nn.Module):
    """A graph break: Python needs a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum().item() > 0:
            return x * 2
        return x - 1


class Writing(nn.Module):
    """Writes to its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


class Dropping(nn.Module):
    """Draws random numbers in training mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, self.training)


class Skipping(nn.Module):
    """Draws a number for each layer, which decides in training mode alone whether the layer is skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            chance = torch.rand([])
            if not (self.training and chance < 0.5):
                x = layer(x)
        return x


class Viewing(nn.Module):
    """Gives a view of its input, and two outputs that share memory."""

    def forward(self, x: torch.Tensor) -> tuple:
        y = x * 2
        return x[0], y, y.view(-1)


class Inside(nn.Module):
    """Writes in place to values of its own, between layers that read the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        a = self.first(y)
        y += 1
        mask = torch.zeros(4, device=x.device)
        mask[0] = 1.0
        return a + self.second(y) * mask


class Residual(nn.Module):
    """Two places that a pass for `relu(x + y)` matches; in the second, y is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.layer(x)) * 2 + torch.relu(self.layer(x) + 1)
