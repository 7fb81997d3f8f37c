"""The command line's manners: help, usage errors, and errors in one line."""

from functools import partial

import pytest
from huggingface_hub import close_session, constants

from agent.registry import NAMES
from flows.cli.main import SECTIONS, main
from flows.cli.models import commands
from flows.cli.options import AUTHORS, COMPILERS
from passbench.models import recipes
from passbench.names import COMPILERS as COMPILER_NAMES
from storage.versions.store import Store
from tests.flows.commands import error_line, passnet, passnet_here, passnet_json
from tests.support.hub_server import HubServer

COMMANDS = """build evaluate push bench check score report import export versions diff rollback gc upload download
    quickstart samples show trajectories demonstrations tune explain library evaluate-models""".split()


def test_help_lists_every_command():
    done = passnet("--help")  # as it is installed
    assert done.returncode == 0
    assert all(f"\n  {command} " in done.stdout for command in COMMANDS)
    listed, all_commands = [name for names in SECTIONS.values() for name in names], set(main.commands)
    assert sorted(listed) == sorted(all_commands)
    assert set(COMMANDS) == set(all_commands)
    assert "…" not in done.stdout and "..." not in done.stdout.partition("The whole job:")[2]


def test_every_command_has_help():
    for command in COMMANDS:
        done = passnet_here(command, "--help")
        assert done.returncode == 0 and f"Usage: passnet {command}" in done.stdout


def test_help_lists_every_author():
    said = "".join(passnet_here("evaluate", "--help").stdout.split())  # names are broken at hyphens
    assert all(name in said for name in NAMES)


def test_names_that_are_checked_before_torch_is_imported_are_the_rooms_own():
    assert set(AUTHORS) == set(NAMES) and set(COMPILERS) == set(COMPILER_NAMES)
    assert (commands.EFFORTS, commands.PARTS) == (recipes.EFFORTS, recipes.PARTS)


@pytest.mark.parametrize("arguments", [["nosuch"], ["build", "--limit", "0"], ["evaluate"], ["bench"]])
def test_wrong_usage_exits_with_2(arguments):
    assert passnet_here(*arguments).returncode == 2


@pytest.mark.parametrize("arguments", [["import", "nowhere"], ["export", "sample", "somewhere"], ["bench", "sample"]])
def test_what_is_not_there_is_one_line(arguments, tmp_path):
    line = error_line(passnet_here(*arguments, "--data", tmp_path / "data"))
    assert "nowhere" in line if arguments[0] == "import" else "no dataset version yet" in line


def test_push_and_push_again(data_dir, monkeypatch):
    with HubServer({"secret-token": "owner"}) as hub:
        environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "secret-token", "HF_HUB_OFFLINE": "0"}
        arguments = ("push", "--repo", "owner/passnet", "--data", data_dir)
        first = passnet_json(*arguments, run=partial(passnet, **environment))
        assert first["tag"] == "v1" and first["uploaded"] > 0
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)  # as it is read from HF_ENDPOINT in a new process
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "secret-token")
        close_session()
        again = passnet_json(*arguments)
        assert again["uploaded"] == 0 and again["revision"] == first["revision"]
        monkeypatch.setenv("HF_TOKEN", "wrong")
        assert "wrong" not in error_line(passnet_here(*arguments)).split("HF_TOKEN")[0]
        close_session()


def test_a_corrupt_shard_is_not_pushed(data_dir):
    version = Store(data_dir).latest()
    (shard, *_) = version.path.glob("data/fusible/*.parquet")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-10])
    line = error_line(passnet_here("push", "--repo", "owner/passnet", "--data", data_dir))
    assert shard.name in line and "corrupt" in line
