"""A library of passes on a Hub on loopback, through the real client."""

import json

import huggingface_hub
import pytest
from huggingface_hub import constants

from flows.models.library_hub import pull_library, push_library
from passbench.library.pass_library import PassLibrary
from storage.errors import PassNetError
from tests.passbench.library.small_library import FILES, library, passport, problem
from tests.support.hub_server import HubServer

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own
REPO = "org/passes"


def options(hub: HubServer) -> dict:
    """Where to, and who is told of it: nobody."""
    return {"say": lambda line: None, "endpoint": hub.endpoint}


@pytest.fixture
def hub(monkeypatch):
    huggingface_hub.close_session()
    with HubServer({"hf_owner_token": "owner"}) as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_TOKEN", "hf_owner_token")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server
    huggingface_hub.close_session()


def test_passes_go_there_and_come_back_with_the_passports_of_all_machines(hub, tmp_path):
    to = options(hub)
    (entry,) = library(tmp_path / "mine", 4, 8).entries()
    first = push_library(tmp_path / "mine", REPO, private=False, **to)
    place = f"passes/{entry.name}"
    files = {name for name in hub.repo(REPO).head.files if name.startswith("passes/")}
    assert files == {f"{place}/problem.json", f"{place}/result.json", *(f"{place}/pass/{name}" for name in FILES)}
    assert first["sent"] == 4 and push_library(tmp_path / "mine", REPO, private=False, **to)["sent"] == 0
    library(tmp_path / "other", 4, 8, device="NVIDIA H200")
    done = push_library(tmp_path / "other", REPO, private=False, **to)
    assert (done["taken"], done["sent"]) == (1, 1)
    assert pull_library(tmp_path / "mine", REPO, **to)["added"] == 1
    (merged,) = PassLibrary(tmp_path / "mine").entries()
    assert {row["device"] for row in merged.passports} == {"cpu", "NVIDIA H200"} and merged.files().files == FILES


def test_nothing_is_fetched_from_a_new_repository(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "snapshot_download", lambda *_, **__: pytest.fail("fetched"))
    library(tmp_path, 4)
    assert push_library(tmp_path, REPO, private=False, **options(hub))["sent"] > 0


def test_pulling_runs_nothing_and_believes_no_name(hub, tmp_path):
    to = options(hub)
    files = FILES | {"fuse.py": 'raise SystemExit("this must not run")'}
    of, made = problem(2, 2), PassLibrary(tmp_path / "mine")
    made.add([passport(of, files)], {of.variant_hash: of})
    push_library(tmp_path / "mine", REPO, private=False, **to)
    assert pull_library(tmp_path / "new", REPO, **to)["added"] == 1
    (entry,) = made.entries()
    stated = json.loads((entry.directory / "problem.json").read_text())
    stated["variants"][of.variant_hash][0]["shape"] = [3, 3]
    (entry.directory / "problem.json").write_text(json.dumps(stated))
    hub.put("dataset", "org/forged", {f"passes/{entry.name}/{p.relative_to(entry.directory)}": p.read_bytes()
                                      for p in entry.directory.rglob("*") if p.is_file()})  # fmt: skip
    with pytest.raises(PassNetError, match="is not what its hash says"):
        pull_library(tmp_path / "new", "org/forged", **to)


def test_what_is_not_there_is_one_line(hub, tmp_path):
    to = options(hub)
    with pytest.raises(PassNetError, match="has no passes to push"):
        push_library(tmp_path, REPO, private=False, **to)
    with pytest.raises(PassNetError, match="does not exist"):
        pull_library(tmp_path, "org/nowhere", **to)
