"""How fast a GPU reads shared memory of different sizes, in the process that has allocated it and in another one.

    python3 -m benchmarks.passbench.gpu_sittings.memory_sizes --out FILE [--device cuda:0]      # 20 s, a GPU

PassBench's inputs lie in an allocation that the parent makes and a worker opens by CUDA IPC. Here products read weights
through the whole of such an allocation. FILE gets a JSON line a size: bytes, and GB/s of either process, the median of
some replays of one CUDA graph. `passbench.ipc.shared_memory` allocates only multiples of what is read fast.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import run

import torch

from passbench.ipc import cuda_ipc

MIB = 1 << 20
SIZES = tuple(
    mib * MIB + more
    for mib, more in ((1024, 0), (1024, 512), (1025, 0), (1026, 0), (1040, 0), (1061, 512), (1088, 0), (2085, 4096))
)
"""Whole multiples of 2, 16 and 64 MiB, and sizes that are none."""

_ROWS, _WIDTH = 8192, 4096  # of a matrix of weights: 64 MiB of bfloat16
_TOKENS = 120
_REPLAYS = 9


def read_speed(memory: torch.Tensor) -> float:
    """GB a second at which products read all matrices that fit into memory."""
    matrix = _ROWS * _WIDTH * 2
    count = memory.numel() // matrix
    weights = memory[: count * matrix].view(torch.bfloat16).view(count, _ROWS, _WIDTH)
    x = torch.zeros(_TOKENS, _WIDTH, dtype=torch.bfloat16, device=memory.device)
    out = torch.empty(_TOKENS, _ROWS, dtype=torch.bfloat16, device=memory.device)
    torch.mm(x, weights[0].T, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in weights:
            torch.mm(x, one.T, out=out)
    took = []
    for _ in range(_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return count * matrix / statistics.median(took) / 1e6


def read_elsewhere(handles: Sequence[tuple[int, str]], device: torch.device) -> list[float]:
    """The same for allocations of another process, by size and IPC handle in hexadecimal digits."""
    return [read_speed(cuda_ipc.as_bytes(cuda_ipc.attach(bytes.fromhex(one)), size, device)) for size, one in handles]


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--handles", type=Path, help="for the other process: its answers replace these")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
    if given.handles:
        given.out.write_text(json.dumps(read_elsewhere(json.loads(given.handles.read_text()), device)))
        return
    starts = [cuda_ipc.allocate(size, device) for size in SIZES]
    memories = [cuda_ipc.as_bytes(start, size, device).zero_() for start, size in zip(starts, SIZES, strict=True)]
    own = list(map(read_speed, memories))
    with tempfile.TemporaryDirectory() as place:
        asked, answer = Path(place, "asked"), Path(place, "answer")
        exported = [(size, cuda_ipc.export(start).hex()) for start, size in zip(starts, SIZES, strict=True)]
        asked.write_text(json.dumps(exported))
        module = [sys.executable, "-m", "benchmarks.passbench.gpu_sittings.memory_sizes", "--out", str(answer)]
        run([*module, "--handles", str(asked), "--device", given.device], check=True)
        others = json.loads(answer.read_text())
    rows = zip(SIZES, own, others, strict=True)
    lines = [json.dumps({"bytes": size, "own": round(one), "other": round(other)}) for size, one, other in rows]
    given.out.write_text("\n".join(lines) + "\n")
    print(given.out.read_text(), end="")


if __name__ == "__main__":
    main()
