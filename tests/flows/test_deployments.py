"""Flow runs on a real server: the three deployments, with a real process worker, and how runs fail.

What a caller can put right ends a run in one line, at its first try; a fault of ours is tried again.
"""

import json
import os
import shlex
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from flows.evaluate_model import evaluate_model
from storage.errors import PassNetError
from storage.versions.store import Store
from tests.flows.prefect_server import ROOT, Prefect, prefect_server
from tests.support.hub_server import HubServer
from tests.support.port_forward import a_way_to
from tests.support.warm_forks import WarmForks

NAMES = ("build-dataset", "evaluate-model", "push-splits")

RUNS = """
from prefect import flow
from prefect.context import refresh_global_settings_context
from flows.expected_failures import one_line
from storage.errors import PassNetError

class Busy(PassNetError):
    pass

refresh_global_settings_context()
tries = []

@flow(retries=1, retry_delay_seconds=0)
@one_line(Busy)
def tried(error: str) -> dict:
    tries.append(error)
    raise {"caller": PassNetError, "busy": Busy, "bug": ValueError}[error](f"the message of {error}")

for error in ("caller", "busy", "bug"):
    try:
        tried(error)
    except Exception as raised:
        print("TRIED", error, tries.count(error), type(raised).__name__, raised, flush=True)
"""

SLEEPS = """
import time
from prefect import flow
from prefect.context import refresh_global_settings_context
from flows.expected_failures import one_line

refresh_global_settings_context()

@flow
@one_line()
def sleeps() -> None:
    print("BEGUN", flush=True)
    time.sleep(60)

sleeps()
"""


