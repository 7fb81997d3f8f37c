"""How likely a pass that was right in all of an author's draws is wrong in one of PassBench's, by the room it left.

In each draw the largest difference of an element takes a share of what is allowed at t = -5. Where the largest shares
of many draws are 0.31, 0.33 and 0.36, none of hundreds more is likely above 1; where they are 0.4, 0.6 and 0.9, one is.
Shares of the worst tenth of the draws tell how soon larger ones get rarer: they lie above the least of them by an
exponential distribution. In 1,500 to 4,000 draws of `fusible-fcf0d6b7a92f`, `d1d850d11804` and `fda61031b10e` in single
beside double precision, 64 to 400 of them gave a chance that is one to five times the one that all have, in the median.
"""

import math
from collections.abc import Sequence

JUDGED = 1200
"""Calls that PassBench compares, about: 65 in draws, and each one that it times. They were 1,191 in the median of 276
passes, 296 to 1,520 in four of five (`benchmarks/passbench/h100_one_tree`)."""
LEAST = 48
"""With fewer draws nothing is said."""
_WORST, _LEAST_WORST = 0.1, 8
"""The share of the draws that are the worst ones, and how many these are at least."""


def chance_beyond(shares: Sequence[float]) -> float | None:
    """How likely one of `JUDGED` draws has a share beyond 1, where these are the largest shares of so many draws; None
    where they are too few, or one is not known (NaN). The mean that tells is a standard error larger than theirs."""
    if len(shares) < LEAST or any(map(math.isnan, shares)):
        return None
    count = max(_LEAST_WORST, math.ceil(_WORST * len(shares)))
    *worst, least = sorted(shares, reverse=True)[: count + 1]
    if worst[0] > 1.0:
        return 1.0
    above = math.fsum(share - least for share in worst) / count * (1.0 + count**-0.5)
    each = count / len(shares) * math.exp((least - 1.0) / above) if above else 0.0
    return -math.expm1(JUDGED * math.log1p(-each))
