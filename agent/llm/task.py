"""A sample as the model reads it: source, shapes, where eager's time goes."""

from math import prod

import torch

from agent.llm.profile import op_times
from storage.errors import in_one_line
from storage.graph.render import render
from storage.records import Input, Sample, Variant

_SHOWN_VARIANTS = 16
_SHOWN_INPUTS = 24
_SHOWN_OPS = 12
_SHOWN_SOURCE = 12_000  # characters


def describe_sample(sample: Sample, device: str) -> str:
    """The whole task: each distinct graph with its variants, and the largest variant's times."""
    largest = max(range(len(sample.variants)), key=lambda n: _elements(sample.variants[n]))
    times = describe_times(sample.variants[largest], device)
    return f"{describe_graphs(sample)}\n\nVariant {largest}: {times}"


def describe_graphs(sample: Sample) -> str:
    """The task without times: each distinct graph with its variants, and their inputs."""
    graphs: dict[str, list[int]] = {}
    for number, variant in enumerate(sample.variants):
        graphs.setdefault(render(variant.graph), []).append(number)
    parts = [f"Task {sample.sample}: {len(sample.variants)} variants of one family, {len(graphs)} distinct sources."]
    for source, numbers in list(graphs.items())[:3]:
        parts.append(f"Source of variants {_numbers(numbers)}:\n```python\n{_cut(source)}```")
    if len(graphs) > 3:
        parts.append("More sources: read_variant(number) shows the one of a variant.")
    lines = [f"{number}: {_inputs(sample.variants[number])}" for number in range(len(sample.variants))]
    if len(lines) > _SHOWN_VARIANTS:
        lines = [*lines[:_SHOWN_VARIANTS], f"... {len(lines) - _SHOWN_VARIANTS} more: read_variant(number)"]
    parts.append("Inputs by variant:\n" + "\n".join(lines))
    return "\n\n".join(parts)


def describe_variant(sample: Sample, number: int, device: str) -> str:
    """One variant in full. Raises IndexError for a number that is none."""
    if not 0 <= number < len(sample.variants):
        raise IndexError(number)
    variant = sample.variants[number]
    inputs = "\n".join(_input(n, one) for n, one in enumerate(variant.inputs))
    source = _cut(render(variant.graph))
    return f"Variant {number}\n```python\n{source}```\n{inputs}\n{describe_times(variant, device)}"


def describe_times(variant: Variant, device: str) -> str:
    """Which ops take eager's time, the longest first."""
    try:
        times = op_times(variant, device)
    except Exception as error:  # what eager raises may be of any type
        return f"eager cannot be timed op by op here ({in_one_line(error, 120)})."
    total = sum(op.us for op in times) or 1.0
    longest = sorted(times, key=lambda op: -op.us)[:_SHOWN_OPS]
    lines = [f"  {op.name} {op.called}: {op.us:.1f} us, {100 * op.us / total:.0f}%" for op in longest]
    rest = f"\n  ... {len(times) - len(longest)} more ops" if len(times) > len(longest) else ""
    note = "" if torch.device(device).type == "cuda" else " (CPU: no measure for a GPU)"
    head = f"eager's ops one by one, synchronised, {total:.0f} us in all{note}:"
    return head + "\n" + "\n".join(lines) + rest


def _inputs(variant: Variant) -> str:
    shown = [
        f"in_{n} {one.dtype}{list(one.shape)}{'' if one.role == 'input' else ' ' + one.role}{_strided(one)}"
        for n, one in enumerate(variant.inputs[:_SHOWN_INPUTS])
    ]
    more = len(variant.inputs) - len(shown)
    return ", ".join(shown) + (f", ... {more} more" if more else "")


def _input(number: int, one: Input) -> str:
    values = f"in [{one.low:g}, {one.high:g}]" if one.low is not None and one.high is not None else "normal"
    return f"in_{number}: {one.role} {one.dtype}, shape {list(one.shape)}, stride {list(one.stride)}, values {values}"


def _strided(one: Input) -> str:
    step, dense = 1, True
    for size, stride in zip(reversed(one.shape), reversed(one.stride), strict=True):
        dense &= size == 1 or stride == step
        step *= max(size, 1)
    return "" if dense else f" stride {list(one.stride)}"


def _elements(variant: Variant) -> int:
    return sum(prod(one.shape) for one in variant.inputs)


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")


def _cut(source: str) -> str:
    return source if len(source) <= _SHOWN_SOURCE else source[:_SHOWN_SOURCE] + "\n# ... cut\n"
