"""What is measured where a GPU has no memory left: later, or not at all, and that says nothing about a pass."""

import gc
from contextlib import nullcontext

import pytest
import torch

from agent.ahead import gpu_memory, quick_measure
from agent.ahead.eager_reference import Caller, EagerReferences
from agent.ahead.gpu_memory import lacks_memory, not_measured, wait_for_room, with_memory
from agent.ahead.quick_measure import QuickMeasure
from agent.distill.search.scores import is_right
from passbench.result import VariantFailure
from tests.agent.ahead.test_quick_measure import SMALL, SUM, add, written
from tests.agent.support import sample, tensor, variant

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 50.00 MiB.")


@pytest.fixture(autouse=True, scope="module")
def _quick_collections():
    """Some twenty collections do not look at what earlier tests have left, which takes half a second each."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_an_error_that_comes_of_lacking_memory_says_so():
    with pytest.raises(RuntimeError) as caught:
        try:
            raise FULL
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    assert lacks_memory(caught.value) and lacks_memory(FULL)
    assert lacks_memory("RuntimeError: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    assert not lacks_memory(RuntimeError("out of resource: shared memory, Required: 266240"))


@pytest.mark.parametrize(("failures", "waits", "found"), [(0, 2, "ok"), (2, 2, "ok"), (3, 2, None), (1, 0, None)])
def test_what_lacks_memory_is_attempted_again_when_all_is_given_back(failures, waits, found):
    lasts, given_back, lost = [], [], []

    def attempt(last):
        lasts.append(last)
        if len(lasts) <= failures:
            raise FULL
        return "ok"

    def run():
        return with_memory(attempt, lambda: given_back.append(len(lasts)), lost.append, (0.0,) * waits)

    if found is None:
        with pytest.raises(torch.OutOfMemoryError):
            run()
    else:
        assert run() == found
    assert len(given_back) == len(lost) == min(failures, waits)
    assert lasts == [n == waits for n in range(len(lasts))]


def test_other_errors_are_raised_at_once():
    with pytest.raises(ValueError, match="no"):
        with_memory(lambda last: int("no"), lambda: None, lambda seconds: None, (60.0,))


def _failing(times):
    """A pass without memory in so many calls."""
    raising = 'raise torch.OutOfMemoryError("CUDA out of memory.")'
    return f"calls.append(1)\n    if len(calls) <= {times}:\n        {raising}\n    return x + y"


@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_variant_without_memory_is_measured_a_little_later(times, tmp_path, monkeypatch):
    monkeypatch.setattr(quick_measure, "WAITS", (0.01, 0.05, 0.05))
    one, measure = sample(variant(add, *SMALL)), QuickMeasure(torch.device("cpu"))
    directory = written(tmp_path / "pass", _failing(times), f"calls = []\n\n\n{SUM}")
    (found,) = measure(one, directory)
    assert is_right(found) == (not not_measured(found)) == (times < 4), found.reason
    assert measure.waited > (0.01 if times == 1 else 0.1)


def test_a_sample_waits_for_so_long_alone(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(gpu_memory.time, "sleep", slept.append)
    monkeypatch.setattr(quick_measure, "WAITS", (0.0, 0.8))
    monkeypatch.setattr(quick_measure, "_MOST_LOST", 1e-9)
    one, measure = sample(variant(add, *SMALL)), QuickMeasure(torch.device("cpu"))
    directory = written(tmp_path / "pass", _failing(10**6), f"calls = []\n\n\n{SUM}")
    for expected in ([0.0, 0.8], [0.0, 0.8, 0.0]):
        assert not_measured(measure(one, directory)[0]) and slept == expected
    assert measure.waited > 0.0
    assert measure.check(one, directory, 5, 60.0) == [(-10, 0, (), True)], "no draw has shown that it is wrong"


def test_what_was_not_measured_is_measured_for_the_first_time_later(tmp_path, capsys, monkeypatch):
    """On the draws of first measurements: those of second ones take more memory."""
    monkeypatch.setattr(quick_measure, "WAITS", ())
    one, measure, seen = sample(variant(add, *SMALL)), QuickMeasure(torch.device("cpu"), timed=False), []
    flag = tmp_path / "flag"
    lines = f"print(float(x.sum()))\n    if not pathlib.Path({str(flag)!r}).exists():\n"
    lines += '        raise torch.OutOfMemoryError("CUDA out of memory.")\n    return x + y'
    directory = written(tmp_path / "pass", lines, f"import pathlib\n\n\n{SUM}")
    other = written(tmp_path / "other", "print(float(x.sum()))\n    return x + y", SUM)
    assert not_measured(measure(one, directory)[0])
    flag.touch()
    capsys.readouterr()
    for place in (directory, other):
        measure(one, place)
        seen.append(set(capsys.readouterr().out.split()))
    assert seen[0] == seen[1]


def test_eager_without_memory_is_asked_again():
    """Once it was remembered as a failure of the variant, and all passes of fusible-3bc076886c9b were wrong then."""
    one, calls = variant(add, *SMALL), []

    class Full(Caller):
        def called(self, call, row):
            calls.append(1)
            if len(calls) == 1:
                raise FULL
            return super().called(call, row)

    references = EagerReferences(Full(torch.device("cpu"), 0), 2, nullcontext)
    with pytest.raises(torch.OutOfMemoryError):
        references.of(one)
    assert references.of(one) is references.of(one)
    wrong = variant(add, tensor(6, 8), tensor(5, 7)).with_changes(variant_hash="wrong")
    for _ in range(2):
        with pytest.raises(VariantFailure, match="eager failed"):
            references.of(wrong)


def test_of_large_variants_some_references_are_kept():
    variants = [variant(add, tensor(n, 8), tensor(n, 8)).with_changes(variant_hash=str(n)) for n in (60, 61, 62)]
    each = 3 * 4 * 60 * 8 * 2 + 2 * 4 * 60 * 8  # the inputs and output of two draws, and the inputs once more
    references = EagerReferences(Caller(torch.device("cpu"), 0), 2, nullcontext, most=int(1.5 * each))
    first, second, third = map(references.of, variants)
    assert second.bytes > each == first.bytes
    assert references.of(variants[0]) is first and references.of(variants[2]) is third
    third.took["e2e"] = [1.0]
    assert references.of(variants[1]) is not second
    assert references.of(variants[2]) is not third and references.of(variants[2]).took == {"e2e": [1.0]}


@pytest.mark.parametrize(
    ("free", "over", "longest", "looks"),
    [((8, 0), (), 60.0, 1), ((1, 8, 0), (0,), 60.0, 2), ((1, 1, 1), (0, 1), 60.0, 2), ((1, 1), (0,), 0.0, 1)],
)
def test_a_process_waits_for_room_or_until_it_is_of_no_use(free, over, longest, looks, monkeypatch):
    monkeypatch.setattr(gpu_memory, "_POLL", 0.01)
    monkeypatch.setattr(gpu_memory, "_LONGEST", longest)
    frees, overs, looked = iter(free), iter(over), []

    def room():
        looked.append(next(frees))
        return looked[-1] << 30

    wait_for_room(room, lambda: bool(next(overs)))
    assert len(looked) == looks


@pytest.mark.gpu
def test_a_full_gpu_spoils_no_later_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(quick_measure, "WAITS", (0.0,))
    one, measure = sample(variant(add, tensor(1 << 22, 8), tensor(1 << 22, 8))), QuickMeasure(torch.device("cuda"))
    directory = written(tmp_path / "pass", "return x + y", SUM)
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((700 << 20) / whole)
    try:
        (found,) = measure(one, directory)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert not_measured(found), found
    (found,) = measure(one, directory)
    assert is_right(found) and found.speedup("device") > 0.5, found
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() <= 512 << 20
