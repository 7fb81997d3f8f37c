"""An author's run on samples opened in a directory, where an earlier call may have finished some of them."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.author import Author
from agent.run.evaluation_run import EvaluationRun
from agent.run.identity import note_identity, run_id, run_identity, why_not_continued
from agent.run.progress import Say, log
from passbench.settings import Settings
from storage.records import Sample
from storage.versions.staging import locked


def opened_run(
    author: Author,
    samples: Sequence[Sample],
    attempts: int,
    kind: str,
    settings: Settings,
    root: Path,
    *,
    say: Say = log,
    afresh: bool = False,
) -> EvaluationRun:
    """The run of an author on these samples and this `kind` of device, "cpu" or "cuda", in `root/runs`.

    It goes on where an earlier one that would measure the same stopped, unless `afresh`. Where others of this author
    have finished samples and cannot be gone on with, `say` gets a line that tells why. Raises PassNetError where the
    disk refuses the run's note.
    """
    identity = run_identity(author, samples, attempts, kind, settings)
    name, runs = run_id(identity), root / "runs"
    run = EvaluationRun(name, author, runs / name, attempts, kind == "cuda", root / "authors" / author.name, say)
    if afresh:
        shutil.rmtree(run.directory, ignore_errors=True)
    if not run.directory.exists():
        for line in why_not_continued(runs, identity):
            say(line)
    note_identity(run.directory, identity)
    return run


@contextmanager
def alone(
    author: Author,
    samples: Sequence[Sample],
    attempts: int,
    kind: str,
    settings: Settings,
    root: Path,
    *,
    say: Say = log,
) -> Iterator[None]:
    """One process at a time works on the run that `opened_run` gives for the same: another one waits for the end of
    this block, says so, and finds what is finished. Two at a time would remove each other's passes.

    Raises PassNetError where the directory cannot be written.
    """
    name = run_id(run_identity(author, samples, attempts, kind, settings))
    with locked(
        root / "runs",
        f".{name}.lock",
        waiting=lambda: say(f"another evaluation works on {name}: this one goes on when that has ended"),
    ):
        yield
