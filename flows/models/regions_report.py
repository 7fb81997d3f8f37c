"""The regions of a graph as it is run: which kernel serves which operators, its source, and what it saves over eager.

TorchInductor's files say for each launch from which nodes of the graph it comes. Eager's time of those nodes is
measured in a run of the same graph node by node.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench.models.call_times import node_times
from passbench.models.lowering import LoweredGraph
from passbench.models.serving import NAMESPACE

_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(.*?r?'''(.*?)'''", re.MULTILINE | re.DOTALL)
_LAUNCH = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\].*?\n((?:(?!\s*# Topologically).*\n)*)")
_TRITON_CALL = re.compile(r"^\s*(\w+)\.run\(", re.MULTILINE)


def kernel_sources(files: Sequence[str]) -> dict[str, str]:
    """The source of each kernel in TorchInductor's files, by name."""
    return {name: source.strip() for text in _texts(files) for name, source in _KERNEL.findall(text)}


def launches(files: Sequence[str]) -> dict[str, list[str]]:
    """The nodes of the graph that each Triton kernel serves, over all of its launches, in order; a node counts for the
    first kernel that it is in. C++ has no such comments."""
    known, seen = kernel_sources(files), set()
    found: dict[str, list[str]] = {}
    for text in _texts(files):
        for nodes, lines in _LAUNCH.findall(text):
            kernel = next((name for name in _TRITON_CALL.findall(lines) if name in known), None)
            if kernel is None:
                continue  # a library's product, or the definition of a kernel
            mine = [node for node in nodes.split(", ") if node and node not in seen]
            seen.update(mine)
            found.setdefault(kernel, []).extend(mine)
    return found


def _texts(files: Sequence[str]) -> list[str]:
    texts = [Path(file).read_text("utf-8") for file in files]
    return [text for text in texts if "async_compile" in text]


def regions(
    lowered: LoweredGraph,
    moving: Sequence[torch.Tensor],
    kernel_us: Mapping[str, float],
    speedups: Mapping[str, float | None],
) -> list[dict[str, Any]]:
    """A line for each kernel of TorchInductor's and each pass that serves: `by`, `kernel` (or the pass's hash), `ops`,
    `us` of one call of the model, `eager_us` of the operators that it serves, `saves_us`; the largest saving first.

    `kernel_us` are times by kernel as profiled; a kernel that is not among them has none. `speedups` are those of
    passes by hash, from their passports: what eager takes for a pass's region follows from them.
    """
    main = lowered.parts.main
    by_node = node_times(main, [*moving, *lowered.parts.statics])
    ops = {node.name: _op(node) for node in main.graph.nodes}
    lines = []
    for kernel, nodes in launches(lowered.sources).items():
        eager = sum(by_node.get(node, 0.0) for node in nodes)
        names = [ops.get(node, node) for node in nodes]
        lines.append(_line("TorchInductor", kernel, names, kernel_us.get(kernel), eager))
    served: dict[str, list[str]] = {}
    for node in main.graph.nodes:
        if str(node.target).startswith(NAMESPACE):
            served.setdefault(node.meta.get("entry", ""), []).append(node.name)
    for entry, nodes in served.items():
        us, speedup = sum(by_node[node] for node in nodes), speedups.get(entry)
        lines.append(_line("pass", entry, [ops[node] for node in nodes], us, us * speedup if speedup else None))
    return sorted(lines, key=lambda line: -(line["saves_us"] or 0.0))


def _line(by: str, kernel: str, ops: list[str], us: float | None, eager: float | None) -> dict[str, Any]:
    saves = None if us is None or eager is None else eager - us
    return {"by": by, "kernel": kernel, "ops": ops, "us": us, "eager_us": eager, "saves_us": saves}


def _op(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return name.rpartition(".")[2]
