"""The hashes of torch's and triton's files, by which TorchInductor's caches are keyed: half a gigabyte in 2,000 files.

A machine computes them once while no file changes, and keeps them in TorchInductor's directory of caches. Whoever can
write there can have code run by whoever uses the caches, with or without that file.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from passbench.models.warm_start.file_hashes import FileHashes

KEYED = ("triton.runtime.cache", "triton.runtime.autotuner", "torch._inductor.runtime.triton_compat")
"""Modules that have a name `triton_key` of their own, and ask it. All others import it from these when they need it."""


class CompilerHashes:
    """The hashes for this process: `take_up` those of an earlier one, or `compute` them."""

    def __init__(self) -> None:
        from torch._inductor.codecache import torch_key
        from torch._inductor.runtime.cache_dir_utils import cache_dir
        from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

        self._torch_key, self._triton_key = torch_key, triton_key if HAS_TRITON else None
        root = Path(torch.__file__).parent
        folders, files = [root], [root / "_inductor/codegen/aoti_runtime/interface.cpp", root / "_inductor/script.ld"]
        if self._triton_key is not None:
            folders.append(Path(sys.modules["triton"].__file__).parent)
            files += folders[1].glob("_C/libtriton.*")
        self._kept = FileHashes(Path(cache_dir()) / "passnet", folders, [file for file in files if file.exists()])

    def take_up(self) -> bool:
        """Whether an earlier process's hashes are believed now: no file has changed since."""
        give = getattr(self._torch_key, "set", None)
        known = None if give is None else self._kept.get()
        if known is None or (self._triton_key is not None) != ("triton" in known):
            return False
        with contextlib.suppress(AssertionError):  # this process has hashed torch's files already
            give(bytes.fromhex(known["torch"]))
        if self._triton_key is not None and not self._triton_key.cache_info().currsize:
            _replace(self._triton_key, known["triton"])
        return True

    def compute(self) -> None:
        """Hash the files, and keep the hashes for later processes."""
        self._kept.put(self._hashes)

    def _hashes(self) -> dict[str, str]:
        found = {"torch": self._torch_key().hex()}
        return found if self._triton_key is None else found | {"triton": self._triton_key()}


def _replace(triton_key: Callable[[], str], known: str) -> None:
    """Have a function in the place of Triton's that gives what is known, as Triton's own does after its first call."""
    knowing = functools.lru_cache(lambda: known)
    knowing()
    for name in KEYED:
        module = sys.modules.get(name)
        if getattr(module, "triton_key", None) is triton_key:
            module.triton_key = knowing
