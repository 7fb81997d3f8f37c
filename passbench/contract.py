"""The pass contract: what a pass directory holds, read by the parent as text and imported by the child.

`sorted_output_pass_rule_names.json` lists module names in the order in which they apply. Each module `NAME.py` has
`pattern(...)`, `replacement_args(...)` with the same parameters, and `replacement_func()`. Other `.py` files are
helpers that the modules import by name.
"""

import functools
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.fx import _symbolic_trace

from storage.errors import PassNetError

NAMES_FILE = "sorted_output_pass_rule_names.json"
PACKAGE = "pass_dir"
"""The package that the modules of a pass belong to, whatever its directory is called: `from pass_dir.shared import f`,
`from . import shared` and `import shared` mean the same module."""
MAX_FILES = 256
MAX_FILE_BYTES = 1 << 20
_LONGEST_NAME = 255
"""Bytes of a file's name, on the file systems of Linux."""


class ContractError(PassNetError):
    """A pass directory that does not follow the contract: says which file and what to do."""


@dataclass(frozen=True)
class PassFiles:
    """The text of a pass directory: module names in order, and `.py` files and the list by name.

    `others` are further files; they are neither read nor given to the child.
    """

    names: tuple[str, ...]
    files: dict[str, str]
    others: tuple[str, ...]

    @property
    def modules(self) -> dict[str, str]:
        """Module name → source, helpers among them."""
        return {name.removesuffix(".py"): text for name, text in self.files.items() if name.endswith(".py")}


def read_pass_dir(directory: str | Path) -> PassFiles:
    """Read a pass directory once, as text; nothing in it is imported.

    Raises ContractError if the list is missing or malformed, names a module that is not there, there are too many
    files, or one is too large, a link, not to be read or not UTF-8, its name included.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ContractError(f"{directory} is not a directory; a pass is a directory with {NAMES_FILE}")
    files: dict[str, str] = {}
    others: list[str] = []
    for path in sorted(directory.iterdir()):
        if path.name == "__pycache__":
            continue
        if path.is_symlink():
            raise ContractError(f"{path} is a link; a pass is made of files")
        if not _is_text(path.name):
            raise ContractError(f"{ascii(path.name)[:80]} is no name in UTF-8; rename the file")
        if len(files) + len(others) == MAX_FILES:
            raise ContractError(f"{directory} has more than {MAX_FILES} files")
        if path.is_file() and (path.suffix == ".py" or path.name == NAMES_FILE):
            files[path.name] = _read(path)
        else:
            others.append(path.name)
    if NAMES_FILE not in files:
        raise ContractError(
            f"{directory / NAMES_FILE} is missing; write a JSON list of the pass's module names, in order"
        )
    names = _names(directory / NAMES_FILE, files[NAMES_FILE])
    for name in names:
        if f"{name}.py" not in files:
            raise ContractError(f"{NAMES_FILE} names {name!r}, but there is no {name}.py beside it")
    return PassFiles(names, files, tuple(others))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ContractError(f"{path} is larger than {MAX_FILE_BYTES} bytes; a pass is source code")
        return path.read_text("utf-8-sig")  # some editors begin a file with the mark of its encoding
    except UnicodeDecodeError as error:
        raise ContractError(f"{path} is not UTF-8: {error}") from None
    except OSError as error:
        raise ContractError(f"{path} cannot be read: {error.strerror}") from None


def _is_text(text: str) -> bool:
    """Whether a text can be written: one half of a surrogate pair cannot, nor can a table of results hold it."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _names(path: Path, text: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{path} is not JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise ContractError(f'{path} must be a JSON list of module names, such as ["fuse_add_relu"]')
    if not names:
        raise ContractError(f"{path} names no module; list at least one")
    if len(set(names)) != len(names):
        raise ContractError(f"{path} names a module twice; list each once")
    return tuple(names)


