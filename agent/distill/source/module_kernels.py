"""The kernels of one pass module: their names, their text, and what each is launched with."""

import re

from agent.distill.kernels.emit import KernelSource
from agent.distill.kernels.helpers.table import HELPERS
from agent.distill.kernels.text_template import merge, template
from agent.distill.source.pattern_source import short_names
from agent.distill.source.style import Style
from storage.graph.record import Graph


class ModuleKernels:
    """The kernels of a module. Kernels that differ only in literals become one kernel with more parameters."""

    def __init__(self, graph: Graph, style: Style) -> None:
        self.graph, self.style = graph, style
        self.templates: dict[str, list[str]] = {}
        self.helpers: set[str] = set()
        self.sources: list[str] = []
        self.calls: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
        self.ops: dict[str, tuple[int, ...]] = {}
        self.general: set[str] = set()  # those of other shapes alone

    def add(self, kernel: KernelSource, of_variant: bool = True) -> None:
        key = template(kernel.text)
        if not of_variant and key not in self.templates:
            self.general.add(key)
        texts = self.templates.setdefault(key, [])
        if kernel.text not in texts:
            texts.append(kernel.text)
        self.ops.setdefault(key, kernel.ops)
        self.helpers |= kernel.helpers

    def merge(self) -> None:
        taken: dict[str, int] = {}
        for key, texts in self.templates.items():
            name = self._name(key, taken)
            text, names, rows = merge(texts, _constant_name)
            constants = "".join(f", {n}" if self._is_argument(n) else f", {n}: tl.constexpr" for n in names)
            text = text.replace("KERNEL", name, 1).replace("):\n", f"{constants}):\n", 1)
            self.sources.append(text)
            for original, row in zip(texts, rows, strict=True):
                self.calls[original] = (name, names, row)

    def called(self, kernel: KernelSource) -> tuple[str, dict[str, str]]:
        """The name of a kernel, and the constants that it is launched with."""
        name, constants, row = self.calls[kernel.text]
        return name, dict(zip(constants, row, strict=True))

    def imports(self) -> list[str]:
        """What the kernels need beside Triton's language."""
        used = any("libdevice." in source for source in (*self.sources, *map(HELPERS.get, self.helpers)))
        return ["from triton.language.extra import libdevice"] if used else []

    def _is_argument(self, name: str) -> bool:
        return self.style.general and name.startswith("size_")

    def _name(self, key: str, taken: dict[str, int]) -> str:
        own = (op for op in self.ops[key] if op < len(self.graph.ops))  # behind them: outputs made contiguous
        chosen = Graph(self.graph.inputs, tuple(map(self.graph.ops.__getitem__, own)), None)
        name = "_".join([*short_names(chosen), "kernel", *(["of_any_size"] if key in self.general else [])])
        taken[name] = taken.get(name, 0) + 1
        return name if taken[name] == 1 else f"{name}_{taken[name]}"


def _constant_name(number: int, before: str, literal: str) -> str:
    kind = "dtype" if literal.startswith("tl.") else "size" if re.fullmatch(r"-?\d+", literal) else "number"
    return f"{kind}_{number}"
