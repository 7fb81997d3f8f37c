"""Calls of a pass that are observed instead of timed: what ran inside its replacements is judged."""

from typing import NamedTuple

from passbench.checking.evidence import judge, library_ops
from passbench.contract import PassFiles
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import Observe, Wake
from passbench.ipc.observation import Observation
from passbench.result import VariantFailure
from passbench.workers.worker_pair import SEALED, WorkerPair

_CALLS = 6


class SeenCalls(NamedTuple):
    """What ran inside replacements: operators of the library that computed, and whether a CUDA graph was asked for."""

    library_ops: tuple[str, ...]
    captured: bool


def observe(pair: WorkerPair, files: PassFiles, size: int) -> SeenCalls | None:
    """Refuse a pass that does something else than its sources say, or not the same in every call.

    Makes an exchange of about `size` calls, as a timed one has, with a rehearsed call before the others. A few calls at
    a random place in it are observed. The trial asks for this before the timing and at random moments in it. `files`
    are the pass's validated sources. Returns None if the layer is off. Raises VariantFailure with status "rejected".
    """
    if not pair.layers.has("evidence"):
        return None
    calls = pair.about(size)
    layout = pair.draw(calls, pair.outputs, Distribution.VARIED, like_sealed=SEALED, rehearsed=True)
    seed = pair.rng.getrandbits(32)
    go = pair.stage(pair.candidate, layout, seed, pair.as_timed(seed))
    pair.hand_over(pair.candidate, layout)
    pair.ask(pair.candidate, Wake(), pair.settings.call_timeout)
    observed = min(_CALLS, calls - go.first)
    command = Observe(go, pair.rng.randint(go.first, calls - observed), observed)
    reply = pair.ask(pair.candidate, command, pair.settings.first_call_timeout)
    try:
        observation = Observation.decode(reply.observed)
        reason = judge(observation, files)
    except ValueError as error:
        reason = f"evidence_forged: {error}"
    if reason:
        raise VariantFailure("rejected", reason)
    pair.layers.note("evidence")
    return SeenCalls(library_ops(observation), observation.captured)
