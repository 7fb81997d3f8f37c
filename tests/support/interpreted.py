"""Programs with kernels for Triton's interpreter, which reads them from a file."""

from collections.abc import Iterable
from pathlib import Path

from tests.support.forked_programs import Run


def answers_of(script: str, expressions: Iterable[str], directory: Path, run: Run) -> dict[str, str]:
    """What a process with the interpreter prints for each expression after this script, which is written below
    `directory`."""
    asked = list(expressions)
    path = directory / "kernels.py"
    path.write_text(script + "\n".join(f"print(({expression}))" for expression in asked))
    environment = {"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "HOME": str(directory)}
    done = run(f"import runpy; runpy.run_path({str(path)!r})", environment)
    assert done.returncode == 0, done.stderr
    return dict(zip(asked, done.stdout.splitlines(), strict=True))
