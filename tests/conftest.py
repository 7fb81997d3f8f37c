"""Fixtures that several rooms' tests share. Nothing here reaches the network."""

import os
import sys

sys.dont_write_bytecode = False  # else each of the tests' processes compiles torch and all else anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for a busy core spin, and cost four times the work
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # see passbench.compilers.trust_cpp_compiler
for _name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gc

gc.disable()  # until all is imported: nothing of an import is garbage, and looking for it takes an eighth of the time

import atexit
import fcntl
import logging
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from extraction.pool.client import Pool
    from tests.support.forked_programs import Run
    from tests.support.warm_forks import WarmForks

CATALOG = """\
# a convolutional and a transformer model, small, at few sizes
points: 3
timm:resnet10t
transformers:bert
"""


if "PYTEST_XDIST_WORKER" in os.environ:  # its results are sent by then; registered first, so that it is called last
    atexit.register(os._exit, 0)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)


settings.register_profile("passnet", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no clocks
settings.load_profile("passnet")

# The first two are begun at once: one of them alone builds `built`, for which the other would wait. The second is of
# files that often wait for a clock: processes of the first work meanwhile.
_LONGEST = """
    deployments hub gpu_session attacks build_dataset tuned from_scratch families rewrite_property hostile_models
    cli bench reward devices version_faults operations ordered workers faults layout_commands shards symbolic
    any_input policy honest_corpus notebooks evaluate_model readable main evaluate_llm process trace versions graph
    canonical layout_fx
""".split()
_MOST_WORKERS = 4


def gpu_here() -> bool:
    """Whether torch sees a GPU. The process that only hands out tests imports no torch where there is none."""
    if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")):  # the second is WSL's
        return False
    import torch

    return torch.cuda.is_available()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes that `-n auto` shares the files among: one more than there are cores, since many tests wait for other
    processes (on two cores 392 s instead of some 550). None beside another where they would time one GPU."""
    return 0 if gpu_here() else min(len(os.sched_getaffinity(0)) + 1, _MOST_WORKERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that no process is left with one alone at the end."""
    rank = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem.removeprefix("test_"), len(rank)))
    if gpu_here():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def pytest_collection_finish() -> None:
    """What has been imported stays: looking for garbage in it took a twelfth of a test's time, too."""
    gc.freeze()
    gc.set_threshold(2_000, 10, 100)  # looking through all objects of tests took half of the time for garbage
    gc.enable()
    # pytest listens to loggers that do not propagate. torch writes each step of a compilation as JSON to this one,
    # wherever anyone listens.
    logging.getLogger("torch.__trace").propagate = True


def pytest_unconfigure() -> None:
    """One of several processes that xdist started ends without taking apart what it has imported, which takes
    seconds. What tests and the libraries under test have registered for the end is called. A single one leaves
    libraries that count their objects at the end nothing to find."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        gc.unfreeze()


@pytest.fixture(scope="session")
def warm_forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator["WarmForks"]:
    """Starts processes that begin where their imports end. Those of all test processes are forks of one."""
    from tests.support.warm_forks import WarmForks

    forks = WarmForks(_of_all_processes(tmp_path_factory) / "forks")
    with forks.held():
        yield forks


@pytest.fixture(scope="session")
def torch_forks() -> Iterator["Run"]:
    """Runs programs in processes that have imported torch, and nothing else that takes long."""
    from tests.support.forked_programs import forked_programs

    with forked_programs() as run:
        yield run


def _of_all_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def build_pool(warm_forks: "WarmForks") -> Iterator["Pool"]:
    """The pool of all builds in this process that have two workers and the limits that a build has by default."""
    from extraction.tracing.limits import MEMORY_MB, TIMEOUT_S
    from tests.support.kept_pool import kept_pool

    with kept_pool(warm_forks, workers=2, timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB) as pool:
        yield pool


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, build_pool: "Pool") -> Path:
    """A data directory with version v1 of a two-model catalogue, built by the plain flow. Do not change it.

    Built once, by whichever of several test processes is first; the others wait.
    """
    from flows.build_dataset import build_dataset

    directory = _of_all_processes(tmp_path_factory) / "built"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        catalog = directory / "catalog.txt"
        if not (directory / "data" / "versions" / "v1").exists():
            catalog.write_text(CATALOG)
            build_dataset.fn(catalog=str(catalog), workers=2, data=str(directory / "data"))
    return directory / "data"


@pytest.fixture
def data_dir(built: Path, tmp_path: Path) -> Path:
    """A copy of `built` that a test may change."""
    return Path(shutil.copytree(built, tmp_path / "data"))
