"""PassNet for programs that embed it: open a version, run PassBench on a sample.

    import passnet

    version = passnet.open_version("data")                     # the newest version of a data directory
    results = passnet.bench("fusible-0123456789ab", version=version, compiler="inductor")
    for result in results:
        print(result.variant_hash[:12], result.status, result.t_min, result.speedup("e2e"))
    print(passnet.reward("fusible-0123456789ab", "my_pass", version=version).value)  # one number, for training

In: names and paths. Out: `storage.versions.version.Version`, `passbench.result.VariantResult` and
`agent.learning.reward.Reward`, the types that the rooms use themselves. Importing it is cheap: torch and pyarrow are
imported when a function first needs them, Prefect is not needed. Read first: this file.

May import: all other rooms.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.learning.reward import Reward
    from agent.learning.rewards import Rewards
    from passbench.result import VariantResult
    from passbench.settings import Settings
    from storage.records import Sample
    from storage.versions.version import Version

__all__ = ["__version__", "bench", "open_version", "reward", "rewards"]

__version__ = "0.1.0"


def open_version(where: str | Path | None = None, name: str | None = None) -> "Version":
    """A dataset version: the one in the directory `where`, or version `name` of the data directory `where`.

    Where nothing is given, `where` is the data directory of PASSNET_DATA (default `data`), and `name` its newest
    version. A name alone may stand in the place of `where`: `open_version("v2")`. Raises PassNetError that lists what
    there is.
    """
    from flows import DEFAULT_DATA
    from storage.versions.manifest import NAME
    from storage.versions.store import Store, Version

    if name is None and where is not None and NAME.fullmatch(str(where)) and not Path(where).exists():
        where, name = None, str(where)
    place = Path(DEFAULT_DATA if where is None else where)
    if name is None and (place / "manifest.json").exists():
        return Version.open(place)
    return Store(place).open(name)


def bench(
    sample: "Sample | str | Path",
    passes: str | Path | None = None,
    compiler: str | None = None,
    device: str = "auto",
    version: "Version | None" = None,
    settings: "Settings | None" = None,
    progress: Callable[[str], None] | None = None,
) -> "list[VariantResult]":
    """Run PassBench on a sample: a result for each of its variants, in order.

    `sample` is a `Sample`, the id of one in `version` (default: the newest of the data directory), or a directory in
    PassNet's layout, whose own pass is used unless `passes`, a pass directory, is given. `compiler` is one of
    `passbench.names.COMPILERS`, such as "inductor"; by default "pass" where there is a pass, else "eager". `device` is
    "cpu", "cuda", "cuda:1" or "auto". On a CPU a result's `times_meaningful` is false. `progress` is called with lines
    of text. Raises PassNetError for what is not there; whatever a pass does wrong is a result.
    """
    from flows.evaluate.devices import resolve_device
    from flows.find_sample import find_sample
    from passbench.bench import Bench
    from passbench.settings import Settings
    from storage.records import Sample

    if not isinstance(sample, Sample):
        needs = None if Path(sample).is_dir() else version or open_version()
        sample, _, own = find_sample(sample, needs)
        passes = passes or (own if compiler in (None, "pass") else None)
    with Bench(resolve_device(device), settings or Settings()) as running:
        return list(running.run(sample, compiler or ("pass" if passes else "eager"), passes, progress))


def reward(
    sample: "Sample | str | Path",
    files: Mapping[str, str] | str | Path,
    level: int = -5,
    clock: str = "e2e",
    device: str = "auto",
    version: "Version | None" = None,
) -> "Reward":
    """PassBench as a number from 0 to 1 (docs/scores.md, "A reward for training"): the reward of one pass at a sample.

    `sample` as for `bench`; `files` is a pass, as text by file name or as a directory. 0 for what is refused or
    malformed, matches nothing, or is not correct at `level` in every variant; 0.5 at eager's speed by `clock`. The
    process that measures stays warm for the next call. For many passes at a time, or several GPUs: `rewards`. Raises
    PassNetError for a sample, level, clock or device that is not there.
    """
    from agent.learning.rewards import Rewards
    from flows.evaluate.devices import resolve_device
    from flows.find_sample import find_sample
    from storage.errors import PassNetError
    from storage.records import Sample

    if not isinstance(sample, Sample):
        sample = find_sample(sample, None if Path(sample).is_dir() else version or open_version()).sample
    terms = resolve_device(device), level, clock
    if terms not in _warm:
        _warm[terms] = Rewards([terms[0]], level, clock)
        atexit.register(_warm[terms].close)
    if not isinstance(files, Mapping) and not Path(files).is_dir():
        raise PassNetError(f"{files} is no pass directory")
    return _warm[terms](sample, files if isinstance(files, Mapping) else Path(files))


_warm: "dict[tuple, Rewards]" = {}


def rewards(devices: Sequence[str] | None = None, level: int = -5, clock: str = "e2e") -> "Rewards":
    """Rewards of many passes at a time, with a warm process for each device: a context manager.

    Its `score` takes pairs of a `Sample` and a pass.

    `devices` are names such as "cuda:0"; by default every GPU, or the CPU where there is none.
    """
    from agent.learning.rewards import Rewards

    return Rewards(devices, level, clock)
