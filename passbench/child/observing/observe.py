"""Runs a rewritten graph, and its replacements under the eyes of three watches."""

import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import fx

from passbench.child.observing.depth import DepthWatch
from passbench.child.observing.device import DeviceWatch
from passbench.child.observing.operators import OperatorWatch
from passbench.child.profiled import profiled
from passbench.ipc.observation import Observation


def observe(
    module: fx.GraphModule,
    replacements: Collection[fx.Node],
    calls: Iterable[Sequence[torch.Tensor | int]],
    results: list[Any],
) -> Observation:
    """Run the rewritten graph on the inputs of each call and say what ran inside its `replacements`. What a call
    returns is put into `results`, before the next one's inputs are asked for.

    The module must have run before on inputs of these shapes: a first call also compiles and autotunes, which floods
    the profiler. Inputs are written over where the graph does so. Raises what the pass raises.
    """
    watch = OperatorWatch()
    device = DeviceWatch() if torch.cuda.is_initialized() else None
    depth = DepthWatch()
    runner = _Runner(module, frozenset(replacements), watch, device, depth)
    events = []
    with nullcontext() if device is None else profiled() as profiler:
        for inputs in calls:
            before = watch.events
            results.append(runner.run(*inputs))
            events.append(watch.events - before)
    kernels = None if device is None else device.kernels(profiler)
    return Observation.of(
        watch.operators,
        kernels or (),
        watch.triton_kernels,
        profiled=kernels is not None,
        uneven=len(set(events)) > 1,
        captured=watch.captured,
        deep=depth.deep,
    )


class _Runner(fx.Interpreter):
    """Runs a graph node by node, and the replacements under the eyes of `watch` and `device`.

    A replacement has as many frames left below it as in a timed call, where the graph's own code calls it. A pass
    could count them, by calling itself.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        replacements: frozenset[fx.Node],
        watch: OperatorWatch,
        device: DeviceWatch | None,
        depth: DepthWatch,
    ) -> None:
        super().__init__(module)
        self.extra_traceback = False  # errors of a pass are shown as they are
        self._replacements, self._watch, self._device, self._depth = replacements, watch, device, depth

    def run_node(self, n: fx.Node) -> Any:
        if n not in self._replacements:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        limit = sys.getrecursionlimit()
        with ExitStack() as stack:
            if self._device is not None:
                stack.enter_context(self._device.inside())
            stack.enter_context(self._watch.inside())
            stack.callback(sys.setrecursionlimit, limit)
            sys.setrecursionlimit(limit + self._depth.added())
            stack.enter_context(self._depth.inside())
            return n.target(*args, **kwargs)
