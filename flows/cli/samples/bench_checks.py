"""What `passnet bench` can refuse before it imports torch: a missing sample or pass directory, options at odds."""

from pathlib import Path

from storage.errors import PassNetError


def check_bench(sample: str, data: Path, version: str | None, passes: Path | None, compiler: str | None) -> None:
    """Raises PassNetError where the sample or the pass directory is not there, or where another compiler than "pass" is
    given beside it; says nothing of what they hold."""
    if passes is not None and compiler not in (None, "pass"):
        raise PassNetError(f"a pass is run by no other compiler: leave out --passes, or --compiler {compiler}")
    if passes is not None and not passes.is_dir():
        raise PassNetError(f"{passes} is no directory: give a pass directory, such as docs/example_pass")
    if Path(sample).is_dir():
        return
    if "/" in sample:
        raise PassNetError(f"{sample} is no directory: give one in PassNet's layout, or the id of a sample")
    from storage.versions.sample_names import row_named
    from storage.versions.store import Store

    opened = Store(data).open(version)
    row_named(sample, opened.table("samples", columns=["sample"]).to_pylist(), opened.name)
