"""What the passes of `tests.passbench.attacks.call_attacks` are tried on, where `attack_samples` has nothing."""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.samples import sample, spec, variant


def relu_and_clamp() -> Sample:
    def f(x, y):
        total = x + y
        return torch.relu(total), torch.clamp(total, min=0)

    return sample(variant(f, spec("x", 3, 40, std=100.0), spec("y", 3, 40, std=100.0)))


def expanded_sums() -> Sample:
    return sample(variant(lambda x: (x.sum(-1, keepdim=True).expand(5, 100) * 1.5,), spec("x", 5, 100)))


def multiply_and_add() -> Sample:
    def f(x, y):
        x *= y
        return (x + 1.0,)

    return sample(variant(f, spec("x", 50, std=100.0), spec("y", 50, std=100.0)))


def multiply_and_keep() -> Sample:
    def f(x, y):
        x *= y
        return x, x + 1.0

    return sample(variant(f, spec("x", 50), spec("y", 50)))


def logarithm() -> Sample:
    return sample(variant(lambda x: (torch.log(x) * 2.0,), spec("x", 200)))


def normalised() -> Sample:
    return sample(variant(lambda x: (F.layer_norm(x, (512,)),), spec("x", 8, 512)))


def scaled_and_shifted() -> Sample:
    weight = spec("w", 40, role="parameter", mean=1.0, std=0.0)
    bias = spec("b", 40, role="parameter", mean=0.0, std=0.0)
    return sample(variant(lambda x, w, b: (torch.relu(x * w + b),), spec("x", 3, 40), weight, bias))


def scaled_by_sums() -> Sample:
    weight = spec("w", 3, 40, role="parameter", mean=1.0, std=1e-6)
    return sample(variant(lambda x, w: (x * w.sum(-1, keepdim=True),), spec("x", 3, 40), weight))


def two_ids() -> Sample:
    ids = spec("ids", 2, 60, dtype="int64", low=0, high=1)  # as those of a model of which nothing says how many it has
    return sample(variant(lambda ids: ((ids == 128016) | (ids == 128014),), ids))


def halves() -> Sample:
    return sample(variant(lambda x: torch.relu(x).chunk(2, dim=1), spec("x", 6, 48)))


def padded() -> Sample:
    return sample(variant(lambda x: (F.pad(x * 2, (0, 56)),), spec("x", 4, 8)))


def padded_far() -> Sample:
    """On a CPU its output, of more than 32 MiB, is memory that the system has just given, which holds zeros."""
    return sample(variant(lambda x: (F.pad(x * 2, (0, 10224)),), spec("x", 832, 16)))
