"""The walls between the rooms, as DESIGN section 2 draws them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("flows", "agent", "passbench", "extraction", "dedup", "storage")
MAY_IMPORT = {
    "flows": {"agent", "passbench", "extraction", "dedup", "storage"},
    "agent": {"passbench", "extraction", "storage"},  # extraction.kernels.lowering alone, see below
    "passbench": {"storage"},
    "extraction": {"storage"},
    "dedup": {"storage"},
    "storage": set(),
}
LLM_LIBRARIES = {"pydantic", "pydantic_ai", "anyio", "httpx2"}  # agent/llm alone
WORKER_LIBRARIES = {"torch", "triton", "numpy", "pandas", "pyarrow", "sympy"}  # sympy is torch's own


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_go_one_way(room):
    for path in files(room):
        used = {name.split(".")[0] for name in imports(path)} & set(ROOMS)
        assert used <= MAY_IMPORT[room] | {room}, path


def test_only_flows_imports_prefect():
    for room in ROOMS[1:]:
        for path in files(room):
            assert not {n for n in imports(path) if n.split(".")[0] == "prefect"}, path


def test_a_gpu_worker_needs_only_the_worker_libraries():
    import sys

    for path in files("passbench") + files("agent") + [ROOT / "extraction" / "lowering.py"]:
        outside = {n.split(".")[0] for n in imports(path)} - set(sys.stdlib_module_names) - set(ROOMS)
        llm = LLM_LIBRARIES if path.is_relative_to(ROOT / "agent" / "llm") else set()
        assert outside <= WORKER_LIBRARIES | llm, path


def test_the_agent_takes_only_the_lowering_from_extraction():
    for path in files("agent"):
        taken = {n for n in imports(path) if n.split(".")[0] == "extraction"}
        assert taken <= {"extraction.kernels.lowering"}, path
