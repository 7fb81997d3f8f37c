"""Processes that write passes ahead: what they answer, what is left of those that die, and who has the GPU."""

import os
import threading
import time
from dataclasses import dataclass, replace

import pytest
import torch

from agent.ahead import author_pool
from agent.ahead.author_pool import Answers, AuthorPool
from agent.ahead.gpu_turns import GpuTurns
from agent.ahead.written_ahead import WrittenAhead
from agent.author import Author, Submission
from storage.errors import PassNetError
from tests.agent.support import lent, sample, tensor, variant


@dataclass(frozen=True)
class Scripted(Author):
    """Does what a sample's name says."""

    name: str = "scripted"

    def attempt(self, sample, directory, attempt):
        what = sample.sample.partition("-")[0]
        if what == "dies":
            os._exit(3)
        if what == "hangs":
            time.sleep(600)
        if what == "declines":
            return Submission("eager", reason="not worth it")
        return self._written(sample, directory)

    def fallback(self, sample, directory, attempt):
        what = sample.sample.split("-")[-1]
        if what == "worse":
            os._exit(4)
        return self._written(sample, directory) if what == "back" else None

    def _written(self, sample, directory):
        directory.mkdir(parents=True)
        (directory / "names.json").write_text(f"{sample.sample} {os.getpid()}")
        return Submission("pass", directory)


def named(*names):
    one = sample(variant(lambda x: torch.relu(x), tensor(4)))
    return [replace(one, sample=name) for name in names]


def run(tmp_path, samples, processes=2, **fields):
    pool = AuthorPool(Scripted(), samples, Answers(tmp_path), torch.device("cpu"), processes, {0}, **fields)
    pool.start()
    try:
        while pool.at_work:
            pool.tend()
            time.sleep(0.05)
    finally:
        pool.close()
    return pool.answers


def test_every_sample_is_answered_once_whatever_happens_to_its_author(tmp_path):
    samples = named("writes-1", "dies-1", "declines-1", "writes-2", "writes-3")
    answers = run(tmp_path, samples)
    first, died, declined, *others = (answers.of(one) for one in samples)
    assert all(one.compiler == "pass" for one in (first, *others))
    assert declined == Submission("eager", reason="not worth it")
    assert died.declined and "status 3" in died.reason
    text = (first.pass_dir / "names.json").read_text()
    assert run(tmp_path, samples).of(samples[0]) == first and (first.pass_dir / "names.json").read_text() == text


def test_a_sample_that_takes_too_long_is_left_to_eager(tmp_path):
    samples = named("hangs-1", "writes-1")
    answers = run(tmp_path, samples, processes=1, seconds=1.0)
    assert answers.of(samples[0]).declined and answers.of(samples[1]).compiler == "pass"


def test_what_an_author_has_is_handed_in_where_an_attempt_ends_before_its_answer(tmp_path):
    """typical-bd9fc520d751 was left to eager when its search had taken too long, with a pass that was 1.5 times as
    fast."""
    samples = named("hangs-back", "dies-worse")
    answers = run(tmp_path, samples, seconds=1.0)
    back, worse = (answers.of(one) for one in samples)
    assert back.compiler == "pass" and (back.pass_dir / "names.json").read_text().startswith("hangs-back")
    assert worse.declined and "status 4" in worse.reason


