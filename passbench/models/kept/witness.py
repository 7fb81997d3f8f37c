"""What a capture depended on, and whether it is the same in this process.

Dynamo guards everything that it reads of Python. Each thing that it guarded is a path from the model, from the call or
from a module, and a text of what stood there. All code that dynamo traced must be among the functions and classes that
these texts are of, or be torch's or Python's own, whose versions are compared; else there is no witness. What dynamo
takes for granted is in `state_of`: torch's settings, the model's modules, which tensors are one.
"""

import builtins
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
import torch._dynamo.config
import torch.utils._device
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten

from passbench.models.kept.paths import PathTable, UnknownPath, walk
from passbench.models.kept.portable import Portable, tensor_text
from passbench.models.model_capture import Read

PLAIN = (bool, int, float, str, type(None))
"""What a call may have besides tensors."""


class NoWitness(ValueError):
    """The capture depends on something that another process cannot compare; the message says on what."""


@dataclass(frozen=True)
class Witness:
    """`steps` as in `paths`; `told`: the numbers of those that dynamo guarded, with the texts of what stood there."""

    steps: list
    told: list

    def compare(self, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The first thing that is not as it was, empty if all are, and what the steps lead to. Raises UnknownPath on
        steps that are none."""
        values = walk(self.steps, {"model": model, "args": args, "kwargs": kwargs})
        portable = Portable()
        for number, text in self.told:
            if portable.text(values[number]) != text:
                return f"{self.steps[number]} is {portable.text(values[number])}, it was {text}", values
        return "", values


def witness_of(read: Read, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Witness:
    """The witness of a capture that was just made. Raises NoWitness."""
    table, portable = PathTable(dict(_modules(read.names))), Portable()
    try:
        numbers = dict.fromkeys(table.add(each) for each in sorted(read.expressions) if each)
    except UnknownPath as error:
        raise NoWitness(f"dynamo read {error}") from None
    roots = {"model": model, "args": args, "kwargs": kwargs}
    values = walk(table.steps, roots)
    told = [[number, portable.text(values[number])] for number in numbers]
    left = [code for code in read.code if not _is_pinned(code) and Portable().code(code) not in portable.codes]
    for code in left:
        number = _place_of(code, table)
        told.append([number, portable.text(walk(table.steps, roots)[number])])
        if Portable().code(code) not in portable.codes:
            raise NoWitness(f"the code of {code.co_qualname} is not found where its name says")
    return Witness(table.steps, told)


def _modules(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The modules that dynamo's globals stand for."""
    for name, value in names.items():
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            yield name, value.__name__
        elif value is vars(builtins):
            yield name, "builtins()"


_TORCH, _STANDARD = (str(Path(each).resolve()) + "/" for each in (torch.__path__[0], sysconfig.get_paths()["stdlib"]))


def _is_pinned(code: CodeType) -> bool:
    """Whether the code is torch's or Python's."""
    if code.co_filename.startswith("<frozen"):
        return True
    path = str(Path(code.co_filename).resolve())
    return path.startswith(_TORCH) or (path.startswith(_STANDARD) and "-packages/" not in path)


def _place_of(code: CodeType, table: PathTable) -> int:
    """The step at which a traced function is by its own name, or the one in which it was defined."""
    found = [name for name, each in tuple(sys.modules.items()) if getattr(each, "__file__", None) == code.co_filename]
    if not found:
        raise NoWitness(f"the code of {code.co_qualname} is in no module")
    return table.add_module(found[0], code.co_qualname.partition(".<locals>")[0].split("."))


_SETTINGS = re.compile(
    r"_get_(\w+_enabled|cudnn_\w+|cublas_\w+|\w*allow_\w+|deterministic\w*|\w*precision|\w*backend\w*)"
)


def state_of(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> list[Any]:
    """What a capture depends on without a guard, as plain data. Raises NoWitness."""
    return [_versions(), _torch_settings(), _call(args, kwargs), _modules_of(model), _shared(model, args, kwargs)]


def _versions() -> list[str]:
    return [platform.python_implementation(), sys.version, torch.__version__, str(torch.version.git_version)]


def _torch_settings() -> list[Any]:
    if torch.overrides._get_current_function_mode_stack() or _get_current_dispatch_mode_stack():
        raise NoWitness("a mode of torch is active")
    if torch.utils._device.CURRENT_DEVICE is not None:
        raise NoWitness("a default device is set")
    dynamo = torch._dynamo.config.save_config_portable()
    told = sorted([name, sorted(map(repr, x)) if isinstance(x, set) else repr(x)] for name, x in dynamo.items())
    found: list[Any] = [torch._C._dynamo.guards.GlobalStateGuard().__getstate__(), told]
    for name in sorted(filter(_SETTINGS.fullmatch, dir(torch._C))):
        try:
            found.append([name, str(getattr(torch._C, name)())])
        except (TypeError, RuntimeError):  # takes arguments, or is for another build
            found.append([name, ""])
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    found += [torch.is_inference_mode_enabled(), __debug__, torch.cuda.is_available(), torch.cuda.is_initialized()]
    found += [[torch.distributed.get_rank(), torch.distributed.get_world_size()] if distributed else []]
    if torch.cuda.is_available():
        found += [torch.cuda.device_count(), torch.cuda.current_device(), torch.cuda.get_device_capability()]
    return found


def _call(args: tuple, kwargs: Mapping[str, Any]) -> list[Any]:
    leaves, spec = tree_flatten((args, dict(kwargs)))
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) and type(leaf) not in PLAIN:
            raise NoWitness(f"the call has a {type(leaf).__qualname__}")
    return [str(spec), [tensor_text(x) if isinstance(x, torch.Tensor) else repr(x) for x in leaves]]


_HOOKS = re.compile(r"_(forward|backward)\w*hooks\w*")


def _modules_of(model: torch.nn.Module) -> list[Any]:
    """Each module with its class and its attributes; what these hold in turn is in the witness where it was read."""
    portable, found = Portable(), []
    for name, module in model.named_modules(remove_duplicate=False):
        said = {}
        for key, value in vars(module).items():
            if _HOOKS.fullmatch(key) and isinstance(value, Mapping):
                if value:
                    raise NoWitness(f"{name or 'the model'} has {key}")
            elif "hooks" in key:  # of loading and saving
                continue
            elif key in ("_parameters", "_buffers"):
                said[key] = [[each, None if x is None else tensor_text(x)] for each, x in value.items()]
            elif key == "_modules":
                said[key] = [[each, x is None] for each, x in value.items()]
            else:
                said[key] = portable.text(value)
        found.append([name, portable.text(type(module)), said])
    return found


def _shared(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> list[int]:
    """For each module and tensor, in order, the number of the first that is the same object; of tensors also of the
    first in the same memory."""
    objects: list[Any] = [module for _, module in model.named_modules(remove_duplicate=False)]
    tensors = list(_tensors(model, args, kwargs))
    memory = [x.untyped_storage()._cdata for x in tensors if x.layout == torch.strided and not x.is_nested]
    return firsts(map(id, [*objects, *tensors])) + firsts(memory)


def _tensors(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    for _, module in model.named_modules(remove_duplicate=False):
        for group in (module._parameters, module._buffers, vars(module)):
            yield from (x for x in group.values() if isinstance(x, torch.Tensor))
    yield from (x for x in tree_flatten((args, dict(kwargs)))[0] if isinstance(x, torch.Tensor))


def firsts(values: Iterable[int]) -> list[int]:
    """For each value, the number of the first that is equal to it."""
    first: dict[int, int] = {}
    return [first.setdefault(value, number) for number, value in enumerate(values)]