def write_pass_dir(files: dict[str, str], directory: Path) -> None:
    """Write a pass's files into a new directory. Raises ContractError for a name that is a path or too long, and for
    what is no text: files of a library or a table of results come from anybody."""
    for name, text in files.items():
        if not name or name.startswith(".") or "/" in name or "\\" in name or "\0" in name or not _is_text(name):
            raise ContractError(f"{name[:80]!r} is no name of a file of a pass")
        if len(name.encode()) > _LONGEST_NAME:
            raise ContractError(f"{name[:80]!r}… is longer than {_LONGEST_NAME} bytes; choose a shorter name")
        if not _is_text(text):
            raise ContractError(f"{name} has half of a surrogate pair, which no file can hold; remove it")
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text, "utf-8")


@dataclass(frozen=True)
class PassRule:
    """One imported module of a pass."""

    name: str
    pattern: Callable
    replacement_args: Callable
    replacement: Callable
    parameters: tuple[str, ...]


class Picked:
    """Stands for a parameter in `replacement_args`, which may hand it on and nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


def load_rules(directory: Path, names: tuple[str, ...]) -> list[PassRule]:
    """Import a pass's modules, in order. Executes pass code: for the child alone.

    They are imported as modules of the package `PACKAGE`, and known by their bare names too. Those of a pass that was
    loaded before are forgotten, and so is what they add to `sys.path`. Raises
    ContractError on a module that cannot be imported or does not follow the contract.
    """
    _open_package(Path(directory))
    path = list(sys.path)
    try:
        return [_rule(_import(name), name) for name in names]
    finally:
        sys.path[:] = path


def check_names_free(directory: Path) -> None:
    """Raise ContractError if this process has loaded a module of the name of one of a pass's, which `import NAME` would
    find in its place: `__main__`, or one that a library has made without a file. Those of passes are none."""
    passes = {name for finder in sys.meta_path if isinstance(finder, _Siblings) for name in finder.found}
    for file in sorted(Path(directory).glob("*.py")):
        if file.stem in sys.modules and file.stem not in passes:
            raise ContractError(f"{file.name} has the name of a module that Python has loaded already; rename the file")


@contextmanager
def loaded_rules(directory: Path, names: tuple[str, ...]) -> Iterator[list[PassRule]]:
    """Yields `load_rules` for use inside the block alone. A process that tries many passes uses it.

    torch.fx keeps every function that `torch.fx.wrap` decorates, with its module, and replaces all of them for the time
    of each trace. Those of this pass are taken out of its list after the block.
    """
    wrapped = _symbolic_trace._wrapped_fns_to_patch
    before = set(wrapped)
    try:
        yield load_rules(directory, names)
    finally:
        for key in wrapped.keys() - before:
            if wrapped[key].get("__name__", "").partition(".")[0] == PACKAGE:
                del wrapped[key]


def _open_package(directory: Path) -> None:
    """Make a directory the package `PACKAGE`, and its modules known by their bare names, behind all other modules: a
    pass cannot stand in for a library."""
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _Siblings)]:
        sys.meta_path.remove(finder)
        for name in finder.found:
            sys.modules.pop(name, None)
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    package = ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules[PACKAGE] = package
    place = sys.meta_path.index(PathFinder)  # before `sys.path`, to which a pass may add its own directory
    sys.meta_path.insert(place, _Siblings(directory))


class _Source(SourceFileLoader):
    """Loads a module from its source alone. Compiled code that lies beside it is neither read, since it may be that of
    another source, nor written."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Siblings(MetaPathFinder, Loader):
    """Finds the modules `pass_dir.NAME`, and `NAME` as the same: both are one object."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self.found: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package == PACKAGE:
            file = self._directory / f"{name}.py"
            if not file.is_file():
                return None
            return spec_from_file_location(fullname, file, loader=_Source(fullname, str(file)))
        if "." in fullname or not (self._directory / f"{fullname}.py").is_file():
            return None
        self._leave_path()
        if PathFinder.find_spec(fullname) is not None or not self._is_for_the_pass():
            return None
        self.found.add(fullname)
        return ModuleSpec(fullname, self)

    def _leave_path(self) -> None:
        """Take the pass's directory off `sys.path`: libraries would find its modules there, and call what they have."""
        own = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) == str(self._directory)]
        for entry in own:
            sys.path.remove(entry)

    def _is_for_the_pass(self) -> bool:
        """Whether code of the pass imports. Libraries look for optional packages, whose names a pass may have."""
        frame = sys._getframe(2)
        while frame.f_globals.get("__name__", "").startswith("importlib."):
            frame = frame.f_back
        return frame.f_globals.get("__name__", "").partition(".")[0] in {PACKAGE, *self.found}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{PACKAGE}.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state  # it has been executed under its other name


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{PACKAGE}.{name}")
    except BaseException as error:  # a pass can raise anything while it is imported, SystemExit too
        raise ContractError(f"{name}.py cannot be imported: {type(error).__name__}: {error}") from error


