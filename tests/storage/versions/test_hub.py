"""Publishing to the Hub: the real client, and the real `datasets`, against a Hub on loopback."""

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pytest
from huggingface_hub import constants

from storage import hub_repo
from storage.errors import PassNetError
from storage.schema import MODELS, SUBGRAPHS
from storage.versions.hub import PushResult, push
from storage.versions.store import Store, Version
from tests.support.hub_server import HubServer

ROOT = Path(__file__).parents[3]
OWNER, READER, STRANGER = "hf_owner_token", "hf_reader_token", "hf_stranger_token"
REPO = "org/passnet"

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A Hub, and a client that has no token, proxy or offline mode from the outside."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    with HubServer({OWNER: "owner", READER: "reader", STRANGER: "stranger"}) as server:
        yield server
    huggingface_hub.close_session()


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Version]:
    """v1 has models, fusible and typical; v2 has more of fusible, in other shards, the same models and no typical."""
    store = Store(tmp_path_factory.mktemp("data"))
    models = pa.Table.from_pylist([{"model": "timm:resnet18", "libraries": {"torch": "2"}}], MODELS)
    tables = {
        ("models", "all"): models,
        ("fusible", "train"): subgraphs("a", "b"),
        ("fusible", "eval"): subgraphs("c"),
        ("typical", "train"): subgraphs("t"),
    }
    first, _ = store.publish(tables, kind="build", parent=None, parameters={}, summary={})
    more = {("fusible", "train"): subgraphs("a", "b", "d"), ("fusible", "eval"): subgraphs("c")}
    second, _ = store.publish(more, kind="build", parent=first, keep=["models"], parameters={}, summary={})
    return [first, second]


def subgraphs(*names: str) -> pa.Table:
    return pa.Table.from_pylist([{"variant_hash": name, "kernels": 1} for name in names], SUBGRAPHS)


def pushed(hub: HubServer, version: Version, token: str | None = OWNER, **options: Any) -> PushResult:
    return push(version, REPO, token=token, endpoint=hub.endpoint, **options)


def titles(hub: HubServer) -> list[str]:
    return [commit.title for commit in hub.repo(REPO).history()]


def contents(hub: HubServer, revision: str = "main") -> set[str]:
    commit = hub.repo(REPO).at(revision)
    assert commit is not None
    return set(commit.files)


def local(version: Version) -> set[str]:
    return {str(path.relative_to(version.path)) for path in version.path.rglob("*") if path.is_file()}


