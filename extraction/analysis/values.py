"""What propagation says about the values of a graph."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: dtype by name, shape and stride in elements; tensors with the same `storage` number share memory."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage: int

    @property
    def storages(self) -> frozenset[int]:
        return frozenset((self.storage,))

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class OtherValue:
    """Not a tensor: a number, None, or a tuple or list, with the storages of the tensors in it."""

    kind: str
    storages: frozenset[int]


ValueInfo = TensorValue | OtherValue
