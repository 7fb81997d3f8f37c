"""The library calls that eager makes, as a function of a pass module: what inputs without a plan get."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agent.distill.eager.op_effects import find_effects
from agent.distill.other_inputs.library_calls import LibraryBody, library_body, replayable
from agent.distill.source.pattern_source import parameter_list
from storage.graph.record import Graph
from storage.records import Input

CAPTURED_LAUNCHES, MOST_CAPTURED = 4, 1 << 19
"""Library calls of so many launches at least are replayed as a CUDA graph, for inputs of so many elements at most: a
replay costs the host about what one op of eager does, and the device copies inputs and results, for 1 to 3 us and
longer where tensors are large."""


@dataclass(frozen=True)
class LibraryFunction:
    """The function that a wrapper calls for inputs without a plan.

    `captured`: on small inputs its calls are replayed as a CUDA graph.
    """

    name: str
    graph: Graph
    body: LibraryBody
    captured: bool

    @classmethod
    def of(cls, wrapper: str, graph: Graph, inputs: Sequence[Input], helper: bool) -> Self:
        """That of the wrapper of this name, which computes `graph`. `inputs` are those of a variant.

        In a `helper`, which another module calls, nothing is captured.
        """
        known = find_effects(graph, inputs)
        captured = not helper and sum(known.launches) >= CAPTURED_LAUNCHES and replayable(graph, known)
        return cls(wrapper.replace("fused_", "library_", 1), graph, library_body(graph, known), captured)

    @property
    def source(self) -> str:
        """Source of the function."""
        body = "".join(f"    {line}\n" for line in self.body.lines)
        return f'def {self.name}({parameter_list(self.graph)}):\n    """The same for inputs without a plan."""\n{body}'

    @property
    def call(self) -> str:
        """Lines of the wrapper, within an `if`: they return what the function does."""
        parameters = parameter_list(self.graph)
        text = f"        return {self.name}({parameters})\n"
        if self.captured:
            size = " + ".join(f"{name}.numel()" for name in parameters.split(", "))
            text = (
                f"        if {size} <= {MOST_CAPTURED}:\n            return captured({self.name}, {parameters})\n{text}"
            )
        return text
