"""The three deployments on a real server, with a real process worker, from the command line and through the API."""

import json
import time
import urllib.request
from typing import Any

from storage.versions import Store
from tests.flows.prefect_server import Prefect, prefect_server
from tests.support.hub_server import HubServer

NAMES = ("build-dataset", "evaluate-model", "push-splits")


def call(prefect: Prefect, path: str, body: dict | None = None) -> Any:
    """What the server's API answers to a GET, or a POST of `body`."""
    request = urllib.request.Request(
        f"{prefect.environment['PREFECT_API_URL']}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def start(prefect: Prefect, name: str, **parameters: object) -> str:
    """Ask for a run of a deployment, as `prefect deployment run` does; its id."""
    deployment = call(prefect, f"deployments/name/{name}/{name}")["id"]
    return call(prefect, f"deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"]


def finished(prefect: Prefect, run: str) -> dict:
    """The run's last state."""
    deadline = time.monotonic() + 240
    while (state := call(prefect, f"flow_runs/{run}")["state"])["type"] not in ("COMPLETED", "FAILED", "CRASHED"):
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    return state


def test_all_three_deployments_run_to_completion(data_dir, tmp_path):
    with prefect_server(tmp_path) as prefect, HubServer() as hub:
        prefect.environment |= {
            "PASSNET_DATA": str(data_dir),
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": "hf_owner",
            "HF_HUB_OFFLINE": "0",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        }
        assert prefect("work-pool", "create", "local", "--type", "process").returncode == 0
        log = tmp_path / "worker.log"
        with prefect.background(log, "worker", "start", "--pool", "local"):
            deployed = prefect("deploy", "--all")
            assert deployed.returncode == 0, deployed.stdout + deployed.stderr
            assert {d["name"] for d in call(prefect, "deployments/filter", {})} == set(NAMES)

            given = [part for p in ("author=eager", "limit=2", "device=cpu") for part in ("-p", p)]
            watch = ("--watch", "--watch-interval", "1")
            evaluated = prefect("deployment", "run", "evaluate-model/evaluate-model", *watch, *given)
            assert evaluated.returncode == 0, evaluated.stdout + log.read_text()[-3000:]
            latest = Store(data_dir).latest()
            assert latest.name == "v2"
            assert latest.manifest.flow_run
            assert set(latest.table("results")["author"].to_pylist()) == {"eager"}

            catalog = Store(data_dir).open("v1").manifest.parameters["catalog"]
            pushed = start(prefect, "push-splits", repo="owner/passnet")
            rebuilt = start(prefect, "build-dataset", catalog=catalog)
            for run in (pushed, rebuilt):
                state = finished(prefect, run)
                assert state["type"] == "COMPLETED", f"{state}\n{log.read_text()[-3000:]}"
            assert "v2" in hub.repo("owner/passnet").tags
            assert Store(data_dir).latest().name == "v2", "a rebuild of the same catalogue publishes nothing new"

            state = finished(prefect, start(prefect, "evaluate-model", author="nobody"))
            assert state["type"] == "FAILED" and "nobody" in state["message"], state
        assert "Traceback" not in log.read_text().split("nobody")[0]
