"""The command line: thin over the flows and the rooms. `SECTIONS` names all commands.

Progress goes to standard error, results to standard output, as text or (`--json`) as one JSON document. Exit status:
0 done, 1 failed with one line that says what and what to do, 2 usage, 3 a benchmark whose pass matched nothing, 130
interrupted.
"""

import atexit
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from flows import DEFAULT_DATA
from flows.cli.llm_options import llm_options
from flows.cli.models.commands import COMMANDS as MODEL_COMMANDS
from flows.cli.options import (
    author_option,
    data_option,
    data_or_url_option,
    devices_option,
    emit,
    flush_option,
    json_option,
    limit_option,
    protocol_option,
    rerun_option,
    runner_option,
    version_option,
    workers_option,
)
from flows.cli.progress_display import progress_shown
from flows.cli.samples.commands import COMMANDS as SAMPLE_COMMANDS
from flows.cli.score_commands import COMMANDS as SCORE_COMMANDS
from flows.cli.versions.commands import COMMANDS as VERSION_COMMANDS
from storage.errors import PassNetError
from storage.printable import printable
from storage.schema import CATEGORIES

# Commands import what they need: `passnet --help` should not wait for torch.

SECTIONS = {
    "The whole job": ("quickstart",),
    "Datasets": ("build", "import", "versions", "diff", "rollback", "gc", "push", "upload", "download"),
    "Samples and passes": ("samples", "show", "check", "bench", "export"),
    "Authors and scores": ("evaluate", "score", "report", "trajectories", "demonstrations"),
    "Whole models": ("tune", "explain", "library", "evaluate-models"),
}
"""The headings of `passnet --help` and the commands below each."""


