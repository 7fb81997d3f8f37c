"""Several devices: two slots of the CPU do what one does, a process that is lost costs nothing, limits hold for all."""

import logging
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.author import Attempt, Baseline, Submission
from agent.llm.author import Llm
from agent.llm.options import LlmOptions
from agent.run.evaluation_run import EvaluationRun, lots
from flows.evaluate.bench_process import BenchProcess
from flows.evaluate.devices import LEAST_CORES, core_shares, resolve_devices
from flows.evaluate.local_benches import BenchProcesses, OneBench
from flows.evaluate.samples import ROUNDS, Ended, evaluate_samples
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.records import Sample
from tests.passbench.samples import add_relu_sample, sample
from tests.support.llm_server import LlmServer, Reply, steps

VOLATILE = {
    "timings",
    "error_eager",
    "error_candidate",
    "seconds",
    "surroundings",
    "speedup_e2e",
    "speedup_device",
    "e2e",
    "run",
    "seed",
    "busy",
    "device_note",
    "phases",
}
"""Columns of results that a second measurement changes."""

SIZES = range(3, 9)
QUICK = Settings(draws=2, calls=4, batch=2, warmup=2, repeats=0, double=False)


def named(name: str, *shapes: tuple[int, ...]) -> Sample:
    variants = tuple(v.with_changes(variant_hash=f"{name}{n}") for n, v in enumerate(add_relu_sample(*shapes).variants))
    return Sample(f"fusible-{name}", name, "fusible", "eval", variants)


SAMPLE_LIST = [named(f"n{size}", (size, 40), (5, size)) for size in SIZES]


@pytest.fixture(scope="module")
def benches() -> Iterator[BenchProcesses]:
    """Two slots of the CPU; a process takes seconds to start."""
    with BenchProcesses(["cpu", "cpu"], QUICK) as benches:
        yield benches
    deadline = time.monotonic() + 60
    while multiprocessing.active_children():
        assert time.monotonic() < deadline, "a process goes on after its bench is closed"
        time.sleep(0.1)


def steady(rows: list[dict]) -> list[dict]:
    """Rows without what a second measurement changes."""
    return [{name: value for name, value in row.items() if name not in VOLATILE} for row in rows]


def parts(run: EvaluationRun) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.directory.glob("*.parquet")}


def test_two_devices_do_what_one_does_and_repeat_nothing(benches, tmp_path):
    one, two = (EvaluationRun("r", Baseline("eager", "eager"), tmp_path / n, 1, gpu=False) for n in ("one", "two"))
    with OneBench(QUICK) as bench:
        assert evaluate_samples(one, SAMPLE_LIST, bench) == Ended()
    assert evaluate_samples(two, SAMPLE_LIST[:4], benches) == Ended()
    done = parts(two)
    assert evaluate_samples(two, SAMPLE_LIST, benches) == Ended()
    assert {path: parts(two)[path] for path in done} == done
    assert steady(two.rows(SAMPLE_LIST)) == steady(one.rows(SAMPLE_LIST))
    assert [use["device"] for use in benches.uses()] == ["cpu", "cpu"]
    assert sum(use["lots"] for use in benches.uses()) == len(SAMPLE_LIST)


def test_lines_of_the_log_say_which_run_sample_and_variant_they_are_about(benches, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="passnet")
    one = SAMPLE_LIST[0]
    expected = {("r", one.sample, variant) for variant in ("", *(v.variant_hash for v in one.variants))}

    def lines() -> set[tuple[str, str, str]]:
        return {(r.run, r.sample, getattr(r, "variant", "")) for r in caplog.records if hasattr(r, "sample")}

    run = EvaluationRun("r", Baseline("eager", "eager"), tmp_path, 1, gpu=False)
    assert evaluate_samples(run, [one], benches) == Ended()
    deadline = time.monotonic() + 10
    while lines() != expected and time.monotonic() < deadline:  # they come from another process
        time.sleep(0.05)
    assert lines() == expected


def test_what_a_step_raises_is_raised_here_and_the_rest_is_not_begun(benches, tmp_path):
    run = EvaluationRun("odd", Baseline("odd", "no such compiler"), tmp_path, 1, gpu=False)
    with pytest.raises(PassNetError, match="compiler 'no such compiler' is unknown"):
        evaluate_samples(run, SAMPLE_LIST, benches)
    assert not parts(run)


