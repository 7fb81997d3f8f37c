"""Reductions by a kernel's own function, which may be right for equal parts alone."""

from tests.support.interpreted import answers_of

SCRIPT = """
import torch, triton, triton.language as tl
from passbench.child.interpreter.interpreted_reduce import reduce_in_pairs

reduce_in_pairs()

@triton.jit
def of_equal(mean, distances, other_mean, other_distances):
    apart = other_mean - mean
    return 0.5 * (mean + other_mean), 0.5 * (distances + other_distances) + 0.25 * apart * apart

@triton.jit
def moments(x_ptr, mean_ptr, distances_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row[:, None] * COLUMNS + column[None, :])
    mean, distances = tl.reduce((x, tl.zeros_like(x)), AXIS, of_equal)
    tl.store(mean_ptr + (row if AXIS == 1 else column), mean)
    tl.store(distances_ptr + (row if AXIS == 1 else column), distances)

@triton.jit
def of_all(x_ptr, out_ptr, COLUMNS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, COLUMNS))
    mean, distances = tl.reduce((x, tl.zeros_like(x)), 0, of_equal)
    kept, kept_distances = tl.reduce((x, tl.zeros_like(x)), 0, of_equal, keep_dims=True)
    tl.store(out_ptr, mean)
    tl.store(out_ptr + 1 + tl.arange(0, 1), kept)

def agree(rows, columns, axis):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)) * 3 + 100
    mean, distances = torch.empty(2, rows if axis else columns)
    moments[(1,)](x, mean, distances, ROWS=rows, COLUMNS=columns, AXIS=axis)
    wanted = x.double().var(axis, correction=0), x.double().mean(axis)
    return all(torch.allclose(a.double(), b) for a, b in zip((distances, mean), wanted))

def both_of_all():
    x, out = torch.arange(64.0), torch.empty(2)
    of_all[(1,)](x, out, COLUMNS=64)
    return out.tolist()
"""


def test_parts_are_combined_in_pairs(tmp_path, torch_forks):
    asked = [
        f"agree({rows}, {columns}, {axis})" for rows, columns, axis in ((4, 128, 1), (1, 16, 1), (8, 4, 0), (2, 1, 1))
    ]
    answers = answers_of(SCRIPT, [*asked, "both_of_all()"], tmp_path, torch_forks)
    assert answers.pop("both_of_all()") == "[31.5, 31.5]"
    assert set(answers.values()) == {"True"}
