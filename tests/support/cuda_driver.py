"""CUDA's driver as far as launches need it, on a machine without one: it notes what a GPU would have run."""

import ctypes
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from passbench.launch.native_launch import native

_int, _unsigned, _long, _pointer, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t
_pointers = ctypes.POINTER(_pointer)
_TYPES = {"O": _pointer, "B": ctypes.c_uint8, "i": _int, "l": ctypes.c_long}


def skip_without_native() -> None:
    """Skip the test where launches in C cannot be built."""
    try:
        native()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        pytest.skip(f"launches in C need gcc and Python's headers: {error}")


class _Parameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = [
        ("function", _pointer),
        ("grid", _unsigned * 3),
        ("threads", _unsigned * 3),
        ("shared", _unsigned),
        ("arguments", _pointers),
        ("extra", _pointers),
        ("kernel", _pointer),
        ("context", _pointer),
    ]


@dataclass(frozen=True)
class Run:
    """A kernel that ran: its function, grid, threads, stream and arguments, and the graph that it is of."""

    function: int
    grid: tuple[int, int, int]
    threads: int
    stream: int | None
    arguments: list[Any]
    graph: int | None = None


@dataclass
class CudaDriver:
    """`kinds` has a letter for each argument of a function. `errors` are answers of the next launches, the last first;
    `refused` names functions that fail; `capturing` is what streams say; `mode` is the thread's, towards captures of
    others; `device` is the current one, None in a thread without a context; `runs` are the kernels that ran, `calls`
    the functions that were called."""

    kinds: Mapping[int, str]
    errors: list[int] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    capturing: int = 0
    mode: int = 0
    device: int | None = 0
    runs: list[Run] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    graphs: dict[int, list[int]] = field(default_factory=dict)
    nodes: dict[int, tuple] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)

    def functions(self) -> Any:
        """The driver as `passbench.launch.native_launch.driver` gives it; this object must live as long."""
        prototypes = (
            ("launch", (_pointer, *[_unsigned] * 7, _pointer, _pointers, _pointer)),
            ("describe", (_int, ctypes.POINTER(ctypes.c_char_p))),
            ("retain", (_pointers, _int)),
            ("set_current", (_pointer,)),
            ("current_device", (ctypes.POINTER(_int),)),
            ("is_capturing", (_pointer, ctypes.POINTER(_int))),
            ("exchange_mode", (ctypes.POINTER(_int),)),
            ("create_graph", (_pointers, _unsigned)),
            ("add_node", (_pointers, _pointer, _pointers, _size, ctypes.POINTER(_Parameters))),
            ("instantiate", (_pointers, _pointer, _long)),
            ("set_parameters", (_pointer, _pointer, ctypes.POINTER(_Parameters))),
            ("launch_graph", (_pointer, _pointer)),
            ("destroy_graph", (_pointer,)),
            ("destroy_exec", (_pointer,)),
        )
        made = [ctypes.CFUNCTYPE(_int, *types)(self._noted(name)) for name, types in prototypes]
        self._kept += made
        return native().Driver(*[ctypes.cast(each, _pointer).value for each in made])

    def _noted(self, name: str) -> Any:
        function = getattr(self, f"_{name}")

        def noted(*given: Any) -> int:
            self.calls.append(name)
            try:
                return 999 if name in self.refused else function(*given) or 0
            except (AssertionError, LookupError):
                return 1  # CUDA_ERROR_INVALID_VALUE; ctypes would go on with 0

        return noted

    def _decoded(self, function: int, arguments: Any) -> list[Any]:
        return [
            ctypes.cast(arguments[n], ctypes.POINTER(_TYPES[kind])).contents.value
            for n, kind in enumerate(self.kinds[function])
        ]

    def _launch(self, function, x, y, z, threads, threads_y, threads_z, shared, stream, arguments, extra):
        if self.device is None:
            return 201
        if self.errors:
            return self.errors.pop()
        assert threads_y == threads_z == 1 and not extra
        self.runs.append(Run(function, (x, y, z), threads, stream, self._decoded(function, arguments)))

    def _describe(self, error, text):
        text[0] = b"a launch that failed"

    def _retain(self, context, device):
        context[0] = 4711 + device

    def _set_current(self, context):
        self.contexts.append(context)
        self.device = context - 4711

    def _current_device(self, device):
        if self.device is None:
            return 201
        device[0] = self.device

    def _is_capturing(self, stream, status):
        status[0] = self.capturing

    def _exchange_mode(self, mode):
        self.mode, mode[0] = mode[0], self.mode

    def _create_graph(self, graph, flags):
        graph[0] = 5000 + len(self.graphs)
        self.graphs[graph[0]] = []

    def _taken(self, given):
        given = given.contents
        assert tuple(given.threads)[1:] == (1, 1) and not (given.extra or given.kernel or given.context)
        return given.function, tuple(given.grid), given.threads[0], self._decoded(given.function, given.arguments)

    def _add_node(self, node, graph, behind, count, given):
        assert [behind[n] for n in range(count)] == self.graphs[graph][-1:]
        node[0] = 9000 + len(self.nodes)
        self.nodes[node[0]] = self._taken(given)
        self.graphs[graph].append(node[0])

    def _instantiate(self, graph_exec, graph, flags):
        assert self.mode == 2, "another thread's capture would be broken"
        graph_exec[0] = graph + 1000

    def _set_parameters(self, graph_exec, node, given):
        assert node in self.graphs[graph_exec - 1000] and self.nodes[node][:3] == self._taken(given)[:3]
        self.nodes[node] = self._taken(given)

    def _launch_graph(self, graph_exec, stream):
        if self.errors:
            return self.errors.pop()
        for node in self.graphs[graph_exec - 1000]:
            function, grid, threads, arguments = self.nodes[node]
            self.runs.append(Run(function, grid, threads, stream, arguments, graph_exec))
        return 0

    def _destroy_graph(self, graph):
        pass

    def _destroy_exec(self, graph_exec):
        pass
