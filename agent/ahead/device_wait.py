"""What the GPU takes for launches that the host hands over while it waits."""

from collections.abc import Callable

import torch

_LATE = 3
"""How often that is repeated if the host was late."""


def microseconds(prepare: Callable[[], Callable[[], object]], cycles: float, most_cycles: float) -> float:
    """Microseconds of the current GPU from the first to the last launch of the function that `prepare` returns.

    That is called when nothing else is under way, while the GPU waits for so many `cycles` of its clock. Where the GPU
    did not wait until all was handed over, which other processes cause, all is done again, `prepare` included, and the
    GPU waits twice as long, up to `most_cycles`. The last time counts in any case.
    """
    for _ in range(1 + _LATE):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        launch = prepare()
        torch.cuda.synchronize()
        torch.cuda._sleep(int(min(cycles, most_cycles)))
        begin.record()
        launch()
        end.record()
        in_time = not begin.query()
        torch.cuda.synchronize()
        if in_time:
            break
        cycles *= 2
    return 1000.0 * begin.elapsed_time(end)
