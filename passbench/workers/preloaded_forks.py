"""Processes that are forks of one, which has imported what they need: a new interpreter takes seconds to import torch.

The one that they are forks of starts with the first of them. It touches no GPU, since CUDA does not survive a fork.
Nor may it import what asks how many GPUs there are, as `torch._inductor` does: torch then refuses CUDA to every fork.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext

_MODULES: list[str] = []


def forks_with(*modules: str) -> ForkServerContext:
    """The context of `multiprocessing` whose processes are forks; `modules` are imported before the first of them.

    All callers share one process to fork from. A fork's environment is this process's as it was when the first started.
    """
    context = multiprocessing.get_context("forkserver")
    _MODULES.extend(name for name in modules if name not in _MODULES)
    context.set_forkserver_preload(_MODULES)
    return context
