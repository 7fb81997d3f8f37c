"""Inputs of dozens of calls at once, drawn by the operations that PassBench draws a batch of calls by.

Drawn by itself, each input takes the host a dozen small kernels: a draw took 7 ms on an H100, where the calls of a
graph of five operations take 0.1.
"""

import random

import torch

from agent.ahead.side_times import Row
from passbench.inputs import batch_layout
from passbench.inputs.distribution import CORRECTNESS, Distribution
from passbench.ipc.messages import Block
from passbench.ipc.shared_memory import extent
from storage.records import Input


def distribution(number: int) -> Distribution:
    """How the draw of this number, or each of the draws of such a batch, is drawn: every second one VARIED, the others
    in turn as the draws are that PassBench decides correctness on."""
    return Distribution.VARIED if number % 2 else CORRECTNESS[number // 2 % len(CORRECTNESS)]


def rows_together(specs: tuple[Input, ...], seed: int, number: int, calls: int, device: torch.device) -> list[Row]:
    """The inputs of so many calls, those of the batch of this number of a seed, each input in memory of its own."""
    layout = batch_layout.lay_out(specs, (), calls, random.Random(number))
    memory = torch.empty(layout.end, dtype=torch.uint8, device=device)
    batch_layout.draw(memory, layout, specs, seed, number, distribution(number))
    columns = [_apart(memory, block) if isinstance(block, Block) else [block] * calls for block in layout.batch.inputs]
    return list(zip(*columns, strict=True)) if columns else [()] * calls


def _apart(memory: torch.Tensor, block: Block) -> list[torch.Tensor]:
    """The tensors at all places of a block, each copied into memory of its own, gaps between its elements included."""
    drawn = batch_layout.elements(memory, block)
    size, first = extent(block.shape, block.stride), block.offset
    places = [(start - first) // block.dtype.itemsize for start in block.starts]
    own = [torch.empty(size, dtype=block.dtype, device=memory.device) for _ in places]
    if size:
        torch._foreach_copy_(own, [drawn[place : place + size] for place in places])
    return [one.as_strided(block.shape, block.stride) for one in own]
