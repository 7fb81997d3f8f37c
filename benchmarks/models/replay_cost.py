"""What a call of a CUDA graph costs beside its kernels: inputs and outputs copied by torch, or in the graph.

    python -m benchmarks.models.replay_cost

Needs a GPU. The function adds one to its inputs. Prints microseconds of a call, as call_times takes them, and of a call
among twenty that are not waited for.
"""

import sys

import torch

from passbench.models import replayed
from passbench.models.call_times import back_to_back, call_times
from passbench.models.replayed import ReplayedGraph

KINDS = {
    "128 whole numbers": [((1, 128), torch.int64)],
    "two of them": [((1, 128), torch.int64)] * 2,
    "an image": [((1, 3, 224, 224), torch.bfloat16)],
    "16 images": [((16, 3, 224, 224), torch.bfloat16)],
    "twelve of 4 kB": [((1, 1024), torch.float32)] * 12,
}
"""Inputs by shape and dtype; there are as many outputs."""


def main() -> int:
    """Print a line for each kind; returns 0."""
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us a call, waited for and not")
    small = replayed.MOST_BYTES
    for name, kinds in KINDS.items():
        given = [torch.ones(shape, dtype=dtype, device=device) for shape, dtype in kinds]
        graphs = {}
        for way, most in (("by torch", -1), ("in the graph", small)):
            replayed.MOST_BYTES = most
            graphs[way] = ReplayedGraph(lambda *xs: [x + 1 for x in xs], given)
            assert all(torch.equal(a, x + 1) for a, x in zip(graphs[way](*given), given, strict=True))
        calls = {way: (lambda graph=graph, given=given: graph(*given)) for way, graph in graphs.items()}
        waited = call_times(calls, device, 1.0)
        line = [f"{way} {waited[way]:7.2f} {back_to_back(calls[way], device, 200):7.2f}" for way in calls]
        print(f"{name:20} {'   '.join(line)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