def _rule(module: ModuleType, name: str) -> PassRule:
    functions = {}
    for needed in ("pattern", "replacement_args", "replacement_func"):
        function = getattr(module, needed, None)
        if not isinstance(function, FunctionType):
            raise ContractError(f"{name}.py has no function {needed}(); the contract needs it")
        functions[needed] = function
    parameters = _parameters(functions["pattern"], name)
    if _parameters(functions["replacement_args"], name) != parameters:
        raise ContractError(
            f"{name}.py: replacement_args must have pattern's parameters, ({', '.join(parameters)}), in that order"
        )
    if _parameters(functions["replacement_func"], name):
        raise ContractError(f"{name}.py: replacement_func takes no arguments")
    replacement = _as_function(returned := functions["replacement_func"]())
    if replacement is None:
        raise ContractError(f"{name}.py: replacement_func() must return a function, not {type(returned).__name__}")
    return PassRule(name, functions["pattern"], functions["replacement_args"], replacement, parameters)


def _as_function(value: Any) -> FunctionType | None:
    """A function that does what `replacement_func` has returned: a function, `functools.partial` of one, a bound method
    or an instance with `__call__`; None for anything else, such as a built-in of torch."""
    called = value
    while isinstance(called, functools.partial):
        called = called.func
    if isinstance(called, FunctionType):
        known = True
    elif isinstance(called, MethodType):
        known = isinstance(called.__func__, FunctionType)
    else:
        own = type(called).__module__.partition(".")[0] == PACKAGE
        known = own and any(isinstance(vars(one).get("__call__"), FunctionType) for one in type(called).__mro__)
    if not known:
        return None

    def replacement(*arguments: Any) -> Any:
        return value(*arguments)

    plain = isinstance(value, FunctionType) and value.__name__.isidentifier()  # a lambda has no name that fx can write
    return value if plain else replacement


def _parameters(function: FunctionType, name: str) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            raise ContractError(
                f"{name}.py: parameter {parameter} of {function.__name__} must be plain, without default"
            )
    return tuple(parameter.name for parameter in parameters)


def picked_args(rule: PassRule) -> tuple:
    """What `replacement_args` hands to the replacement: a tuple of `Picked` parameters and literals, and of tuples,
    lists and dicts of such.

    Raises ContractError if it returns anything else.
    """
    values = rule.replacement_args(*(Picked(name) for name in rule.parameters))
    if not isinstance(values, tuple | list):
        raise ContractError(f"{rule.name}.py: replacement_args must return a tuple, not {type(values).__name__}")
    for value in values:
        _check_picked(value, rule.name)
    return tuple(values)


_LITERALS = (bool, int, float, str, torch.dtype, torch.device, torch.memory_format)


def _check_picked(value: Any, name: str) -> None:
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        _check_picked([*value.values()], name)
    elif isinstance(value, tuple | list):
        for item in value:
            _check_picked(item, name)
    elif value is not None and type(value) not in (Picked, *_LITERALS):
        raise ContractError(
            f"{name}.py: replacement_args may return its parameters and literals, not {type(value).__name__}"
        )
