"""The three deployments on a real server, with a real process worker, from the command line."""

import json

from storage.versions import Store
from tests.flows.prefect_server import prefect_server
from tests.support.hub_server import HubServer


def test_all_three_deployments_run_to_completion(data_dir, tmp_path):
    with prefect_server(tmp_path) as prefect, HubServer() as hub:
        prefect.environment |= {
            "PASSNET_DATA": str(data_dir),
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": "hf_owner",
            "HF_HUB_OFFLINE": "0",
        }
        assert prefect("work-pool", "create", "local", "--type", "process").returncode == 0
        deployed = prefect("deploy", "--all")
        assert deployed.returncode == 0, deployed.stdout + deployed.stderr
        listed = json.loads(prefect("deployment", "ls", "-o", "json").stdout or "[]")
        names = {d["name"] for d in listed}
        assert names == {"build-dataset", "evaluate-model", "push-splits"}

        log = tmp_path / "worker.log"
        with prefect.background(log, "worker", "start", "--pool", "local"):

            def run(name, *parameters):
                given = [part for parameter in parameters for part in ("-p", parameter)]
                return prefect("deployment", "run", f"{name}/{name}", "--watch", "--watch-interval", "1", *given)

            evaluated = run("evaluate-model", "author=eager", "limit=2", "device=cpu")
            assert evaluated.returncode == 0, evaluated.stdout + log.read_text()[-3000:]
            latest = Store(data_dir).latest()
            assert latest.name == "v2"
            assert latest.manifest.flow_run
            assert set(latest.table("results")["author"].to_pylist()) == {"eager"}

            pushed = run("push-splits", "repo=owner/passnet")
            assert pushed.returncode == 0, pushed.stdout + log.read_text()[-3000:]
            assert "v2" in hub.repo("owner/passnet").tags

            catalog = Store(data_dir).open("v1").manifest.parameters["catalog"]
            rebuilt = run("build-dataset", f'catalog="{catalog}"')
            assert rebuilt.returncode == 0, rebuilt.stdout + log.read_text()[-3000:]
            assert Store(data_dir).latest().name == "v2", "a rebuild of the same catalogue publishes nothing new"

            failed = run("evaluate-model", "author=nobody")
            assert failed.returncode != 0
        assert "Traceback" not in log.read_text().split("nobody")[0]
