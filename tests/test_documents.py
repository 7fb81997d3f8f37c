"""What the documents name is there: files, modules, functions, commands. Docstrings are documents too."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = "flows|agent|passbench|extraction|dedup|storage|passnet|benchmarks|notebooks|tests|docs"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("README.md")])
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTION = r"(?<![\w-])--[a-z][\w-]*"
SOURCES = sorted(path for top in TOPS.split("|") for path in (ROOT / top).rglob("*.py"))

ABSENT: set[str] = set()
"""Pages that are being written; to become empty."""


def named_paths(text: str) -> set[str]:
    """Paths from the root of the repository that a text names in backticks or as an argument of python3."""
    found = re.findall(rf"`((?:{TOPS})/[\w./\-]*)`|python3? ((?:{TOPS})/[\w./\-]*)", text)
    return {path.rstrip("./") for pair in found for path in pair if path}


def named_modules(text: str) -> set[str]:
    """Dotted names below the rooms that a text names in backticks or runs with `python -m`."""
    found = re.findall(rf"`((?:{TOPS})(?:\.\w+)+)`|-m ((?:{TOPS})(?:\.\w+)+)", text)
    return {name for pair in found for name in pair if name}


@cache
def members(path: Path) -> set[str]:
    """Names that a module defines or imports, and attributes of its classes as `Class.name`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for name in defined(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in defined(inner)}
    return found


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, a package, or something that one of them defines."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:end])
        module = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
        if module.exists() or place.is_dir():
            rest = ".".join(parts[end:])
            return not rest or (module.exists() and rest in members(module)) or place.joinpath(*parts[end:]).exists()
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_names_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    absent = {path for path in named_paths(text) if not (ROOT / path).exists()}
    assert not absent - ABSENT
    assert not {name for name in named_modules(text) if not exists(name)}
    beside = set(re.findall(r"`(\.\./[\w./\-]+)`", text))
    assert not {path for path in beside if not (page.parent / path).exists()}
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    links = set(re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose))
    gone = {link for link in links if not (page.parent / link).exists()}
    assert not {link for link in gone if (page.parent / link).resolve().relative_to(ROOT).as_posix() not in ABSENT}


def test_docstrings_and_comments_name_what_is_there():
    gone = {}
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        paths = named_paths(text) | set(re.findall(r"docs/[\w\-]+\.md", text))
        absent = {name for name in paths if not (ROOT / name).exists()} - ABSENT
        gone[path] = absent | {name for name in named_modules(text) if not exists(name)}
    assert not {path: names for path, names in gone.items() if names}


def test_the_design_names_every_command():
    from flows.cli.main import main

    table = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## The command line")[2]
    assert not [name for name in main.commands if not re.search(rf"`(passnet )?{name}\b", table)]


def options_of(command: click.Command) -> set[str]:
    """Options that a command takes; of a group those of all its commands."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *map(options_of, inner))


def without_breaks(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_of_a_page_take_the_options_that_it_gives_them(page):
    from flows.cli.main import main

    calls = re.findall(r"\bpassnet ([a-z\-]+)\b([^`\n#|;&]*)", without_breaks(page))
    known = [(main.commands[name], rest) for name, rest in calls if name in main.commands]
    assert not [(c.name, o) for c, rest in known for o in re.findall(OPTION, rest) if o not in options_of(c)]
    scripts = re.findall(rf"python3? -m ((?:{TOPS})[\w.]*)([^`\n#|;&]*)", without_breaks(page))
    assert not [(m, o) for m, rest in scripts for o in re.findall(OPTION, rest) if f'"{o}"' not in source_of(m)]


def source_of(module: str) -> str:
    """The text of a module that `python -m` runs, and of those beside it, which may read its options."""
    place = ROOT.joinpath(*module.split("."))
    return "".join(path.read_text("utf-8") for path in (place if place.is_dir() else place.parent).glob("*.py"))


def test_every_record_has_a_page_that_leads_to_it():
    records = {page for page in (ROOT / "benchmarks").rglob("README.md") if page.parent.name != "version"}
    links = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    }
    assert not {str(page.relative_to(ROOT)) for page in records - links}


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.name)
def test_notebooks_import_what_is_there(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    used = re.findall(rf"^\s*from ((?:{TOPS})[\w.]*) import ([\w, ]+)", code, flags=re.MULTILINE)
    names = {f"{module}.{name.strip()}" for module, listed in used for name in listed.split(",")}
    assert names and not {name for name in names if not exists(name)}


def test_every_page_is_reached_from_the_readme_or_the_design():
    entries = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "docs" / "design.md").read_text("utf-8")
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in entries]


def test_the_readme_is_read_in_five_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
