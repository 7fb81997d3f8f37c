"""Workers that misbehave cost themselves alone."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extraction.failures import classify_end
from extraction.pool import server, watch
from extraction.pool.client import Pool, TaskReply, run_tasks
from storage.errors import PassNetError
from tests.support.processes import below, wait_for_end

TASK = "tests.extraction.pool.hostile:run"
ROOT = Path(__file__).parents[3]


def run(
    *kinds: str, workers: int = 2, timeout_s: float = 60.0, memory_mb: int = 256, **payload: object
) -> list[TaskReply]:
    payloads = [{"do": kind, "number": number, **payload} for number, kind in enumerate(kinds)]
    return list(run_tasks(TASK, payloads, workers=workers, timeout_s=timeout_s, memory_mb=memory_mb))


def by_kind(replies: list[TaskReply]) -> dict[str, TaskReply]:
    return {reply.payload["do"]: reply for reply in replies}


def category(reply: TaskReply) -> str:
    return classify_end(reply.end, reply.code, reply.log)[0]


def test_every_task_gets_a_process_of_its_own() -> None:
    replies = run(*["answer"] * 8)
    assert sorted(reply.answer["number"] for reply in replies) == list(range(8))
    assert len({reply.answer["pid"] for reply in replies}) == 8
    assert all(reply.completed for reply in replies)


def test_bad_tasks_end_in_their_categories_while_others_complete() -> None:
    bad = ["loop", "segfault", "killed", "exit", "raise", "memory", "print", "close"]
    replies = run(*bad, *["answer"] * 4, timeout_s=3.0, memory_mb=64)
    ends = by_kind(replies)
    assert category(ends["loop"]) == "timeout"
    assert category(ends["segfault"]) == "crashed"
    assert (ends["segfault"].end, ends["segfault"].code) == ("signal", signal.SIGSEGV)
    assert "about to read address 0" in ends["segfault"].log
    assert category(ends["killed"]) == "out_of_memory"
    assert category(ends["memory"]) == "out_of_memory"
    assert (ends["exit"].end, ends["exit"].code, category(ends["exit"])) == ("exit", 3, "crashed")
    assert "no such luck" in classify_end("exit", ends["raise"].code, ends["raise"].log)[1]
    assert ends["print"].answer == "printed"
    assert len(ends["print"].log) <= 16_384
    assert ends["print"].log.endswith("the last line\n")
    assert ends["close"].answer == "closed"
    assert sum(reply.completed for reply in replies if reply.payload["do"] == "answer") == 4


def test_the_last_complete_answer_counts_however_the_worker_ends() -> None:
    replies = by_kind(run("answer_then_loop", "os_exit", timeout_s=1.0))
    assert (replies["answer_then_loop"].answer, replies["answer_then_loop"].end) == ("first", "timeout")
    assert replies["os_exit"].answer == "said before"


def test_a_worker_that_ends_between_two_looks_has_met_its_limit_all_the_same() -> None:
    assert {reply.end for reply in run(*["answer"] * 8, timeout_s=0.0001)} == {"timeout"}


def test_a_limit_of_the_machine_that_is_lower_stays() -> None:
    """Raising it would be refused, and each model would crash."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        server._lower(resource.RLIMIT_FSIZE, 2 << 20, 2 << 20)
        os._exit(int(resource.getrlimit(resource.RLIMIT_FSIZE) != (1 << 20, 1 << 20)))
    assert os.waitpid(child, 0)[1] == 0


def test_big_answers_pass_a_slow_reader() -> None:
    replies = []
    payloads = [{"do": "big_answer", "size": 3_000_000}] * 4
    for reply in run_tasks(TASK, payloads, workers=2, timeout_s=20, memory_mb=256):
        time.sleep(0.3)
        replies.append(len(reply.answer))
    assert replies == [3_000_000] * 4


def test_children_are_killed_with_their_worker() -> None:
    (reply,) = run("children", timeout_s=10)
    assert len(reply.answer) == 3
    assert wait_for_end(reply.answer, 5) == []


def test_working_and_temporary_directories_are_scratch() -> None:
    (reply,) = run("write")
    cwd, temporary = reply.answer
    assert cwd == temporary
    assert not Path(cwd).exists()
    assert not Path("left-behind").exists()


