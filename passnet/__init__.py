"""PassNet for programs that embed it: open a version, run PassBench on a sample, make a model faster.

    import passnet

    version = passnet.open_version("data")                     # the newest version of a data directory
    results = passnet.bench("fusible-0123456789ab", version=version, compiler="inductor")
    for result in results:
        print(result.variant_hash[:12], result.status, result.t_min, result.speedup("e2e"))
    print(passnet.reward("fusible-0123456789ab", "my_pass", version=version).value)  # one number, for training

    model = passnet.optimize(model, (images,))                 # called as before; without gradients
    compiled = torch.compile(other, backend="passnet")

In: names and paths. Out: `storage.versions.version.Version`, `passbench.result.VariantResult`,
`agent.learning.reward.Reward` and `passbench.models.optimized_model.OptimizedModel`, the types that the rooms use
themselves. Importing it is cheap: torch and pyarrow are imported when a function first needs them, Prefect is not
needed. Read first: this file.

May import: all other rooms.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from agent.learning.reward import Reward
    from agent.learning.rewards import Rewards
    from passbench.models.optimized_model import OptimizedModel
    from passbench.result import VariantResult
    from passbench.settings import Settings
    from storage.records import Sample
    from storage.versions.version import Version

__all__ = ["__version__", "bench", "open_version", "optimize", "reward", "rewards"]

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
    from storage.records import Sample

    if not isinstance(sample, Sample):
        sample = find_sample(sample, None if Path(sample).is_dir() else version or open_version()).sample
    terms = resolve_device(device), level, clock
    if terms not in _warm:
        _warm[terms] = Rewards([terms[0]], level, clock)
        atexit.register(_warm[terms].close)
    return _warm[terms](sample, files)


_warm: "dict[tuple, Rewards]" = {}


def rewards(devices: Sequence[str] | None = None, level: int = -5, clock: str = "e2e") -> "Rewards":
    """Rewards of many passes at a time, with a warm process for each device: a context manager.

    Its `score` takes pairs of a `Sample` and a pass.

    `devices` are names such as "cuda:0"; by default every GPU, or the CPU where there is none.
    """
    from agent.learning.rewards import Rewards

    return Rewards(devices, level, clock)


def optimize(
    model: "torch.nn.Module",
    args: tuple = (),
    kwargs: "Mapping[str, Any] | None" = None,
    *,
    effort: str = "normal",
    strict: bool = False,
    seconds: float | None = None,
    library: str | Path | None = None,
    without: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> "OptimizedModel":
    """A callable that gives what `model(*args, **kwargs)` gives without gradients, by the way that measures fastest.

    The example call's tensors say for which shapes, dtypes and device. Ways that are tried: eager, TorchInductor, and
    each of them as one CUDA graph; `effort` ("quick", "normal", "full") says how many. A way is kept only if its
    outputs are as near to double precision as eager's; with `strict`, only if they are eager's bits, and the `reason`
    of any other names the first part that has not. No further way is begun after `seconds`. `without` switches parts
    off, to see what each gives: "graph", "inductor", "merged", "once", "passes". `.report` of the result says what was
    tried and chosen.

    `library` is a directory (docs/faster-models.md): passes in it that were measured on this kind of machine may serve
    regions of the model, which runs their code in this process; what is chosen is kept there for the next start.

    Parameters may change between calls. A call of another kind (shapes, gradients, training mode) goes to the model
    itself, with one FallbackWarning for each reason. A model that is no single graph, or that writes to its buffers, is
    run by torch.compile with the backend "passnet"; `.report.why_not` says why. Raises PassNetError for what is no
    module, for an example call that the model does not take, and for an unknown effort or part.
    """
    from passbench.models.optimize import optimize_model
    from passbench.models.optimized_model import OptimizeSettings

    settings = OptimizeSettings(
        effort=effort,
        strict=strict,
        seconds=seconds,
        library=None if library is None else str(library),
        without=without if isinstance(without, str) else tuple(without),
    )
    return optimize_model(model, args, kwargs or {}, settings, progress=progress)
