"""What one op costs the host and the device in eager, in microseconds a call; needs a GPU and about 30 s.

    python3 -m benchmarks.agent.eager_host VERSION_DIR [--out FILE]

The ops are the sole_op samples of a version, the first variant of each. Host: the best of some rounds of calls that do
not wait for the device. Device: calls on different inputs as one CUDA graph.
"""

import argparse
import sys
from pathlib import Path

import torch

from agent.run.choose import Choice, chosen
from benchmarks.agent.launch_configs import microseconds as device_microseconds
from benchmarks.agent.launch_cost import microseconds as host_microseconds
from passbench.child.captured_calls import EmptyReplay
from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import to_module
from storage.records import Variant
from storage.versions.version import Version

CALLS = 100


def host_of(variant: Variant) -> float | str:
    """Microseconds of the host, or why eager does not run this."""
    forward, inputs = to_module(variant.graph, "cuda").forward, make_inputs(variant.inputs, 0, 0, "cuda")
    try:
        return host_microseconds(lambda: forward(*inputs), CALLS)
    except RuntimeError as error:
        return str(error).splitlines()[0]


def device_of(variant: Variant, empty: EmptyReplay) -> float:
    """Microseconds of the device."""
    rows = [make_inputs(variant.inputs, 0, n, "cuda") for n in range(8)]
    return device_microseconds(to_module(variant.graph, "cuda").forward, rows, empty)


def words(variant: Variant) -> str:
    """The ops, and the first inputs' dtype and shapes."""
    ops = ", ".join(dict.fromkeys(op for op in variant.graph.op_sequence if op != "operator.getitem")) or "getitem"
    shapes = " ".join("x".join(map(str, i.shape)) or "()" for i in variant.inputs[:3])
    return f"{ops}  {variant.inputs[0].dtype} {shapes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("eager_host.py measures ops on an NVIDIA GPU, and there is none")
    choice = Choice(splits=("eval", "train"), categories=("sole_op",), at_most=1)
    variants = [sample.variants[0] for sample in chosen(Version.open(options.version), choice)]
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us a call: host, device"]
    with torch.no_grad():
        hosts = [host_of(variant) for variant in variants]
        empty = EmptyReplay(torch.device("cuda"))
        for variant, host in zip(variants, hosts, strict=True):
            times = host if isinstance(host, str) else f"{host:9.1f} {device_of(variant, empty):9.2f}"
            lines.append(f"{times}  {words(variant)}")
            print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
