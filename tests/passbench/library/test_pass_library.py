"""Entries on disk, their passports, and who may serve."""

import json
import shutil

import pytest
import torch

from passbench.contract import ContractError
from passbench.library.pass_library import PassLibrary
from storage.errors import PassNetError
from storage.graph.as_json import from_json
from tests.passbench.library.small_library import FILES, library, passport, problem

CPU = torch.device("cpu")


def test_an_entry_is_readable_on_its_own(tmp_path):
    (entry,) = library(tmp_path, 4, 8).entries()
    assert entry.name == problem(4, 8).graph_hash and entry.why_not(CPU) == ""
    place = tmp_path / "passes" / entry.name
    assert {path.name for path in place.iterdir()} == {"problem.json", "pass", "result.json"}
    stated = json.loads((place / "problem.json").read_text())
    assert from_json(stated["graph"]) == problem(4, 8).graph and "torch.relu" in stated["code"]
    assert entry.files().files == FILES
    (row,) = json.loads((place / "result.json").read_text())
    assert row["t_min"] == -10 and row["libraries"]["torch"] == torch.__version__ and "pass_files" not in row


def test_opening_runs_nothing(tmp_path):
    files = FILES | {"fuse.py": 'raise SystemExit("this must not run")'}
    of = problem(2, 2)
    made = PassLibrary(tmp_path)
    made.add([passport(of, files)], {of.variant_hash: of})
    (entry,) = made.entries()
    assert entry.problem and entry.passports and entry.files()
    assert "static policy refuses it" in entry.why_not(CPU)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"device": "NVIDIA H200"}, "no passport of this machine's kind"),
        ({"libraries": [("torch", "2.0"), ("triton", "2.0")]}, "no passport of this machine's kind"),
        ({"t_min": -2}, "t_min -2"),
        ({"t_min": None}, "t_min None"),
    ],
)
def test_a_pass_without_a_passport_of_this_machine_may_not_serve(tmp_path, changes, why):
    (entry,) = library(tmp_path, 4, 8, **changes).entries()
    assert why in entry.why_not(CPU)


def test_what_was_wrong_or_wrote_no_pass_is_not_added(tmp_path):
    of, made = problem(4, 8), PassLibrary(tmp_path)
    rows = [passport(of, status="wrong"), passport(of, compiler="eager"), passport(of, {}), passport(problem(1, 1))]
    assert made.add(rows, {of.variant_hash: of}) == [] and made.entries() == []


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PassNetError, match=r"cannot write to .*: choose another library"):
        library(tmp_path / "file", 4, 8)


def test_of_two_passes_the_faster_stays_and_passports_gather(tmp_path):
    of, other = problem(4, 8), problem(2, 2)
    made = library(tmp_path, 4, 8)
    both = {of.variant_hash: of, other.variant_hash: other}
    slower = FILES | {"fuse.py": FILES["fuse.py"] + "\n# slower\n"}
    assert made.add([passport(of, slower, speedup_e2e=1.5)], both) == []
    assert made.add([passport(other)], both) == [of.graph_hash]
    (entry,) = made.entries()
    assert len(entry.passports) == 2 and set(entry.problem["variants"]) == set(both)
    assert made.add([passport(of, slower, speedup_e2e=3.0)], both) == [of.graph_hash]
    (entry,) = made.entries()
    assert entry.files().files == slower and len(entry.passports) == 1


def test_what_is_not_there_or_damaged_is_one_line(tmp_path):
    made = library(tmp_path, 4, 8)
    with pytest.raises(PassNetError, match="has no pass 'ffff'; it has "):
        made.entry("ffff")
    shutil.copytree(made.entries()[0].directory, tmp_path / "passes" / ("0" * 64))
    with pytest.raises(PassNetError, match=r"several passes that begin with ''; give more of 0{12}, "):
        made.entry("")
    entry = made.entry(problem(4, 8).graph_hash[:8])
    (entry.directory / "result.json").write_text("{")
    with pytest.raises(PassNetError, match="remove the entry"):
        made.entry(entry.name).why_not(CPU)
    (entry.pass_directory / "fuse.py").unlink()
    with pytest.raises(ContractError):
        entry.files()