class Group(click.Group):
    """A command group whose expected failures are one line and exit status 1, and whose help has sections."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        known = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(context) if name not in known)
        for section, names in {**SECTIONS, "Others": others}.items():
            lines = [(name, self.commands[name].get_short_help_str(limit=80)) for name in names]
            if lines:
                with formatter.section(section):
                    formatter.write_dl(lines)

    def invoke(self, context: click.Context) -> Any:
        without = " without --rerun" if "--rerun" in context.args else ""  # with it all would begin anew
        try:
            return super().invoke(context)
        except PassNetError as error:
            _fail(str(error), 1)
        except KeyboardInterrupt:
            _fail(f"interrupted; run the same command again{without} to go on where it stopped", 130)


def _fail(message: str, status: int) -> None:
    click.echo(f"passnet: {printable(' '.join(message.split()))}", err=True)
    sys.exit(status)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="passnet")
def main() -> None:
    """Build datasets of tensor subgraphs from real models, and benchmark compiler passes on them."""
    handler = logging.StreamHandler()  # standard error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("passnet")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def run() -> None:
    """The command `passnet`. Its process ends without taking apart what it has imported, which takes a second. What
    libraries have registered for the end is called before, and its status is that which Python would give."""
    status = 1  # of an exception that is no SystemExit

    def end() -> None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            os._exit(120)
        os._exit(status)

    for stream in (sys.stdout, sys.stderr):  # a character that a terminal's encoding lacks is no reason to fail
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    atexit.register(end)  # registered first, so that it is called last
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


def _workers_ahead(data: Path, workers: int | None) -> AbstractContextManager[None]:
    """Workers that start while the imports go on, where nothing is traced yet."""
    from flows.build.pools import started_ahead

    return nullcontext() if (data / "traces").exists() else started_ahead(workers)


@main.command()
@data_option
@workers_option
@devices_option
@author_option(default="eager,inductor,distill", show_default=True)
@limit_option("Evaluation samples to benchmark; without a GPU the smallest, which its interpreter runs in seconds.", 3)
@json_option
def quickstart(data: Path, workers: int | None, device: str, author: str, limit: int, as_json: bool) -> None:
    """Do the whole job on a built-in catalogue.

    It builds a version, evaluates authors and publishes the results. Interrupted, it goes on where it stopped when
    it is run again.
    """
    where = "--data " + str(data) if str(data) != DEFAULT_DATA else ""
    click.echo(f"PassNet: 20 models into a dataset in {data}, then {limit} samples under {author}", err=True)
    with progress_shown(), _workers_ahead(data, workers):
        from flows.cli.quickstart import run_quickstart
        from flows.cli.quickstart_text import quickstart_text

        done = run_quickstart(data, workers, device, author, limit)
    emit(done, as_json, lambda d: quickstart_text(d, where))


@main.command()
@click.option(
    "--catalog",
    default="quickstart",
    show_default=True,
    help="quickstart, timm, transformers, transformers-heads, hub[?library=timm&task=…] (the most downloaded models), "
    "a list file (one entry a line: timm:NAME, transformers:TYPE[/CLASS], hub:ORG/NAME[@REVISION], dir:PATH), or a "
    "directory of graphs in PassNet's or GraphNet's layout.",
)
@limit_option("Take the first N entries only.")
@workers_option
@runner_option
@click.option(
    "--points",
    type=click.IntRange(1),
    default=None,
    help="Sizes at which subgraphs are wanted, at most, the model's own included [default: the line `points: N` of a "
    "list file, else 10].",
)
@click.option("--retry-failed", is_flag=True, help="Trace again what failed before.")
@click.option(
    "--full",
    is_flag=True,
    help="Find the repeated sequences of the whole catalogue anew; else models of the latest version keep theirs.",
)
@data_or_url_option
@json_option
def build(catalog: str, data: str, as_json: bool, **options: Any) -> None:
    """Build a dataset version from a catalogue of models.

    Finished shards are kept: run again after an interruption, it goes on where it stopped; run again after success,
    it traces nothing and publishes nothing new.
    """
    with progress_shown():
        from flows.build_dataset import build_dataset
        from flows.cli.tables import build_text

        built = build_dataset.fn(catalog=catalog, data=data, **options)
    emit(built, as_json, build_text)


@main.command()
@data_option
@version_option
@click.option(
    "--split", type=click.Choice(["train", "eval"]), default="eval", show_default=True, help="Samples of this split."
)
@click.option("--category", type=click.Choice(CATEGORIES), default=None, help="Samples of one category only.")
@author_option(required=True)
@click.option("--model", default=None, help="For llm: the model's id, such as anthropic:claude-sonnet-5.")
@click.option("--attempts", type=click.IntRange(1), default=1, show_default=True, help="Attempts per sample.")
@limit_option("Evaluate at most N samples, categories taking turns.")
@click.option("--sample", "samples", multiple=True, metavar="ID", help="These samples alone; may be given repeatedly.")
@devices_option
@protocol_option
@flush_option
@rerun_option
@llm_options
@json_option
def evaluate(as_json: bool, data: Path, version: str | None, samples: tuple[str, ...], **parameters: Any) -> None:
    """Let authors write passes for samples, and benchmark them.

    A new version is published, with results and scores.
    """
    from storage.versions.store import Store

    Store(data).open(version)  # a wrong one is told before torch is imported
    with progress_shown():
        from flows.cli.tables import evaluate_text
        from flows.evaluate_model import evaluate_model

        done = evaluate_model.fn(data=str(data), version=version, only=list(samples) or None, **parameters)
    emit(done, as_json, evaluate_text)


@main.command()
@click.option("--repo", required=True, metavar="ORG/NAME", help="Dataset repository on the Hub (HF_ENDPOINT's).")
@data_option
@version_option
@click.option("--private", is_flag=True, help="Create the repository as a private one.")
@json_option
def push(repo: str, data: Path, version: str | None, private: bool, as_json: bool) -> None:
    """Publish a version to the Hugging Face Hub.

    One commit and one tag; unchanged shards are not sent again. The token comes from HF_TOKEN or from `hf auth login`.
    """
    from flows.push_splits import push_splits

    done = push_splits.fn(repo=repo, data=str(data), version=version, private=private)
    emit(done, as_json, lambda d: f"{d['url']} is at {d['tag']} ({d['uploaded']} files sent, {d['skipped']} unchanged)")


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
def check(directory: Path, as_json: bool) -> None:
    """Check a pass directory against the static policy.

    Exit status 1 if there are findings.
    """
    from passbench.policy.check import check_dir

    findings = [f._asdict() for f in check_dir(directory)]
    lines = [f"{f['file']}:{f['line']}: {f['rule']}: {f['message']}" for f in findings]
    emit({"findings": findings}, as_json, lambda d: "\n".join(lines) or f"{directory}: no findings")
    if findings:
        sys.exit(1)


@main.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--split",
    type=click.Choice(["auto", "train", "eval"]),
    default="auto",
    show_default=True,
    help="Where the samples go; auto: as a build chooses.",
)
@click.option("--workers", type=click.IntRange(1), default=None, help="Directories read at a time [default: by cores].")
@data_option
@json_option
def import_(directory: Path, as_json: bool, **parameters: Any) -> None:
    """Import directories in PassNet's layout as a version.

    DIRECTORY holds sample directories at any depth. Files are parsed, never executed. What is not in the layout is left
    out and listed.
    """
    from flows.import_samples import import_samples, import_text

    emit(import_samples(directory, **parameters), as_json, import_text)


for command in (*SAMPLE_COMMANDS, *VERSION_COMMANDS, *SCORE_COMMANDS, *MODEL_COMMANDS):
    main.add_command(command)
