"""Has nothing of its own."""

from torch import add, relu  # noqa: F401
