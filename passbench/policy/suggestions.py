"""What a name was probably meant to be: the nearest one that exists, and the import that usually gives a name."""

import difflib
from collections.abc import Collection

USUAL_IMPORTS = {
    "tl": "import triton.language as tl", "triton": "import triton", "torch": "import torch", "math": "import math",
    "F": "import torch.nn.functional as F", "nn": "from torch import nn",
    "Launch": "from passbench.launch import Launch", "captured": "from passbench.launch import captured",
    "branch": "from passbench.launch import branch",
    "libdevice": "from triton.language.extra import libdevice", "functools": "import functools",
}  # fmt: skip
"""What many modules import: name → the import that binds it."""

_LONGEST = 40
_MOST_CANDIDATES = 4000
_ALIKE = 0.7
"""A comparison takes the product of two lengths, for each candidate: names and numbers of them are bounded."""


def nearest(name: str, candidates: Collection[str]) -> str | None:
    """The public candidate that is spelled most like a name; one of the same letters before all others. None if none
    is near, the name is long, or there are too many candidates."""
    if len(name) > _LONGEST or len(candidates) > _MOST_CANDIDATES:
        return None
    public = sorted({c for c in candidates if len(c) <= _LONGEST and c.isidentifier() and c[0] != "_" and c != name})
    same_letters = [c for c in public if sorted(c) == sorted(name)] if len(name) > 2 else []
    cutoff = 0.0 if same_letters else _ALIKE
    return next(iter(difflib.get_close_matches(name, same_letters or public, n=1, cutoff=cutoff)), None)
