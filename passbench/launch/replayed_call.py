"""The function that `captured` calls for arguments like the last ones: `ReplayedCall` of `native/replayed_call.c`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from passbench.launch.allocation import empty_on_current_device
from passbench.launch.guarded_call import Layout
from passbench.launch.native_launch import native


class Condition(NamedTuple):
    """What a function says where a recording may be replayed."""

    function: Callable[..., Any]
    arguments: tuple
    says: Any


class Replay(NamedTuple):
    """How a graph is replayed: by `launches` on tensors by number, first the `inputs`, then the results, which are
    fresh, then those at `places`, addresses. `owner` keeps the graph and all that it reads."""

    inputs: int
    results: Sequence[Layout]
    single: bool
    places: Sequence[int]
    launches: Any
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
        replay.launches,
        stream,
        empty_on_current_device,
        replay.owner,
        otherwise,
    )