@pytest.mark.parametrize("device", ["cuda:63", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_process_that_ends_before_it_has_a_sample_is_started_a_few_times(device, tmp_path, monkeypatch):
    """It was started again and again. There is no 64th GPU, and on the first one all memory is taken."""
    monkeypatch.setattr(author_pool, "_LATER", (0.1,))
    pool = AuthorPool(Scripted(), named("writes-1"), Answers(tmp_path), torch.device(device), 2, {0})
    full = device == "cuda:0"
    taken = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device=device) if full else None
    pool.start()
    pool.finish(time.monotonic() + 60)
    del taken
    (stopped,) = pool.answers.stopped()
    assert (stopped.number, stopped.starts, stopped.status, stopped.lacked_memory) == (0, 2, 1, full)
    assert stopped.reason and pool.answers.of(pool.samples[0]) is None
    pool.start()
    pool.close()
    assert pool.answers.stopped() == [], "another run tries again"


def test_a_pool_that_is_started_again_has_all_of_its_starts(tmp_path, monkeypatch):
    """Its processes were given up at the first end without a sample, as the third in a row."""
    monkeypatch.setattr(author_pool, "_LATER", (0.1,))
    pool = AuthorPool(Scripted(), named("writes-1"), Answers(tmp_path), torch.device("cuda:63"), 1, {0})
    for _ in range(2):
        pool.start()
        pool.finish(time.monotonic() + 60)
        assert [one.starts for one in pool.answers.stopped()] == [2]


def test_a_sample_has_all_of_its_time_when_its_pool_is_started_again(tmp_path):
    """The time since the first start counted, so that its process was ended at the first look."""
    (one,) = named("hangs-1")
    pool = AuthorPool(Scripted(), [one], Answers(tmp_path), torch.device("cpu"), 1, {0}, seconds=600.0)
    for seconds in (600.0, 0.5):
        pool.seconds = seconds
        pool.start()
        while pool.answers.claimed_by(one) is None:
            time.sleep(0.05)
        pool.tend()
        assert pool.answers.ended(one) == ""
        time.sleep(0.6)  # more than the second start allows
        pool.close()


def test_a_pool_waits_for_no_process_that_has_nothing_to_do(tmp_path, monkeypatch):
    """The other process answers the sample while one that has ended without a sample is to start later."""
    monkeypatch.setattr(author_pool, "_LATER", (600.0,))
    answers, samples = Answers(tmp_path), named("writes-1")
    pool = AuthorPool(Scripted(), samples, answers, torch.device("cuda:63"), 1, {0})
    pool.start()
    while pool._running:
        pool.tend()
        time.sleep(0.05)
    assert pool.at_work and pool.answers.stopped() == []
    answers.keep(samples[0], Submission("eager", reason="by another process"))
    pool.tend()
    assert not pool.at_work


def test_a_pool_finishes_when_all_is_answered_or_its_time_is_over(tmp_path):
    samples = named("writes-1", "hangs-1")
    pool = AuthorPool(Scripted(), samples[:1], Answers(tmp_path), torch.device("cpu"), 1, {0})
    pool.start()
    pool.finish(time.monotonic() + 300)
    assert pool.answers.of(samples[0]).compiler == "pass"
    pool = AuthorPool(Scripted(), samples, Answers(tmp_path), torch.device("cpu"), 1, {0})
    pool.start()
    pool.finish(time.monotonic())
    assert not pool.at_work and pool.answers.of(samples[1]) is None


def test_what_a_killed_pool_has_claimed_is_worked_on_again(tmp_path):
    (one,) = named("writes-1")
    answers = Answers(tmp_path)
    assert answers.claim(one) and not answers.claim(one)
    answers.place(one).mkdir()
    (answers.place(one) / "half.py").touch()
    assert run(tmp_path, [one]).of(one).compiler == "pass"
    assert [path.name for path in answers.place(one).iterdir()] == ["names.json"]


def test_what_is_written_is_handed_in_under_the_authors_name(tmp_path):
    samples = named("writes-1", "declines-1", "writes-2")
    author = WrittenAhead(Scripted(), run(tmp_path / "ahead", samples[:2]))
    assert author.name == "scripted" and not author.measures
    handed = author.attempt(samples[0], tmp_path / "place", lent())
    assert handed == Submission("pass", tmp_path / "place") and (tmp_path / "place" / "names.json").exists()
    assert author.attempt(samples[1], tmp_path / "other", lent()).declined
    with pytest.raises(PassNetError, match="writes-2"):
        author.attempt(samples[2], tmp_path / "none", lent())


def _order(directory):
    """Who has turns, where two authors ask while a benchmark has its first of two."""
    turns, order, asking = GpuTurns(directory), [], threading.Barrier(3)

    def author(name):
        asking.wait()
        with turns.author():
            order.append(name)
            time.sleep(0.1)
            order.append(name)

    threads = [threading.Thread(target=author, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    with turns.benchmark():
        asking.wait()
        time.sleep(0.3)
        order.append("benchmark")
    with turns.benchmark():
        order.append("benchmark")
    for thread in threads:
        thread.join()
    return order


def test_a_benchmark_waits_for_the_authors_that_wait(tmp_path):
    """Its next turn comes after both, unless the host gives an author no core for as long as the benchmark waits."""
    orders = []
    while not orders or (orders[-1][-1] != "benchmark" and len(orders) < 4):
        orders.append(_order(tmp_path))
        authors = [one for one in orders[-1] if one != "benchmark"]
        assert authors in ([1, 1, 2, 2], [2, 2, 1, 1]), "one at a time"
    assert orders[-1][0] == orders[-1][-1] == "benchmark"


def test_authors_that_take_no_times_use_the_gpu_together_and_never_beside_one_that_does(tmp_path):
    turns, both, order = GpuTurns(tmp_path), threading.Barrier(2, timeout=20), []

    def untimed():
        with turns.untimed():
            both.wait()  # would break if only one of them were in
            time.sleep(0.2)
            order.append("untimed")

    threads = [threading.Thread(target=untimed) for _ in range(2)]
    for thread in threads:
        thread.start()
    while both.n_waiting == 0 and not both.broken and not order:
        time.sleep(0.01)
    with turns.author():
        order.append("timed")
    for thread in threads:
        thread.join()
    assert order == ["untimed", "untimed", "timed"]
