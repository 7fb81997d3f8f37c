"""A graph as a picture: layers from top to bottom, as Sugiyama, Tagawa and Toda draw hierarchies (1981).

networkx's `multipartite_layout` does not reorder a layer to avoid crossings, and its long edges run over boxes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from flows.report.figures import PLAIN_TEXT
from storage.graph.record import Graph, Op, cut, op_name, refs
from storage.records import Input

MOST_OPS = 24
"""Ops that are drawn; of longer graphs the first ones."""

_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32"}
_COLOURS = {"input": "#d9ead3", "op": "#d6e4f5"}
_BOX = 1.75, 0.4  # inches
_STEP = 1.9, 0.74  # inches between the middles of neighbours and of layers
_SWEEPS = 8
_LONGEST = 32
"""Characters of a line of a label."""


@dataclass(frozen=True)
class Node:
    """A box of the picture, or a bend of an edge that crosses a layer (`kind` "bend", no label).

    `kind` is "input", "op" or "bend"; `below` is the second, smaller line of the label.
    """

    label: str
    kind: str
    layer: int
    below: str = ""


@PLAIN_TEXT
def draw(graph: Graph, inputs: Sequence[Input]) -> Figure:
    """The figure of a graph: inputs with dtype and shape, ops by name, edges from values to who reads them.

    Parameters and buffers have no boxes; their shapes stand in those of the ops that read them.
    """
    shown, read, left_out = _shortened(graph, inputs)
    nodes, edges = layers(shown, read)
    places = _places(nodes, edges)
    width = max(x for x, _ in places) + _STEP[0] / 2
    depth = max(node.layer for node in nodes)
    top, bottom = _STEP[1] / 2, -(depth + 0.5) * _STEP[1] - (0.3 if left_out else 0)
    figure = Figure(figsize=(width, top - bottom))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(bottom, top))
    axes.axis("off")
    half = _BOX[1] / 2
    for start, end in edges:
        (x0, y0), (x1, y1) = places[start], places[end]
        y0, y1 = y0 - half * (nodes[start].kind != "bend"), y1 + half * (nodes[end].kind != "bend")
        arrow = "-" if nodes[end].kind == "bend" else "-|>"
        line = {"arrowstyle": arrow, "color": "#777", "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=line)
    for node, (x, y) in zip(nodes, places, strict=True):
        if node.kind == "bend":
            continue
        corner, style = (x - _BOX[0] / 2, y - half), "round,pad=0,rounding_size=0.08"
        axes.add_patch(FancyBboxPatch(corner, *_BOX, boxstyle=style, facecolor=_COLOURS[node.kind], edgecolor="#555"))
        lift = 0.08 if node.below else 0
        axes.text(x, y + lift, node.label, ha="center", va="center", fontsize=8.5 if len(node.label) < 22 else 6.5)
        axes.text(x, y - 0.09, node.below, ha="center", va="center", fontsize=6.5, color="#444")
    if left_out:
        axes.text(0.1, bottom + 0.2, f"and {left_out} more ops", fontsize=9, style="italic", va="center")
    return figure


def layers(graph: Graph, inputs: Sequence[Input]) -> tuple[list[Node], list[tuple[int, int]]]:
    """Boxes and bends, and edges between neighbouring layers as pairs of their numbers.

    Boxes are the inputs that are no parameters or buffers, then the ops, in order. An op is a layer below the lowest
    box that it reads; what reads no box is right above its first reader.
    """
    held = {number for number, value in enumerate(inputs) if value.role in ("parameter", "buffer")}
    boxes = [number for number in range(graph.inputs + len(graph.ops)) if number not in held]
    reads = {n: list(dict.fromkeys(r.index for r in refs((op.args, op.kwargs)))) for n, op in _numbered(graph)}
    readers: dict[int, list[int]] = {}
    depth: dict[int, int] = dict.fromkeys(boxes, 0)
    for number, read in reads.items():
        depth[number] = max((depth[r] + 1 for r in read if r not in held), default=0)
        for value in read:
            readers.setdefault(value, []).append(number)
    for number in reversed(boxes):
        if all(value in held for value in reads.get(number, ())):
            depth[number] = min((depth[reader] - 1 for reader in readers.get(number, ())), default=0)
    lowest = min(depth.values())  # an op on constants alone may have risen above the others
    nodes = [Node(_input_label(inputs[n]), "input", depth[n] - lowest) for n in boxes if n < graph.inputs]
    for number, op in _numbered(graph):
        own = ", ".join(_shape(inputs[value]) for value in reads[number] if value in held)
        nodes.append(Node(_op_label(op), "op", depth[number] - lowest, _bounded(own)))
    place = {number: index for index, number in enumerate(boxes)}
    edges = []
    for value in boxes:
        found = [place[reader] for reader in readers.get(value, ())]
        end_of = {nodes[place[value]].layer: place[value]}  # one chain of bends serves all readers of a value
        for layer in range(nodes[place[value]].layer + 1, max((nodes[n].layer for n in found), default=0)):
            end_of[layer] = len(nodes)
            edges.append((end_of[layer - 1], len(nodes)))
            nodes.append(Node("", "bend", layer))
        edges += [(end_of[nodes[n].layer - 1], n) for n in found]
    return nodes, edges


def _numbered(graph: Graph) -> "enumerate[Op]":
    return enumerate(graph.ops, graph.inputs)


def _places(nodes: Sequence[Node], edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Middle of every node, in inches: x to the right, y up from the first layer, which is at 0."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for start, end in edges:
        below.setdefault(start, []).append(end)
        above.setdefault(end, []).append(start)
    rows: list[list[int]] = [[] for _ in range(max(node.layer for node in nodes) + 1)]
    for number, node in enumerate(nodes):
        rows[node.layer].append(number)
    at = {number: float(i) for row in rows for i, number in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = above if down else below
            wish = {n: fmean(at[m] for m in near[n]) if near.get(n) else at[n] for n in row}
            row.sort(key=wish.__getitem__)
            _settle(row, wish, nodes, at)
    left = min(at.values())
    return [((at[n] - left + 0.5) * _STEP[0], -node.layer * _STEP[1]) for n, node in enumerate(nodes)]


def _settle(row: Sequence[int], wish: dict[int, float], nodes: Sequence[Node], at: dict[int, float]) -> None:
    """Put a row's nodes near where they want to be, in this order, a step apart, bends less."""
    x, moved = float("-inf"), []
    for number in row:
        gap = 1.0 if nodes[number].kind != "bend" else 0.6
        x = max(wish[number], x + gap)
        at[number] = x
        moved.append(x - wish[number])
    shift = fmean(moved) if moved else 0.0
    for number in row:
        at[number] -= shift


def _shortened(graph: Graph, inputs: Sequence[Input]) -> tuple[Graph, Sequence[Input], int]:
    """The graph's first ops and the inputs that these read, and how many ops that leaves out."""
    if len(graph.ops) <= MOST_OPS:
        return graph, inputs, 0
    first = cut(graph, 0, MOST_OPS)
    return first.graph, [inputs[number] for number in first.inputs], len(graph.ops) - MOST_OPS


def _op_label(op: Op) -> str:
    name = op_name(op)
    for prefix in ("torch.nn.functional.", "torch._C._nn.", "torch.", "operator.", "builtins."):
        name = name.removeprefix(prefix)
    return _bounded(name)


def _input_label(value: Input) -> str:
    return _bounded(f"{_SHORT.get(value.dtype, value.dtype)} {_shape(value)}")


def _shape(value: Input) -> str:
    return "×".join(map(str, value.shape)) or "scalar"


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
