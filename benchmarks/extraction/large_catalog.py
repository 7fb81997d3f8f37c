"""`build-dataset` of a large catalogue on a real Prefect server: what orchestration costs.

    python3 benchmarks/extraction/large_catalog.py --entries 5000 --workers 2 --out DIR

The catalogue lists models of a Hub on loopback, with configs of a few small real models; each is there many times, as
fine-tunes are: under other names, with other labels. All configs are fetched, normalised and hashed, each architecture
is traced once. Orchestration is what the flow's process waits for Prefect: around each task's own work, for artifacts,
and before and after the flow's body. Run again with the same DIR, it goes on where it stopped. Writes
DIR/large_catalog.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

_SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64}
MODELS = (
    ("bert", "BertModel", _SMALL | {"vocab_size": 100}),
    ("roberta", "RobertaModel", _SMALL | {"vocab_size": 100}),
    ("electra", "ElectraModel", _SMALL | {"vocab_size": 100, "embedding_size": 16}),
    ("distilbert", "DistilBertModel", {"dim": 32, "n_heads": 2, "n_layers": 1, "hidden_dim": 64, "vocab_size": 100}),
    ("gpt2", "GPT2Model", {"n_embd": 32, "n_head": 2, "n_layer": 1, "vocab_size": 100}),
    ("llama", "LlamaModel", _SMALL | {"vocab_size": 100, "num_key_value_heads": 1}),
    ("vit", "ViTModel", _SMALL | {"image_size": 32, "patch_size": 16}),
    ("deit", "DeiTModel", _SMALL | {"image_size": 32, "patch_size": 16}),
)
"""Types, classes and sizes of the models; each is there with two activations."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # the flow's process
    arguments = parser.parse_args()
    build(arguments) if arguments.inside else measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Write the catalogue, start a server, run the flow in a process of its own, and note what both took."""
    from storage.versions.provenance import library_versions
    from tests.flows.prefect_server import prefect_server
    from tests.support.hub_server import HubServer

    home = arguments.out / "server"
    home.mkdir(parents=True, exist_ok=True)
    load = [os.getloadavg()]
    with prefect_server(home) as prefect, HubServer() as hub:
        names = put_models(hub, arguments.entries)
        (arguments.out / "catalog.txt").write_text("".join(f"hub:{name}\n" for name in names))
        prefect.environment |= {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str((arguments.out / "hf").resolve()),
            "HF_HUB_OFFLINE": "0",
        }
        begin = time.monotonic()
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--inside"], env=prefect.environment, check=True)
        seconds = time.monotonic() - begin
        load.append(os.getloadavg())
        record = json.loads((arguments.out / "inside.json").read_text())
        record |= {"process_seconds": seconds} | of_server(prefect, home)
    record |= {
        "entries": arguments.entries,
        "workers": arguments.workers,
        "cores": len(os.sched_getaffinity(0)),
        "load": load,
        "kernel": platform.release(),
        "libraries": library_versions(),
    }
    (arguments.out / "large_catalog.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


def of_server(prefect, home: Path) -> dict:
    """What a server with its database in `home` holds."""
    return {
        "server_peak_mib": peak_mib(server_pid(prefect)),
        "server_database_mib": sum(path.stat().st_size for path in home.glob("prefect.db*")) / 2**20,
        "task_runs": count(prefect, "task_runs"),
        "flow_runs": count(prefect, "flow_runs"),
        "logs": len_logs(home),
    }


def put_models(hub, count: int) -> list[str]:
    """Put the models of the catalogue on the Hub; their names."""
    names = []
    for number in range(count):
        kind, architecture, sizes = MODELS[number % len(MODELS)]
        other = number // len(MODELS) % 2
        act = {"distilbert": "activation", "gpt2": "activation_function"}.get(kind, "hidden_act")
        config = {
            "model_type": kind,
            "architectures": [architecture],
            **sizes,
            act: "relu" if other else "gelu",
            "_name_or_path": f"base/{kind}",
            "id2label": {"0": f"label {number}", "1": "other"},
        }
        names.append(f"org{number % 97}/{kind}-{number}")
        hub.put("model", names[-1], {"config.json": json.dumps(config).encode()})
    return names


def build(arguments: argparse.Namespace) -> None:
    """The flow, with a clock around each call of Prefect's."""
    import prefect
    from prefect import artifacts

    begin_import = time.monotonic()
    from flows.build_dataset import build_dataset

    waited = {"tasks": 0.0, "artifacts": 0.0}
    tasks, inner = 0, 0.0
    task = prefect.task

    def timed_task(step, **options):
        def inside(item):
            nonlocal inner
            begin = time.perf_counter()
            try:
                return step(item)
            finally:
                inner += time.perf_counter() - begin

        run = task(inside, **options)

        def outside(item):
            nonlocal tasks, inner
            begin, before = time.perf_counter(), inner
            result = run(item)
            waited["tasks"] += time.perf_counter() - begin - (inner - before)
            tasks += 1
            return result

        return outside

    def timed(function):
        def call(*given, **options):
            begin = time.perf_counter()
            result = function(*given, **options)
            waited["artifacts"] += time.perf_counter() - begin
            return result

        return call

    prefect.task = timed_task
    for name in ("create_markdown_artifact", "create_progress_artifact", "update_progress_artifact"):
        setattr(artifacts, name, timed(getattr(artifacts, name)))
    body = build_dataset.fn
    in_body = 0.0

    def timed_body(*given, **options):
        nonlocal in_body
        begin = time.perf_counter()
        result = body(*given, **options)
        in_body = time.perf_counter() - begin
        return result

    build_dataset.fn = timed_body
    begin = time.perf_counter()
    done = build_dataset(
        catalog=str(arguments.out / "catalog.txt"), data=str(arguments.out / "data"), workers=arguments.workers
    )
    flow = time.perf_counter() - begin
    waited["flow"] = flow - in_body
    record = {
        "flow_seconds": flow,
        "orchestration_seconds": waited,
        "orchestration_share": sum(waited.values()) / flow,
        "tasks_timed": tasks,
        "flow_peak_mib": peak_mib(os.getpid()),
        "import_seconds": begin - begin_import,
        "summary": {k: v for k, v in done.items() if k not in ("failures", "path")},
        "failed": len(done["failures"]),
    }
    (arguments.out / "inside.json").write_text(json.dumps(record, indent=1) + "\n")


def peak_mib(pid: int) -> float:
    """The most memory that a process has had resident, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} tells no VmHWM")


def server_pid(prefect) -> int:
    """The process that listens on the server's port."""
    port = prefect.environment["PREFECT_API_URL"].rpartition(":")[2].partition("/")[0]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if port.encode() in words and b"server" in words:
            return int(path.parent.name)
    raise OSError(f"nothing serves port {port}")


def count(prefect, what: str) -> int:
    """How many there are on the server."""
    request = urllib.request.Request(
        f"{prefect.environment['PREFECT_API_URL']}/{what}/count",
        data=b"{}",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def len_logs(home: Path) -> int:
    """Lines of log that the server keeps."""
    import sqlite3

    with sqlite3.connect(f"file:{home}/prefect.db?mode=ro", uri=True) as database:
        return database.execute("select count(*) from log").fetchone()[0]


if __name__ == "__main__":
    main()
