"""What torch imports and looks up, and a warm start never uses: packages are imported when something asks for them."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import torch

LATER = {
    "networkx": ("DiGraph", "torch._functorch._activation_checkpointing.knapsack_evaluator"),
    "redis": ("Redis", "torch._inductor.remote_cache"),
}
"""A package, the class of it that stands in an annotation, and torch's module that imports it.

torch asks networkx for the least memory of a backward, and redis for a cache of another machine. With what they import
they have more modules than all else that torch imports for a graph: 0.4 of 0.75 s on two cores.
"""

REGISTERING = "torch.distributed.tensor.experimental._context_parallel._cp_custom_ops"
"""Dynamo imports this module for every model. It registers operators, for which inspect looks up the module of a file,
and resolves the paths of all modules that there are: 0.3 s on a slow file system. Nothing else in a start asks that."""


class _Later(ModuleType):
    """Stands for a package: the first look at anything in it imports the package."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def import_later() -> None:
    """Import torch's modules of `LATER` without the packages, unless these are imported already.

    In `sys.modules` a package has its place until torch's module is there. A thread that imports it meanwhile gets
    what imports the package at its first use. Of a torch without such a module nothing is imported.
    """
    path = Path(torch.__file__).parent.joinpath(*REGISTERING.split(".")[1:]).with_suffix(".py")
    inspect.modulesbyfile.setdefault(str(path), REGISTERING)
    for package, (annotation, importer) in LATER.items():
        if package in sys.modules or importer in sys.modules or (found := importlib.util.find_spec(package)) is None:
            continue
        later = _Later(package)
        later.__file__ = found.origin  # inspect asks all modules for it
        setattr(later, annotation, object)
        sys.modules[package] = later
        try:
            importlib.import_module(importer)
        except ModuleNotFoundError as error:
            if not error.name or not importer.startswith(error.name):
                raise
        finally:
            delattr(later, annotation)
            if sys.modules.get(package) is later:
                del sys.modules[package]
