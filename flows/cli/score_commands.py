"""The commands about results of runs: `score`, `report`, `trajectories`, `demonstrations`."""

from pathlib import Path
from typing import Any

import click

from flows.cli.options import (
    data_option,
    emit,
    json_option,
    kernels_only_option,
    new_directory_option,
    runs_option,
    version_option,
    without_capture_option,
)
from flows.plurals import counted
from passbench.names import CLOCKS
from passbench.scoring.groups import GROUPINGS


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--clock", type=click.Choice(CLOCKS), default=None, help="Scores of one clock only [default: both].")
@click.option(
    "--t",
    type=click.IntRange(-10, 4),
    default=-5,
    show_default=True,
    help="Tolerance level of all scores but the t-table.",
)
@click.option(
    "--p",
    type=click.FloatRange(0, 10),
    default=0.0,
    show_default=True,
    help="A correct slowdown s < 1 counts as s^(p+1).",
)
@click.option(
    "--b",
    type=click.FloatRange(1e-6, 1),
    default=0.1,
    show_default=True,
    help="Speedup that an incorrect variant counts as.",
)
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default=None,
    help="Add a line for each of these; a group is a category in one dtype.",
)
@click.option("--best", is_flag=True, help="Count each sample's best attempt alone [default: every attempt].")
@kernels_only_option
@without_capture_option
@data_option
@version_option
@json_option
def score(runs: tuple[str, ...], as_json: bool, **parameters: Any) -> None:
    """Compute the scores of runs from their results.

    They are the t-table, aggregate score (AS), fast_p and pass@k; docs/scores.md explains them. RUN is a run's id or
    the start of it, an author (all of its runs), "latest" for all runs of the version, or the path of a results Parquet
    file or of a directory of such. AS comes with a 95% bootstrap interval over samples. pass@k: an attempt at a sample
    succeeds if all variants of the sample are correct at level --t.
    """
    from flows.cli.tables import score_text
    from flows.report.score_run import score_run

    emit(score_run(runs, **parameters), as_json, score_text)


@click.command()
@new_directory_option
@runs_option
@click.option("--min-score", type=float, default=1.0, show_default=True, help="Least aggregate score of an attempt.")
@click.option(
    "--per-sample", type=click.IntRange(1), default=None, help="Take only so many attempts of a sample, the best."
)
@click.option("--submitted/--any-exit", default=True, show_default=True, help="Only attempts that ended by submitting.")
@click.option("--unmeasured", is_flag=True, help="Take also attempts whose times mean nothing, such as the CPU's.")
@data_option
@version_option
@json_option
def trajectories(out: Path, data: Path, as_json: bool, **parameters: Any) -> None:
    """Export attempts of the author llm as chat messages.

    Only attempts at training samples, whose passes are correct in every variant and broke no rule.
    """
    from flows.cli.export_chat import export_trajectories

    done = export_trajectories(out, data, **parameters)
    emit(done, as_json, lambda d: f"{counted(d['exported'], 'conversation')} in {d['path']}")


@click.command()
@new_directory_option
@runs_option
@click.option(
    "--held-out",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A version whose evaluation samples are kept out, too; may be given repeatedly.",
)
@click.option("--unmeasured", is_flag=True, help="Take also passes whose times mean nothing, such as the CPU's.")
@data_option
@version_option
@json_option
def demonstrations(out: Path, data: Path, as_json: bool, **parameters: Any) -> None:
    """Export correct passes of training samples as chat messages.

    Each is the task, a rationale and the pass's files; see docs/learning.md.
    """
    from flows.cli.demonstrations import demonstrations_text, export_demonstrations

    emit(export_demonstrations(out, data, **parameters), as_json, demonstrations_text)


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory for the page and its files.")
@kernels_only_option
@without_capture_option
@data_option
@version_option
@json_option
def report(runs: tuple[str, ...], out: Path, data: Path, version: str | None, as_json: bool, **left_out: bool) -> None:
    """Write results as a page with pictures and tables.

    RUN is named as for `score`. The pictures lie beside the page as PNG, the tables as CSV.
    """
    from flows.report.write import write_report

    page = write_report(runs, out, data, version, **left_out)
    emit({"page": str(page)}, as_json, lambda d: d["page"])


COMMANDS = (score, report, trajectories, demonstrations)
