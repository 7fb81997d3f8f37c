"""The layers of integrity (docs/integrity.md): their names, which of them are on, and which have done their work."""

REMOVABLE_LAYERS = frozenset(
    """static_policy output_contract inputs_unchanged fresh_inputs poisoned_outputs late_inputs sealed_calls
    timed_outputs_checked parent_clock evidence bandwidth namespaces kernel_memory""".split()
)
"""Layers that a test can turn off, to show that another one still refuses an attack."""


class Layers:
    """Which layers of integrity one variant's trial applies, and which have done their work. Those in `off` are off."""

    def __init__(self, off: frozenset[str] = frozenset()) -> None:
        self._off = off
        self.seen: list[str] = []

    def has(self, layer: str) -> bool:
        """Whether a layer is to be applied."""
        return layer not in self._off

    def note(self, *layers: str) -> None:
        """Note layers that have done their work. Each is noted once, and none that is off."""
        self.seen += [x for x in layers if self.has(x) and x not in self.seen]
