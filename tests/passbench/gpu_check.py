"""PassBench on a GPU, checked without pytest:  python3 -m tests.passbench.gpu_check  from the repository root.

Prints one line a variant and exits 1 if any status is not the expected one. Needs torch, triton, numpy and pyarrow.
"""

import sys
import time

import torch
import torch.nn.functional as F

from passbench.bench import Bench
from passbench.names import COMPILERS
from passbench.settings import Settings
from storage.records import Sample
from tests.passbench.samples import BAD_PASSES, PASSES, add_relu_sample, sample, spec, variant


def good_passes() -> dict[str, Sample]:
    """Pass directories that must be ok, with the samples that they are for."""

    def norm(x, w, b):
        return (F.layer_norm(x, (48,), w, b, 1e-5),)

    def both(x, y):
        total = x + y
        return torch.relu(total) * 2, total

    def in_place(x, y):
        x += y
        return (x,)

    def activations(x, y):
        return torch.relu(x + y), torch.sigmoid(y + x)

    pair = (spec("x", 300), spec("y", 300))
    weights = (spec("w", 48, role="parameter"), spec("b", 48, role="parameter"))
    return {
        "cheap_launch": sample(variant(lambda x, y: (torch.relu(x + y),), *pair)),
        "layer_norm": sample(variant(norm, spec("x", 512, 48), *weights)),
        "two_outputs": sample(variant(both, *pair)),
        "in_place": sample(variant(in_place, *pair)),
        "shared_helper": sample(variant(activations, *pair)),
    }


def main() -> None:
    """Run every compiler, every good and every bad fixture."""
    plain = sample(
        *add_relu_sample((3, 40), (256, 1024), (4096, 4096)).variants,
        *add_relu_sample((256, 1024), dtype="bfloat16").variants,
    )
    one = sample(variant(lambda x, y: (torch.relu(x + y),), spec("x", 3, 40), spec("y", 3, 40)))
    jobs = [(name, PASSES / "add_relu", plain, "ok") for name in COMPILERS]
    jobs += [("pass", PASSES / name, what, "ok") for name, what in good_passes().items()]
    jobs += [("pass", PASSES / name, one, status) for name, (status, _, _) in BAD_PASSES.items()]
    jobs += [("pass", PASSES / "operators", one, "rejected"), ("pass", PASSES / "hangs", one, "timeout")]
    failures, begin = 0, time.monotonic()
    with Bench("cuda", Settings(first_call_timeout=60, seed=0)) as bench:
        for compiler, directory, what, expected in jobs:
            for result in bench.run(what, compiler, directory):
                failures += result.status != expected
                times = "  ".join(
                    f"{t.clock} {t.eager_us:.1f}/{t.candidate_us:.1f} us = {t.speedup:.2f}{' noisy' if t.noisy else ''}"
                    for t in result.timings
                )
                verdict = "" if result.status == expected else f"  EXPECTED {expected}"
                name = compiler if compiler != "pass" else f"pass {directory.name}"
                print(
                    f"{name:24} {result.status:14} t_min={result.t_min} {result.seconds:6.2f} s  {times} "
                    f"{result.reason[:200]}{verdict}",
                    flush=True,
                )
    print(f"{failures} unexpected; {time.monotonic() - begin:.0f} s; torch {torch.__version__}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