def test_a_models_budget_is_one_for_all_devices(benches, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    files = {"name": "sorted_output_pass_rule_names.json", "content": "[]"}
    with LlmServer(steps(Reply([("write_file", files)]), Reply([("submit", {})]))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)

        def evaluate(**limits: float) -> tuple[Ended, list[dict]]:
            author = Llm("openai-chat:scripted", LlmOptions(price=(1e6, 1e6), backoff=0.01, **limits))
            run = EvaluationRun("llm", author, tmp_path, 1, gpu=False)
            run.begin()
            return evaluate_samples(run, SAMPLE_LIST, benches), run.rows(SAMPLE_LIST)

        ended, _ = evaluate(run_cost_usd=1e-3)
        assert "the run has used" in ended.stopped
        assert len(server.requests) <= benches.count, "one that was under way on each"
        ended, rows = evaluate()
    assert ended == Ended() and {row["sample"] for row in rows} == {s.sample for s in SAMPLE_LIST}
    assert len(server.requests) == 2 * len(SAMPLE_LIST), "no step is repeated"


class Fatal(Baseline):
    """An author that takes its process with it at one sample."""

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        if sample.sample == SAMPLE_LIST[1].sample:
            os._exit(1)
        return super().attempt(sample, directory, attempt)


def test_a_lost_process_is_replaced_and_a_sample_that_ends_it_each_time_is_named(benches, tmp_path):
    run = EvaluationRun("fatal", Fatal("fatal", "eager"), tmp_path, 1, gpu=False)
    ended = evaluate_samples(run, SAMPLE_LIST, benches)
    assert ended.lost == (SAMPLE_LIST[1].sample,)
    assert sum(use["lost"] for use in benches.uses()) == ROUNDS
    assert {row["sample"] for row in run.rows(SAMPLE_LIST)} == {s.sample for s in SAMPLE_LIST} - set(ended.lost)


@given(st.integers(0, 200), st.integers(1, 30), st.integers(1, 8))
def test_lots_hold_every_sample_once_in_order_and_end_small(count, most, devices):
    left = list(enumerate([sample()] * count))
    cut = lots(left, most, devices, count)
    assert [number for lot in cut for number, _ in lot.samples] == list(range(count))
    assert all(0 < len(lot.samples) <= most for lot in cut)
    if devices > 1 and count:
        assert len(cut[-1].samples) == 1, "no device waits long for the last"


@given(st.integers(1, 64))
def test_devices_share_the_cores(count):
    available = os.sched_getaffinity(0)
    shares = core_shares(count)
    assert len(shares) == count and all(share <= available for share in shares)
    if len(available) // count < LEAST_CORES:
        assert all(share == available for share in shares)
    else:
        assert sum(map(len, shares)) == len(set().union(*shares)) and min(map(len, shares)) >= LEAST_CORES


@pytest.mark.parametrize(
    ("name", "found"), [("cpu", ["cpu"]), ("cpu:1", ["cpu"]), ("cpu:3", ["cpu"] * 3), ("cpu,cpu", ["cpu"] * 2)]
)
def test_names_of_devices(name, found):
    assert resolve_devices(name) == found


@pytest.mark.parametrize("name", ["toaster", "cpu,toaster", "cuda:77", "cpu,cuda:77", "mps", ""])
def test_what_is_no_device_is_said(name):
    with pytest.raises(PassNetError, match=r"device|GPU|runs on"):
        resolve_devices(name)


@pytest.mark.gpu
def test_gpus_are_taken_once_each():
    count = torch.cuda.device_count()
    assert resolve_devices("auto") == (["cuda"] if count == 1 else [f"cuda:{n}" for n in range(count)])
    for name in ("cuda,cuda:0", "cpu,cuda"):
        with pytest.raises(PassNetError, match="twice, or GPUs beside the CPU"):
            resolve_devices(name)


@pytest.mark.gpu
def test_a_process_of_the_gpu_that_is_named_without_a_number():
    one = BenchProcess("cuda", Settings(), set(os.sched_getaffinity(0)))
    one.start()
    one.close()
