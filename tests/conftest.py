"""Fixtures that several rooms' tests share. Nothing here reaches the network."""

import os

for _name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import shutil
import signal
from pathlib import Path

import pytest
import torch

CATALOG = """\
# a convolutional and a transformer model, small
timm:resnet10t
transformers:bert
"""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with version v1 of a two-model catalogue, built by the plain flow. Do not change it."""
    from flows.build_dataset import build_dataset

    directory = tmp_path_factory.mktemp("built")
    catalog = directory / "catalog.txt"
    catalog.write_text(CATALOG)
    build_dataset.fn(catalog=str(catalog), workers=2, data=str(directory / "data"))
    return directory / "data"


@pytest.fixture
def data_dir(built: Path, tmp_path: Path) -> Path:
    """A copy of `built` that a test may change."""
    return Path(shutil.copytree(built, tmp_path / "data"))
