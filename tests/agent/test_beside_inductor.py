"""What is said of passes beside TorchInductor."""

import torch

from benchmarks.agent.beside_inductor import call_times, summary


def _row(sample, **found):
    known = {"sample": sample, "category": "fusible", "left_to_eager": 0, "eager_us": 8.0, "default_us": 2.0}
    return {**known, "pass_t_min": -10, "strict_t_min": -5, "default_t_min": 0, **found}


def test_a_summary_compares_what_is_right_and_counts_a_sample_left_to_eager_as_eager():
    rows = [_row("a", pass_us=2.0, strict_us=4.0), _row("b", left_to_eager=1, strict_us=4.0, strict_t_min=-4)]
    cells = [cell.strip() for cell in summary(rows).splitlines()[2].strip("|").split("|")]
    assert cells[:4] == ["fusible", "2", "1", "2"]
    assert cells[4:6] == ["2.000 (2)", "2.000 (2)"], "eager over the pass, eager over strict"
    assert cells[6:8] == ["1.000 (2)", "2.000 (1)"], "twice as fast as strict, and half as fast where strict is wrong"
    assert cells[8:] == ["0.500 (2)", "-"], "default is faster in both, and right in neither"
    assert "b: lost" in summary([*rows, {**_row("b"), "reason": "lost"}])


def test_each_side_is_timed_on_inputs_in_memory_of_their_own():
    seen = {"eager": set(), "pass": set()}
    calls = {side: lambda x, side=side: seen[side].add(x.data_ptr()) for side in seen}
    kept = []

    def rows(count):
        kept.append([(torch.ones(3),) for _ in range(count)])
        return kept[-1]

    times, count = call_times(calls, rows, torch.device("cpu"))
    assert times.keys() == seen.keys() and min(times.values()) > 0.0
    assert [len(each) for each in seen.values()] == [count, count] and not seen["eager"] & seen["pass"]