def load(hub: HubServer, home: Path, code: str, token: str | None = None) -> Any:
    """What `code` prints as JSON in a process whose Hub is ours."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"}
    env |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1"} | ({"HF_TOKEN": token} if token else {})
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_version_is_one_commit_and_one_tag(hub: HubServer, versions: list[Version]) -> None:
    lines: list[str] = []
    result = pushed(hub, versions[0], progress=lines.append)
    assert result == PushResult(
        repo_id=REPO,
        revision=hub.repo(REPO).head.oid,
        tag="v1",
        uploaded=6,
        skipped=0,
        url=f"{hub.endpoint}/datasets/{REPO}/tree/v1",
    )
    assert titles(hub) == ["PassNet v1", "initial commit"]
    assert {name: commit.oid for name, commit in hub.repo(REPO).tags.items()} == {"v1": result.revision}
    assert contents(hub) == local(versions[0]) | {".gitattributes"}
    for path in local(versions[0]):
        assert hub.repo(REPO).head.files[path].data == (versions[0].path / path).read_bytes()
    assert any("uploading 6 of 6 files" in line for line in lines)


def test_pushing_again_does_nothing(hub: HubServer, versions: list[Version]) -> None:
    first = pushed(hub, versions[0])
    sent, lines = hub.count("PUT", "/lfs/"), []
    again = pushed(hub, versions[0], progress=lines.append)
    assert (again.revision, again.uploaded, again.skipped) == (first.revision, 0, 6)
    assert hub.count("PUT", "/lfs/") == sent and hub.count("POST", "/commit/") == hub.count("POST", "/tag/") == 1
    assert lines == [f"{REPO} already has v1: nothing to upload"]


def test_the_next_version_sends_what_changed_and_deletes_what_is_gone(hub: HubServer, versions: list[Version]) -> None:
    pushed(hub, versions[0])
    hub.put("dataset", REPO, {"LICENSE": b"theirs"})
    sent = hub.count("PUT", "/lfs/")
    result = pushed(hub, versions[1])
    assert hub.count("PUT", "/lfs/") - sent == 1  # fusible/train
    assert (result.uploaded, result.skipped) == (3, 2)  # that, the card and the manifest; models and fusible/eval
    assert titles(hub) == ["PassNet v2", "put", "PassNet v1", "initial commit"]
    assert contents(hub) == local(versions[1]) | {".gitattributes", "LICENSE"}
    assert contents(hub, "v1") == local(versions[0]) | {".gitattributes"}


def test_what_passes_is_waited_out_with_one_commit(hub: HubServer, versions: list[Version]) -> None:
    hub.fail("/api/repos/create", 429, retry_after="1")
    hub.fail("/refs", 500)
    hub.fail("/preupload/", 503, retry_after="0")
    hub.fail("/lfs/", 0, method="PUT")
    hub.fail("/commit/", 412)
    hub.fail("/tag/", 0)
    lines: list[str] = []
    result = pushed(hub, versions[0], progress=lines.append)
    assert titles(hub) == ["PassNet v1", "initial commit"] and result.uploaded == 6
    assert list(hub.repo(REPO).tags) == ["v1"] and contents(hub, "v1") >= local(versions[0])
    assert [line for line in lines if "trying again" in line] == [
        f"{REPO}: {what}, trying again in 1 s" for what in ("429", "500", "412", "no connection")
    ]


def test_an_answer_that_is_lost_is_not_done_twice(hub: HubServer, versions: list[Version]) -> None:
    for path in ("/api/repos/create", "/commit/", "/tag/"):
        hub.fail(path, 0, after=True)
    result = pushed(hub, versions[0], private=True)
    assert titles(hub) == ["PassNet v1", "initial commit"] and hub.repo(REPO).private
    assert hub.repo(REPO).tags["v1"].oid == result.revision and result.uploaded == 6
    assert hub.count("POST", "/commit/") == 1 and hub.count("POST", "/tag/") == 2


def test_an_interrupted_push_is_completed_by_the_next(hub: HubServer, versions: list[Version]) -> None:
    hub.fail("/commit/", 403)
    with pytest.raises(PassNetError, match="may not write to"):
        pushed(hub, versions[0])
    assert titles(hub) == ["initial commit"] and hub.repo(REPO).tags == {}
    sent = hub.count("PUT", "/lfs/")
    hub.fail("/tag/", 403)
    with pytest.raises(PassNetError, match="may not write to"):
        pushed(hub, versions[0])
    result = pushed(hub, versions[0])
    assert hub.count("PUT", "/lfs/") == sent == 4
    assert titles(hub) == ["PassNet v1", "initial commit"] and (result.uploaded, result.skipped) == (0, 6)
    assert hub.repo(REPO).tags["v1"] is hub.repo(REPO).head


def test_a_tag_with_other_rows_is_left_alone(hub: HubServer, versions: list[Version], tmp_path: Path) -> None:
    pushed(hub, versions[0])
    other, _ = Store(tmp_path).publish(
        {("fusible", "train"): subgraphs("x")}, kind="build", parent=None, parameters={}, summary={}
    )
    with pytest.raises(PassNetError, match=r"has a tag v1 with other rows \(first difference: data/fusible/"):
        pushed(hub, other)
    assert titles(hub) == ["PassNet v1", "initial commit"]


def test_other_peoples_data_is_not_deleted(hub: HubServer, versions: list[Version]) -> None:
    hub.put("dataset", REPO, {"data/train.parquet": b"theirs"})
    with pytest.raises(PassNetError, match=r"holds other data \(data/train.parquet\)"):
        pushed(hub, versions[0])
    assert titles(hub) == ["put", "initial commit"]


@pytest.mark.parametrize(
    ("token", "private", "message"),
    [
        (None, False, "wants a token .*hf auth login"),
        ("hf_wrong", False, "does not accept the token"),
        (READER, False, "the token may not write to org/passnet"),
        (STRANGER, True, "the token may not write to org/passnet|does not exist or the token cannot see it"),
        ("hf_with\nnewline", False, "characters that no token has"),
    ],
)
def test_refusals_say_what_to_do(
    hub: HubServer, versions: list[Version], token: str | None, private: bool, message: str
) -> None:
    hub.put("dataset", REPO, {}, private=private)
    with pytest.raises(PassNetError, match=message) as caught:
        pushed(hub, versions[0], token)
    assert "\n" not in str(caught.value) and (token is None or token not in str(caught.value))
    assert titles(hub) == ["put", "initial commit"]


@pytest.mark.parametrize("repo", ["", "name", "a/b/c", "org/na me", "org/--", "../up/x", "https://x/y"])
def test_a_repository_id_is_checked_first(hub: HubServer, versions: list[Version], repo: str) -> None:
    with pytest.raises(PassNetError, match="is no repository id: it is written ORG/NAME"):
        push(versions[0], repo, token=OWNER, endpoint=hub.endpoint)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, r"keeps failing \(500\): later, run it again: what has arrived is not sent again"),
        (409, "others keep committing to org/passnet"),
        (429, "rate limit is reached"),
        (418, r"refuses the push to org/passnet \(418\).*\[teapot \*\*\* is full\]"),
        (0, "no usable answer from http://127.0.0.1.*check the network"),
    ],
)
def test_what_does_not_pass_ends_with_advice_and_without_the_token(
    hub: HubServer,
    versions: list[Version],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    status: int,
    message: str,
) -> None:
    attempts = 2 if status in (0, 500) else 1
    monkeypatch.setattr(hub_repo, "ATTEMPTS", attempts)
    hub.put("dataset", REPO, {})
    hub.fail("/commit/", status, times=99, message=f"teapot {OWNER} is full")
    lines: list[str] = []
    with caplog.at_level(logging.DEBUG), pytest.raises(PassNetError, match=message) as caught:
        pushed(hub, versions[0], progress=lines.append)
    assert hub.count("POST", "/commit/") == attempts
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    said = str(caught.value) + "".join(lines) + caplog.text + "".join(capfd.readouterr())
    assert OWNER not in said and "\n" not in str(caught.value)


def test_a_hub_that_asks_for_an_hour_is_not_waited_for(hub: HubServer, versions: list[Version]) -> None:
    hub.fail("/preupload/", 429, times=99, retry_after="3600")
    with pytest.raises(PassNetError, match="rate limit is reached: wait 3600 s"):
        pushed(hub, versions[0])
    assert hub.count("POST", "/preupload/") == 1


def test_no_hub_at_all(versions: list[Version], hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_repo, "ATTEMPTS", 1)
    with HubServer() as gone:
        pass
    with pytest.raises(PassNetError, match=f"no usable answer from {gone.endpoint}"):
        pushed(gone, versions[0])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PassNetError, match="HF_HUB_OFFLINE is set, unset it"):
        pushed(hub, versions[0])


def test_private_is_not_pushed_into_public(hub: HubServer, versions: list[Version]) -> None:
    hub.put("dataset", REPO, {})
    with pytest.raises(PassNetError, match="exists and is public"):
        pushed(hub, versions[0], private=True)
    assert titles(hub) == ["put", "initial commit"]


def test_a_corrupt_version_is_not_pushed(hub: HubServer, tmp_path: Path) -> None:
    version, _ = Store(tmp_path).publish(
        {("fusible", "train"): subgraphs("x")}, kind="build", parent=None, parameters={}, summary={}
    )
    (version.path / "README.md").rename(tmp_path / "README.md")
    with pytest.raises(PassNetError, match=r"cannot read .*README.md .*rebuild"):
        pushed(hub, version)
    (shard,) = version.path.rglob("*.parquet")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(PassNetError, match="is corrupt"):
        pushed(hub, version)
    assert hub.requests == []


def test_long_listings_come_in_pages(versions: list[Version], hub: HubServer) -> None:
    hub.hub.page_size = 3
    pushed(hub, versions[0])
    assert pushed(hub, versions[1]).skipped == 2
    assert pushed(hub, versions[1]).uploaded == 0


def test_a_client_without_xet_pushes_too(
    hub: HubServer, versions: list[Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert pushed(hub, versions[0]).uploaded == 6
    assert hub.count("GET", "/xet-write-token/") == 0 and constants.HF_HUB_DISABLE_XET


def test_datasets_loads_every_tag_from_the_hub(hub: HubServer, versions: list[Version], tmp_path: Path) -> None:
    for version in versions:
        pushed(hub, version, private=True)
    code = f"""
        import json
        from datasets import get_dataset_config_names, load_dataset
        found = {{}}
        for tag in ("v1", "v2", None):
            rows = load_dataset("{REPO}", "fusible", split="train", revision=tag)
            stream = load_dataset("{REPO}", "fusible", split="eval", revision=tag, streaming=True)
            found[str(tag)] = [rows["variant_hash"][:], [row["variant_hash"] for row in stream]]
        found["no config"] = load_dataset("{REPO}", split="train")["variant_hash"][:]
        found["streaming"] = [row["variant_hash"] for row in load_dataset("{REPO}", split="eval", streaming=True)]
        found["configs"] = get_dataset_config_names("{REPO}", revision="v1")
        found["models"] = load_dataset("{REPO}", "models", split="train")[0]["libraries"]
        print(json.dumps(found))
    """
    assert load(hub, tmp_path, code, READER) == {
        "v1": [["a", "b"], ["c"]],
        "v2": [["a", "b", "d"], ["c"]],
        "None": [["a", "b", "d"], ["c"]],
        "no config": ["a", "b", "d"],
        "streaming": ["c"],
        "configs": ["models", "fusible", "typical"],
        "models": [{"key": "torch", "value": "2"}],
    }
    denied = f"""
        import json
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError
        try:
            HfApi().dataset_info("{REPO}")
        except RepositoryNotFoundError as error:
            print(json.dumps(error.response.status_code))
    """
    assert [load(hub, tmp_path, denied), load(hub, tmp_path, denied, STRANGER)] == [401, 404]
