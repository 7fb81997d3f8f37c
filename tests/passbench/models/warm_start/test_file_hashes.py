"""Hashes are taken from an earlier process while no file has changed, and computed otherwise."""

import json
import os
import time
from pathlib import Path

import pytest

from passbench.models.warm_start.file_hashes import FileHashes


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Modules of a package, as old as the file system's clock makes them in a second."""
    root = tmp_path / "package"
    for name in ("__init__.py", "module.py", "inner/__init__.py", "inner/module.py", "loose/data.txt", "loose/more.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    return root


def hashes(tmp_path: Path, package: Path) -> FileHashes:
    return FileHashes(tmp_path / "kept", [package], [package / "loose/data.txt"])


@pytest.fixture
def kept(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> FileHashes:
    monkeypatch.setattr("passbench.models.warm_start.file_hashes.QUIET_SECONDS", 0)
    time.sleep(0.05)
    hashes(tmp_path, package).put(lambda: {"all": "abc"})
    return hashes(tmp_path, package)


def test_they_are_kept_while_nothing_changes(kept):
    assert kept.get() == {"all": "abc"}


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "inner/module.py").write_text("x = 2\n"),
        lambda root: (root / "loose/data.txt").write_text("x = 2\n"),
        lambda root: (root / "another.py").write_text(""),
        lambda root: (root / "inner/module.py").unlink(),
        lambda root: (root / "loose/__init__.py").write_text(""),
        lambda root: (root / "new").mkdir(),
        lambda root: (root / "module.py").rename(root / "other.py"),
    ],
    ids=["module", "file", "new module", "no module", "folder becomes a package", "new folder", "renamed"],
)
def test_each_change_is_noticed(kept, package, change):
    change(package)
    assert kept.get() is None


def test_a_file_whose_time_is_set_back_has_changed(kept, package):
    before = os.stat(package / "module.py")
    (package / "module.py").write_text("x = 3\n")
    os.utime(package / "module.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(package / "module.py").st_mtime_ns == before.st_mtime_ns and kept.get() is None


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_time_has_changed(kept, package):
    before = os.stat(package / "module.py")
    (package / "new").write_text("x = 3\n")
    os.utime(package / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(package / "new", package / "module.py")
    assert kept.get() is None


def test_what_changed_just_now_is_not_kept(tmp_path, package):
    """Within one tick of the file system's clock it could change again unseen."""
    hashes(tmp_path, package).put(lambda: {"all": "abc"})
    assert hashes(tmp_path, package).get() is None


def test_what_changes_while_it_is_hashed_is_not_kept(tmp_path, package, monkeypatch):
    monkeypatch.setattr("passbench.models.warm_start.file_hashes.QUIET_SECONDS", 0)

    def compute() -> dict[str, str]:
        (package / "module.py").write_text("x = 4\n")
        return {"all": "abc"}

    hashes(tmp_path, package).put(compute)
    assert hashes(tmp_path, package).get() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"paths": ["/"], "facts": [], "hashes": {}}', "{"])
def test_a_file_that_holds_something_else_says_nothing(tmp_path, package, kept, text):
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(text)
    assert kept.get() is None


def test_a_directory_that_cannot_be_written_costs_nothing(tmp_path, package, monkeypatch):
    monkeypatch.setattr("passbench.models.warm_start.file_hashes.QUIET_SECONDS", 0)
    (tmp_path / "kept").write_text("a file")
    made: list[int] = []
    hashes(tmp_path, package).put(lambda: made.append(1) or {"all": "abc"})
    assert made == [1]


def test_other_folders_have_other_hashes(tmp_path, package, kept):
    assert FileHashes(tmp_path / "kept", [package / "inner"]).get() is None
    assert json.loads(next((tmp_path / "kept").iterdir()).read_text())["hashes"] == {"all": "abc"}
