"""The function that `captured` calls for arguments like the last ones: `ReplayedCall` of `native/replayed_call.c`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from passbench.launch.allocation import empty_on_current_device
from passbench.launch.guarded_call import Layout, Step
from passbench.launch.native_launch import graph_launch, native


class Condition(NamedTuple):
    """What a function says where a recording may be replayed."""

    function: Callable[..., Any]
    arguments: tuple
    says: Any


class Replay(NamedTuple):
    """How a graph is replayed: `steps` copy tensors by number, first the `inputs`, then the results, which are fresh,
    then those at `places`, addresses. `owner` keeps the graph and all that it reads; `lock` is held meanwhile."""

    inputs: int
    results: Sequence[Layout]
    single: bool
    places: Sequence[int]
    steps: Sequence[Step]
    graph: int
    lock: Any
    owner: Any


def replayed_call(
    replay: Replay,
    same: Callable[..., bool],
    conditions: Sequence[Condition],
    stream: int,
    otherwise: Callable[..., Any],
) -> Callable[..., Any]:
    """A function of so many tensors that returns what the graph computes from them: a tuple, or the `single` result.

    It does so on `stream` if all conditions hold, the tensors are the `same` as those that were recorded, and aligned;
    else it returns what `otherwise` returns for them.
    """
    return native().ReplayedCall(
        replay.inputs,
        same,
        tuple(map(tuple, conditions)),
        tuple(replay.results),
        replay.single,
        tuple(replay.places),
        tuple(map(tuple, replay.steps)),
        (graph_launch(), replay.graph, stream),
        empty_on_current_device,
        replay.lock,
        replay.owner,
        otherwise,
    )
