"""Digests of the modules that decide what a stage makes: `python -m tests.code_digests` notes those of today.

A digest covers a stage's modules and all that they import of this repository, without docstrings, comments and layout,
and the tables that they read. tests/test_code_versions.py compares it with the noted one.
"""

import ast
import hashlib
import json
import sys

from storage.versions.code_version import CODE_VERSIONS
from tests.test_architecture import ALL, ROOT, closure

MODULES = {
    "trace": ("extraction.tracing.trace", "extraction.tracing.trace_files"),
    "cut": ("extraction.cutting.cut", "extraction.cutting.typical", "dedup.hashes", "dedup.rows"),
    "vary": ("extraction.varying.vary", "extraction.cutting.backward", "dedup.hashes", "dedup.rows"),
    "evaluate": ("passbench.bench", "passbench.child.main", "agent.distill.tuned", "agent.llm.author"),
    "unique": ("dedup.unique", "dedup.samples", "dedup.splits"),
}
"""Where each stage of `storage.versions.code_version` begins: what its workers call."""
TABLES = {
    "dedup.signatures": ("dedup/signatures.txt",),
    "passbench.launch.native_launch": tuple(
        sorted(f"passbench/launch/native/{path.name}" for path in (ROOT / "passbench/launch/native").glob("*.c"))
    ),
}
"""Files that a module reads."""
NOT_DECIDING = ("extraction.tracing.trace_workers", "extraction.pool", "storage.versions.code_version")
"""They say when and where work is done, not what comes of it."""
NOTED = ROOT / "tests" / "code_digests.json"


def digest_of(stage: str) -> str:
    """Digest of the code that decides what a stage makes (sha256, hex), of its meaning to Python's parser."""
    digest = hashlib.sha256()
    for name in sorted(closure(MODULES[stage])):
        if name.startswith(NOT_DECIDING):
            continue
        digest.update(f"{name} {_meaning(ALL[name].read_text(encoding='utf-8'))}".encode())
        for table in TABLES.get(name, ()):
            digest.update((ROOT / table).read_bytes())
    return digest.hexdigest()


def _meaning(source: str) -> str:
    """The syntax tree of a source without docstrings: strings that are statements."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def current() -> dict[str, dict[str, object]]:
    """Version and digest of every stage; `python` is the version whose syntax trees they are of."""
    stages = {stage: {"version": CODE_VERSIONS[stage], "digest": digest_of(stage)} for stage in MODULES}
    return {"python": {"version": list(sys.version_info[:2])}, **stages}


if __name__ == "__main__":
    NOTED.write_text(json.dumps(current(), indent=1) + "\n", encoding="utf-8")
