"""What a search tries: choices beside the first one, and choices that differ from the best so far in one respect."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.distill.cost import STEP
from agent.distill.eager.sum_order import PROCESSORS
from agent.distill.inductor.whole_source import DEFAULT
from agent.distill.kernels.launch_configs import choose, has_short_rows, in_lanes, reads_across
from agent.distill.launches.side_by_side import joins
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.trial import SearchTrial
from agent.distill.source.style import Style
from agent.distill.task_plan import Task
from agent.distill.whole_graphs import WORTH

_CONFIGS = 4
"""So many of the configurations that TorchInductor chooses from are tried."""
_STAGES = 3
"""How many steps of a sweep are loaded at once in the passes that try this."""


def in_cuda_graphs(task: Task, patterns: Sequence[str], style: Style) -> SearchChoice:
    """The choice of these patterns whose whole graphs are CUDA graphs, with branches where these may pay.

    In the logs of `benchmarks/passbench/h200_table` and `h100_table` branches were 3 % faster on the device in 52 of 66
    pairs of typical samples and slower in 8, and never wrong by themselves.
    """
    return SearchChoice(tuple(patterns), replace(style, captured=True, branches=task.branches(patterns)))


def one_after_another(choice: SearchChoice) -> list[SearchChoice]:
    """The choice without branches; none if it has none."""
    return [replace(choice, style=replace(choice.style, branches=False))] if choice.style.branches else []


def by_lanes(task: Task, style: Style) -> Style:
    """The style with norms added up by lanes, where the task has norms in eager's order.

    In the same logs that was 3 % faster or more in 11 of 21 pairs, 1.2 times as fast in the mean, and slower in none;
    in `benchmarks/passbench/h100_table_276` it was 0.9, 1.2, 3.5 and 32 times as fast in four.
    """
    lanes = any(map(in_lanes, task.kernels()))
    return replace(style, limits=replace(style.limits, lanes=lanes))


def alternatives(task: Task, start: SearchChoice) -> list[SearchChoice]:
    """Choices that are measured beside the start, before any other: each is the best for some tasks.

    They are one CUDA graph of all where the start is none, small kernels as one launch, and TorchInductor's own
    schedule. Where the start is one, they are one without branches, and no CUDA graph, if there are so few library
    calls that this was ever faster. Where norms add by lanes what lies across their rows, they also take several rows
    at once.
    """
    style = start.style
    if style.captured:
        few = task.calls(start.patterns) <= WORTH and task.covers(start.patterns)
        return [
            *one_after_another(start),
            *_in_one_launch(task, start),
            *_in_rows(task, start),
            *([replace(start, style=_one_by_one(style))] if few else []),
        ]
    found = [in_cuda_graphs(task, start.patterns, style)] if task.launches(start.patterns) >= WORTH else []
    found += _in_one_launch(task, start)
    return [*found, *([replace(start, style=replace(style, own_schedule=True))] if task.kernels() else [])]


def _in_one_launch(task: Task, choice: SearchChoice) -> list[SearchChoice]:
    """The choice with small kernels that need nothing of each other as one launch, or as launches of their own if they
    are one. None where that makes no difference.

    In 31 of the 84 typical samples of `benchmarks/passbench/h100_table_276` some kernels of a region are.
    """
    other = replace(choice.style.limits, one_launch=not choice.style.limits.one_launch)
    cases = (c.cases for each in task.graphs for c in each.candidates if c.pattern in choice.patterns)
    if not any(joins(case.sketch, other) for each in cases for case in each):
        return []
    return [replace(choice, style=replace(choice.style, limits=other))]


def _in_rows(task: Task, choice: SearchChoice) -> list[SearchChoice]:
    """The choice with programs of several rows for norms of rows so short that they leave lanes idle, and over what is
    no neighbour in memory, such as the channels of an image: a program of one row, as lanes need it, has one number of
    each sector that it reads. None where that makes no difference."""
    limits = choice.style.limits
    other = replace(limits, lanes=False)
    norms = [kernel for kernel in task.kernels() if in_lanes(kernel)]
    several = (k for k in norms if reads_across(k) or (has_short_rows(k) and choose(k, other).row_block > 1))
    if not any(choose(kernel, limits) != choose(kernel, other) for kernel in several):
        return []
    return [replace(choice, style=replace(choice.style, limits=other))]


def _one_by_one(style: Style) -> Style:
    """The style without CUDA graphs."""
    return replace(style, captured=False, branches=False)


def in_other_regions(trial: SearchTrial, margin: float) -> list[SearchChoice]:
    """The start with other regions than those of the graph as it is, where there are such."""
    return [*_with_channels_last(trial, margin), *_with_joined_regions(trial, margin)]


def _with_joined_regions(trial: SearchTrial, margin: float) -> list[SearchChoice]:
    """The start with regions joined that need no library call of each other, and their small kernels as one launch;
    none if there are none.

    The typical samples of `benchmarks/passbench/h100_table_276` have 516 kernels in all. With small kernels of each
    region as one they are 457, and 403 with regions joined, in 34 of the 84 samples.
    """
    if not any(len(each.candidates) > 1 for each in trial.task.graphs):
        return []
    task, style = trial.joined(), trial.start.style
    counts = [sum(len(each.candidates) for each in one.graphs) for one in (trial.task, task)]
    if not 0 < counts[1] < counts[0]:
        return []
    style = replace(style, own_schedule=False, joined=True, limits=replace(style.limits, one_launch=True))
    likely = task.likely_on_device if style.captured else task.likely
    patterns = tuple(sorted(likely(margin) or task.likely(-math.inf)))
    return [in_cuda_graphs(task, patterns, style) if style.captured else SearchChoice(patterns, style)]


def _with_channels_last(trial: SearchTrial, margin: float) -> list[SearchChoice]:
    """The start with half-type convolutions in channels-last memory; none if there are none.

    It is one CUDA graph, and calls one after another: these copy no inputs and outputs.
    """
    task = trial.channels_last()
    if task is None:
        return []
    style = replace(trial.start.style, own_schedule=False, channels_last=True)
    patterns = tuple(sorted(task.likely_on_device(margin) or task.likely(-math.inf)))
    return [in_cuda_graphs(task, patterns, style), SearchChoice(patterns, _one_by_one(style))]


def compiled_alternatives(task: Task, choice: SearchChoice) -> Iterator[SearchChoice]:
    """TorchInductor's own code in the other configurations that it chooses from, launch by launch where it is a CUDA
    graph, and in its default numerics. No CUDA graph where it is none, of few launches."""
    for config in range(1, min(task.compiled_configs(choice.style), _CONFIGS)):
        yield replace(choice, style=replace(choice.style, config=config))
    if choice.style.captured:
        yield replace(choice, style=replace(choice.style, captured=False))
    yield replace(choice, style=replace(choice.style, compiled=DEFAULT))


def in_other_order(task: Task, choice: SearchChoice) -> list[SearchChoice]:
    """The choice with other kernels of those that add in eager's order: rows not kept in registers, or kept; norms
    added up by lanes, if they are not. None where that makes no difference."""
    style, limits = choice.style, choice.style.limits
    if style.own_schedule:
        return []
    others = (replace(limits, keeps=not limits.keeps), replace(limits, lanes=True))
    kernels = [kernel for kernel in task.kernels() if kernel.step is not None]
    found = [other for other in others if any(choose(k, other) != choose(k, limits) for k in kernels)]
    return [
        *_in_rows(task, choice),
        *(SearchChoice(choice.patterns, replace(style, limits=other)) for other in found),
    ]


def steps(task: Task, choice: SearchChoice) -> Iterator[SearchChoice]:
    """Choices that differ from this one in one respect. Those that usually matter most come first: on the device twice
    the warps were 3 % better in 26 of 86, twice and half the work in 13 of 66 and 9 of 47, half the warps in none of 29
    (`benchmarks/passbench/h100_table`). Half the work comes first where multiprocessors have nothing to do. In a CUDA
    graph, patterns that are expected to save a launch are left out last: there are many, and each takes a measurement.
    """
    style, limits = choice.style, choice.style.limits
    gains = task.device_gains() if style.captured else task.gains()
    sure = {pattern for pattern, gain in gains.items() if style.captured and gain >= STEP}
    if not style.captured:
        for patterns in (choice.patterns, tuple(sorted(gains))):
            if task.launches(patterns) >= WORTH:
                yield in_cuda_graphs(task, patterns, style)
    yield from _without_one(task, choice, [p for p in choice.patterns if p not in sure], gains)
    for pattern in gains:
        if pattern not in choice.patterns:
            yield SearchChoice(tuple(sorted((*choice.patterns, pattern))), style)
    if style.captured and task.branches(choice.patterns):
        yield SearchChoice(choice.patterns, replace(style, branches=not style.branches))
    yield from _in_one_launch(task, choice)
    if style.captured and not style.other_regions and task.covers(choice.patterns):
        yield SearchChoice(choice.patterns, _one_by_one(style))
    kernels = task.kernels()
    if not kernels:
        return
    if not style.other_regions:
        yield SearchChoice(choice.patterns, replace(style, own_schedule=not style.own_schedule))
    yield from in_other_order(task, choice)
    if any(kernel.flat is not None for kernel in kernels):  # tiled for the sake of its accesses
        yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, tiles=not limits.tiles)))
    less, more = (
        SearchChoice(choice.patterns, replace(style, limits=replace(limits, work=limits.work * factor)))
        for factor in (0.5, 2.0)
    )
    few = all(choose(kernel, limits).programs(kernel) < PROCESSORS for kernel in kernels)
    yield from [less] * few
    yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, warps=limits.warps * 2.0)))
    yield from (more, *([less] * (not few)))
    yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, persistent=limits.persistent // 4)))
    if any(choose(kernel, limits).loops for kernel in kernels):
        yield SearchChoice(
            choice.patterns, replace(style, limits=replace(limits, stages=_STAGES if limits.stages == 1 else 1))
        )
    if any(choose(kernel, limits).ahead for kernel in kernels):
        yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, ahead=False)))
    yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, warps=limits.warps * 0.5)))
    yield SearchChoice(choice.patterns, replace(style, general=not style.general))
    yield from _without_one(task, choice, [p for p in choice.patterns if p in sure], gains)


def _without_one(
    task: Task, choice: SearchChoice, patterns: Iterable[str], gains: Mapping[str, float]
) -> Iterator[SearchChoice]:
    """The choice without one of these patterns, first without the one that gains least."""
    for pattern in sorted(patterns, key=lambda p: gains[p]):
        rest = tuple(p for p in choice.patterns if p != pattern)
        if task.covers(rest, choice.style.whole):
            yield replace(choice, patterns=rest)