def test_closing_the_iterator_kills_the_workers_at_once() -> None:
    others = set(below(os.getpid()))  # other tests' helpers
    never = {**LIMITS, "timeout_s": 10_000}  # workers that are waited for stop the test itself
    replies = run_tasks(TASK, [{"do": "answer", "number": 0}, *[{"do": "loop"}] * 3], **never)
    next(replies)
    processes = [pid for pid in below(os.getpid()) if pid not in others]
    assert len(processes) >= 2
    replies.close()
    assert wait_for_end(processes, 5) == []


def test_a_pool_keeps_its_server_from_run_to_run_and_replaces_it_after_a_run_that_was_left() -> None:
    others = set(below(os.getpid()))

    def servers() -> list[int]:
        return [pid for pid in below(os.getpid()) if pid not in others]

    with Pool(**LIMITS) as pool:
        runs = pool.run(TASK, [{"do": "answer", "number": 0}])
        next(runs)
        (first,) = servers()
        runs.close()
        assert len(list(pool.run(TASK, [{"do": "answer", "number": n} for n in range(3)]))) == 3
        assert servers() == [first]
        left = pool.run(TASK, [{"do": "answer", "number": 0}, {"do": "loop"}, {"do": "loop"}])
        next(left)
        left.close()
        assert wait_for_end([first], 5) == []
        (reply,) = pool.run(TASK, [{"do": "answer", "number": 7}])
        assert reply.completed
        assert len(servers()) == 1
    assert servers() == []


LIMITS = {"workers": 2, "timeout_s": 60, "memory_mb": 256}
SCRIPT = f"""
import sys
print("imported", flush=True)
from extraction.pool.client import run_tasks
from tests.support.processes import below
payloads = [{{"do": "answer", "number": 0}}, {{"do": "loop"}}, {{"do": "loop"}}]
for reply in run_tasks({TASK!r}, payloads, **{LIMITS!r}):
    import os, time
    time.sleep(0.3)
    print(*below(os.getpid()), flush=True)
"""


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGKILL, False)],
)
def test_a_signal_to_the_parent_ends_everything_without_noise(number: signal.Signals, to_all: bool) -> None:
    """Ctrl-C in a terminal reaches the parent and the server; `kill` the parent alone."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "imported\n"
    processes = [int(pid) for pid in process.stdout.readline().split()]
    assert len(processes) >= 2
    if to_all:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert wait_for_end(processes, 5) == []
    assert "imported" not in output  # nothing imports the caller's main module again
    assert errors.count("Traceback") == (number == signal.SIGINT)  # Python's own, of the script
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


def test_it_works_in_a_thread() -> None:
    replies: list[TaskReply] = []
    thread = threading.Thread(target=lambda: replies.extend(run("answer", "answer")))
    thread.start()
    thread.join()
    assert len(replies) == 2


def test_payloads_are_taken_as_workers_become_free() -> None:
    taken: list[int] = []

    def payloads() -> Iterator[dict[str, object]]:
        for number in range(6):
            taken.append(number)
            yield {"do": "answer", "number": number}

    replies = run_tasks(TASK, payloads(), **LIMITS)
    next(replies)
    assert len(taken) <= 4
    assert len(list(replies)) == 5


def test_a_server_that_cannot_start_is_one_clear_line() -> None:
    with pytest.raises(PassNetError, match=r"exit code 1: RuntimeError: no library today; run"):
        list(run_tasks(TASK, [{"do": "loop"}], prepare="tests.extraction.pool.hostile:refuse", **LIMITS))


def test_a_task_is_stopped_by_a_limit_on_all_that_it_starts_not_by_the_clock() -> None:
    """Each would go on for 20 s, and the clock would stop it after 60."""
    payloads = [
        {"do": "forks", "doublings": 7},
        {"do": "share_memory", "holders": 4, "megabytes": 200},
        {"do": "files", "files": 60},
        {"do": "one_file", "files": 60},
        {"do": "answer", "number": 7},
    ]
    with Pool(workers=2, timeout_s=60, memory_mb=400, processes=40, disk_mb=30) as pool:
        replies = by_kind(list(pool.run(TASK, payloads)))
        server = pool._server.process.pid
        assert watch.tree(server) == [server], "all that they started has ended"
    ends = {kind: (reply.end, reply.code, category(reply)) for kind, reply in replies.items()}
    assert ends.pop("one_file")[0] == "exit" and "File too large" in replies["one_file"].log
    assert ends == {
        "forks": ("processes", 40, "too_many_processes"),
        "share_memory": ("memory", 400, "out_of_memory"),
        "files": ("disk", 30, "out_of_disk"),
        "answer": ("exit", 0, "crashed"),
    }
    assert replies["answer"].answer["number"] == 7
