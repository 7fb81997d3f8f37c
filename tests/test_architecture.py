"""The walls between the rooms, as docs/design.md draws them: who imports whom, directly and through others.

Imports are read off the source, those within functions and under `if TYPE_CHECKING` included; nothing is imported.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "passnet": {"flows", "agent", "passbench", "extraction", "dedup", "storage"},
    "flows": {"agent", "passbench", "extraction", "dedup", "storage"},
    "agent": {"passbench", "storage"},  # and of extraction what `LOWERING` needs, see below
    "passbench": {"storage"},
    "extraction": {"storage"},
    "dedup": {"storage"},
    "storage": set(),
}
ROOMS = [room for room in MAY_IMPORT if (ROOT / room).is_dir()]
LOWERING = "extraction.kernels.lowering"
"""The one module of `extraction` that `agent` imports."""

GPU_HOST = ("passbench.bench", "agent.distill.static", "agent.distill.tuned")
"""What runs on a GPU host that has the `GPU_LIBRARIES` alone."""
GPU_HOST_LOADS = ("agent.registry", "agent.run.__main__")
"""What is loaded there, though some of its functions (the author `llm`) need more when they are called."""
GPU_LIBRARIES = {"torch", "triton", "numpy", "pandas", "pyarrow", "sympy"}  # torch brings sympy

NO_PREFECT = ("benchmarks.extraction.trace_corpus", "benchmarks.extraction.corpus_shards")
"""What runs on machines that lack Prefect: tracing, cutting and varying, outside of a flow run."""

MOST_MODULES = 15
"""A folder with more modules than this is two subjects."""


def modules(*tops: str) -> dict[str, Path]:
    """Dotted name → file of every module and package below these folders."""
    found = {}
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PRODUCT = modules(*ROOMS)
ALL = PRODUCT | modules("benchmarks")
PACKAGES = {name for name, path in ALL.items() if path.name == "__init__.py"}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(ALL[name].read_text(encoding="utf-8"))


@cache
def imports(name: str, loading: bool = False) -> frozenset[str]:
    """What a module imports: modules of ours by their full name, of others as they are written.

    `loading`: only what it imports when it is loaded itself, not what its functions or type checkers import.
    """
    found = set()
    for node in at_load(tree(name)) if loading else ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in ALL else node.module)
    return frozenset(found)


def at_load(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        types_only = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        if not types_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_load(child)


def ours(name: str, loading: bool = False) -> set[str]:
    """The modules of this repository that a module imports, and their packages, whose `__init__` runs with them."""
    return {one for used in imports(name, loading) & ALL.keys() for one in (used, *packages_of(used))} - {name}


def packages_of(name: str) -> Iterator[str]:
    parts = name.split(".")
    for end in range(1, len(parts)):
        if ".".join(parts[:end]) in PACKAGES:
            yield ".".join(parts[:end])


def closure(starts: Iterable[str], loading: bool = False) -> set[str]:
    """The modules, and all that they import, directly or through others."""
    reached: set[str] = set()
    ahead = [*starts]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += ours(name, loading)
    return reached


def circles(arrows: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Sets of nodes of which each reaches each other: the strongly connected components of more than one node."""
    reach = {}
    for start in arrows:
        seen: set[str] = set()
        ahead = [*arrows[start]]
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                ahead += arrows.get(node, ())
        reach[start] = seen
    found = {frozenset({a} | {b for b in reach[a] if a in reach.get(b, ())}) for a in reach if a in reach[a]}
    return sorted((circle for circle in found if len(circle) > 1), key=sorted)


def folder_of(name: str) -> str:
    return name if name in PACKAGES else name.rpartition(".")[0]


def children(folder: str) -> dict[str, str]:
    """Module → the child of `folder` that it is, or that it is in: a module or a sub-room."""
    depth = folder.count(".") + 1
    return {name: ".".join(name.split(".")[: depth + 1]) for name in ALL if name.startswith(f"{folder}.")}


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_between_rooms_go_one_way(room):
    for name in modules(room):
        used = {n.split(".")[0] for n in imports(name)} & MAY_IMPORT.keys()
        allowed = MAY_IMPORT[room] | {room} | ({"extraction"} if room == "agent" else set())
        assert used <= allowed, name