def call(prefect: Prefect, path: str, body: dict | list | None = None, method: str | None = None) -> Any:
    """What the server's API answers to a GET, or a POST of `body`; a busy server (503) is asked again."""
    request = urllib.request.Request(
        f"{prefect.environment['PREFECT_API_URL']}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method=method,
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def id_of(prefect: Prefect, name: str) -> str:
    """The id of a deployment."""
    return call(prefect, f"deployments/name/{name}/{name}")["id"]


def start(prefect: Prefect, name: str, **parameters: object) -> str:
    """Ask for a run of a deployment, as `prefect deployment run` does; its id."""
    return call(prefect, f"deployments/{id_of(prefect, name)}/create_flow_run", {"parameters": parameters})["id"]


def run_in_forks(prefect: Prefect, name: str, forks: WarmForks) -> None:
    """Runs of a deployment are warm forks from now on; a new process imports for ten seconds."""
    engine = [sys.executable, str(ROOT / "tests" / "support" / "warm_engine.py"), str(forks.directory)]
    changed = {"job_variables": {"command": shlex.join(engine)}}
    call(prefect, f"deployments/{id_of(prefect, name)}", changed, method="PATCH")


def planned(prefect: Prefect, fewest: int, **parameters: object) -> list[dict]:
    """Runs of the build that the server's scheduler has planned with these parameters, soonest first."""
    wanted = {"flows": {"name": {"any_": ["build-dataset"]}}, "sort": "EXPECTED_START_TIME_ASC"}
    deadline = time.monotonic() + 60
    while True:
        runs = [run for run in call(prefect, "flow_runs/filter", wanted) if run["auto_scheduled"]]
        if len(found := [run for run in runs if run["parameters"] == parameters]) >= fewest:
            return found
        assert time.monotonic() < deadline, runs
        time.sleep(1)


def schedule_soon(prefect: Prefect, **parameters: object) -> str:
    """Give the build a schedule that fires soon; the id of the run that this makes."""
    deployment = id_of(prefect, "build-dataset")
    for seconds in (20, 75, 150):  # a busy scheduler plans too late
        soon = datetime.now(UTC) + timedelta(seconds=seconds)
        schedule = {"interval": 7 * 24 * 3600, "anchor_date": soon.isoformat(), "timezone": "UTC"}
        call(prefect, f"deployments/{deployment}/schedules", [{"schedule": schedule, "parameters": parameters}])
        while datetime.now(UTC) < soon:
            first = planned(prefect, 1, **parameters)[0]
            if datetime.fromisoformat(first["expected_start_time"]) - soon < timedelta(days=1):
                return first["id"]
            time.sleep(0.5)
    raise AssertionError("the scheduler planned nothing in time")


def finished(prefect: Prefect, run: str) -> dict:
    """The run's last state."""
    deadline = time.monotonic() + 240
    while (state := call(prefect, f"flow_runs/{run}")["state"])["type"] not in ("COMPLETED", "FAILED", "CRASHED"):
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    return state


@pytest.fixture(scope="module")
def prefect(tmp_path_factory, warm_forks) -> Iterator[Prefect]:
    """The server of this file's tests."""
    with prefect_server(tmp_path_factory.mktemp("prefect"), warm_forks) as running:
        yield running


@pytest.mark.timeout(600)  # a dozen processes that import torch, beside other tests
def test_all_three_deployments_run_to_completion(prefect, data_dir, tmp_path, warm_forks):
    with HubServer() as hub:
        prefect.environment |= {
            "PASSNET_DATA": str(data_dir),
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": "hf_owner",
            "HF_HUB_OFFLINE": "0",
            "PREFECT_WORKER_QUERY_SECONDS": "3",
        }
        assert prefect("work-pool", "create", "local", "--type", "process").returncode == 0
        log = tmp_path / "worker.log"
        with prefect.background(log, "worker", "start", "--pool", "local"):
            deployed = prefect("deploy", "--all")
            assert deployed.returncode == 0, deployed.stdout + deployed.stderr
            assert {d["name"] for d in call(prefect, "deployments/filter", {})} == set(NAMES)
            for name in ("build-dataset", "evaluate-model"):  # push-splits runs as it does for users
                run_in_forks(prefect, name, warm_forks)

            with pytest.raises(urllib.error.HTTPError, match="409"):
                start(prefect, "build-dataset", limit="many")
            due = [datetime.fromisoformat(run["expected_start_time"]) for run in planned(prefect, 2)]
            assert {(when.weekday(), when.hour, when.minute) for when in due} == {(6, 3, 0)}, "Sundays at three"

            catalog = Store(data_dir).open("v1").manifest.parameters["catalog"]
            rebuilt = schedule_soon(prefect, catalog=catalog)
            given = [part for p in ("author=eager", "limit=2", "device=cpu") for part in ("-p", p)]
            watch = ("--watch", "--watch-interval", "2")
            evaluated = prefect("deployment", "run", "evaluate-model/evaluate-model", *watch, *given)
            assert evaluated.returncode == 0, evaluated.stdout + log.read_text()[-3000:]
            latest = Store(data_dir).latest()
            assert latest.name == "v2"
            assert latest.manifest.flow_run
            assert set(latest.table("results")["author"].to_pylist()) == {"eager"}
            (page,) = [a for a in call(prefect, "artifacts/filter", {}) if a["key"] == "evaluation"]
            assert page["description"] == "results in v2" and page["data"].count("| cpu |") == 1

            nowhere = {"base_url": "http://127.0.0.1:9/v1", "backoff": 0.01}
            unreached = start(prefect, "evaluate-model", author="llm", model="m", limit=1, device="cpu", llm=nowhere)
            pushed = start(prefect, "push-splits", repo="owner/passnet")
            assert "is not reached" in finished(prefect, unreached)["message"]
            for run in (pushed, rebuilt):
                state = finished(prefect, run)
                assert state["type"] == "COMPLETED", f"{state}\n{log.read_text()[-3000:]}"
            assert "v2" in hub.repo("owner/passnet").tags
            assert Store(data_dir).latest().name == "v2", "a rebuild of the same catalogue publishes nothing new"

        told = log.read_text()
        assert "127.0.0.1:9/v1 is not reached" in told and "Traceback" not in told
        leases = Path(prefect.environment["PREFECT_HOME"]) / "concurrency_leases"
        assert leases.is_dir(), "slots of deployments survive a server, as docs/operating.md says"


def test_a_run_that_its_caller_can_put_right_fails_once_and_in_one_line(prefect, tmp_path, warm_forks):
    done = warm_forks.run(RUNS, environment=prefect.environment, directory=tmp_path)
    told = [line for line in done.stdout.splitlines() if line.startswith("TRIED")]
    assert told == [
        "TRIED caller 1 PassNetError the message of caller",
        "TRIED busy 2 Busy the message of busy",
        "TRIED bug 2 ValueError the message of bug",
    ], done.stderr[-3000:]
    before = done.stderr.split("the message of busy")[0]
    assert "the message of caller" in before and "Traceback" not in before


def test_an_unknown_author_is_not_tried_again(prefect, tmp_path):
    server = {PREFECT_API_URL: prefect.environment["PREFECT_API_URL"], PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(server):
        state = evaluate_model(author="nobody", data=str(tmp_path), return_state=True)
    assert state.is_failed() and "nobody" in state.message
    runs = call(prefect, "flow_runs/filter", {"flows": {"name": {"any_": ["evaluate-model"]}}})
    (run,) = (run for run in runs if "nobody" in (run["state"]["message"] or ""))
    assert run["run_count"] == 1 and run["state_type"] == "FAILED"


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "there"])
def test_a_run_that_is_told_to_end_does_so_within_seconds(prefect, tmp_path, warm_forks, gone):
    port = int(prefect.environment["PREFECT_API_URL"].rpartition(":")[2].partition("/")[0])
    with a_way_to(port) as way:
        environment = prefect.environment | {"PREFECT_API_URL": f"http://127.0.0.1:{way}/api"}
        out = tmp_path / "out"
        with open(os.devnull, "rb") as null, out.open("wb") as file:
            files = (null.fileno(), file.fileno(), file.fileno())
            run = warm_forks.start(SLEEPS, files=files, environment=environment, directory=tmp_path)
        deadline = time.monotonic() + 60
        while "BEGUN" not in out.read_text():
            assert time.monotonic() < deadline, out.read_text()
            time.sleep(0.1)
        if not gone:
            run.terminate()
            assert run.wait(20) != 0
    if gone:
        run.terminate()
        assert run.wait(6) == 128 + signal.SIGTERM
    wanted = {"flows": {"name": {"any_": ["sleeps"]}}, "sort": "START_TIME_DESC", "limit": 1}
    (told,) = call(prefect, "flow_runs/filter", wanted)
    assert told["state_type"] == ("RUNNING" if gone else "CRASHED")


def test_outside_of_a_flow_run_it_is_raised(tmp_path):
    with pytest.raises(PassNetError, match="no author"):
        evaluate_model.fn(author="nobody", data=str(tmp_path))