def test_the_agent_takes_only_the_lowering_from_extraction():
    for name in modules("agent"):
        assert {n for n in imports(name) if n.split(".")[0] == "extraction"} <= {LOWERING}, name
    behind = {n for n in closure(modules("agent")) if n.startswith("extraction.")}
    assert behind <= closure([LOWERING]), "the agent reaches extraction by another way than the lowering"


def test_nothing_of_the_product_imports_measurements_or_tests():
    for name in PRODUCT:
        assert not {n for n in imports(name) if n.split(".")[0] in ("benchmarks", "tests")}, name


def test_only_flows_imports_prefect():
    for name in PRODUCT:
        if name.split(".")[0] != "flows":
            assert not {n for n in imports(name) if n.split(".")[0].startswith("prefect")}, name
    reached = closure(n for n in PRODUCT if n.split(".")[0] not in ("flows", "passnet"))
    assert not {n for n in reached if n.split(".")[0] == "flows"}


def test_no_import_circle_among_modules():
    found = circles({name: imports(name) & ALL.keys() - {name} for name in ALL})
    assert not found


@pytest.mark.parametrize("folder", sorted(PACKAGES - {"benchmarks"}))
def test_no_circle_among_the_rooms_of_a_folder(folder):
    """A sub-room is one node, with all that is in it; the folder's own modules are nodes of their own."""
    inside = children(folder)
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, child in inside.items():
        for used in imports(name) & inside.keys():
            if inside[used] != child:
                arrows[child].add(inside[used])
    assert not circles(arrows)


@pytest.mark.parametrize("start", (*GPU_HOST, *GPU_HOST_LOADS))
def test_a_gpu_host_needs_only_its_libraries(start):
    loading = start in GPU_HOST_LOADS
    for name in closure([start], loading):
        outside = {n.split(".")[0] for n in imports(name, loading) - ALL.keys()} - set(sys.stdlib_module_names)
        assert outside <= GPU_LIBRARIES, (start, name)


@pytest.mark.parametrize("start", NO_PREFECT)
def test_a_corpus_is_made_without_prefect(start):
    for name in closure([start], loading=True):
        assert not {n for n in imports(name, loading=True) if n.split(".")[0].startswith("prefect")}, (start, name)


def test_every_folder_of_tests_is_looked_into(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    names = {name for folder in folders for name in folder.relative_to(ROOT).parts}
    assert "build" in names and not [name for name in names for pattern in skipped if fnmatch(name, pattern)]


def test_folders_are_small():
    sizes = Counter(folder_of(name) for name in ALL.keys() - PACKAGES)
    assert {folder: n for folder, n in sizes.items() if n > MOST_MODULES} == {}


def test_no_class_name_occurs_twice():
    homes = defaultdict(list)
    for name in PRODUCT:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_every_folder_has_a_face():
    bare = [folder for folder in {folder_of(n) for n in PRODUCT} if folder not in PACKAGES]
    assert not bare, "folders without __init__.py"
    for folder in PACKAGES:
        assert ast.get_docstring(tree(folder)), f"{folder}/__init__.py says nothing"


SUB_ROOMS = sorted(name for name in PACKAGES if "." in name and name.split(".")[0] in ROOMS)


@pytest.mark.parametrize("folder", SUB_ROOMS)
def test_a_sub_room_imports_what_its_face_says(folder):
    """`May import: a, b.` at the end of a sub-room's docstring; a name allows all that is below it."""
    stated = re.search(r"May import: ([^:]*)\.$", " ".join(ast.get_docstring(tree(folder)).split()))
    assert stated, f"{folder}/__init__.py does not end with `May import: …`"
    allowed = [folder, *stated[1].split(", ")]
    assert {one for one in allowed if one not in ALL} == set(), "a face names what is not there"
    for name in ALL:
        if folder_of(name) == folder:
            for used in imports(name) & ALL.keys():
                fits = any(used == one or used.startswith(f"{one}.") for one in allowed)
                assert fits, f"{name} imports {used}: say so in {folder}/__init__.py"
