"""Training of a small decoder on (task, answer) sequences, by the clock: little padding, Muon on its matrices."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from benchmarks.learning.decoder.small_decoder import Decoder

Pair = tuple[list[int], int]
"""A whole sequence, and how long its task is."""

_GRAIN = 64
"""Lengths of batches are multiples of it on a GPU."""
_WARM_UP = 100
_LAST = 0.02
"""The share of the learning rate at the end."""
_OF_TASK = 0.2
"""What a task's token counts in the loss, where an answer's counts 1."""


@dataclass
class Training:
    """A decoder being trained. `renewed`: all sequences as they shall be in a later epoch. It is asked in the
    background; until it has answered, epochs have the sequences of before."""

    model: Decoder
    sequences: list[Pair]
    batch_tokens: int
    rate: float
    rng: random.Random
    renewed: Callable[[], Sequence[Pair]] | None = None
    steps: int = 0
    tokens: int = 0
    answer_tokens: int = 0
    epochs: int = 0
    renewals: int = 0
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        matrices = [m.weight for m in self.model.modules() if isinstance(m, torch.nn.Linear)]
        ours = {id(p) for p in matrices}
        others = [p for p in self.model.parameters() if id(p) not in ours]
        self.device = self.model.embedding.weight.device
        self.optimizers = (
            torch.optim.Muon(matrices, lr=self.rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(
                others, lr=self.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=self.device.type == "cuda"
            ),
        )
        self.grain = _GRAIN if self.device.type == "cuda" else 1
        self._queue: list[list[Pair]] = []
        self._own: list[Pair] = []
        self._thread = ThreadPoolExecutor(1)
        self._next: Future[Sequence[Pair]] | None = None

    def compile(self) -> float:
        """Compile the model's blocks, one kernel for all of them, and take a step of rate 0; returns seconds."""
        begin = time.monotonic()
        for block in self.model.blocks:
            block.compile(dynamic=True)
        self._queue = batches(self.sequences, self.batch_tokens, self.rng, self.grain)
        for _ in range(3):
            self._step(0.0)
        self.steps, self.tokens, self.answer_tokens, self.losses = 0, 0, 0, []
        return time.monotonic() - begin

    def run(self, seconds: float, progress: tuple[float, float], most_steps: int | None = None) -> None:
        """Train for so long; the learning rate goes from one share of its schedule to another."""
        begin, done = time.monotonic(), 0
        while (share := (time.monotonic() - begin) / seconds) < 1 and done != most_steps:
            at = progress[0] + share * (progress[1] - progress[0])
            self._step(self.rate * min(1.0, (self.steps + 1) / _WARM_UP) * schedule(at))
            done += 1

    def add(self, pairs: Sequence[Pair]) -> None:
        """Learn from these, too, beginning with a new epoch."""
        self._own += pairs
        self._queue.clear()

    def on(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """Of sequences that are not learned from: the mean `loss` of an answer's token, and the shares of `tokens` that
        are the most likely ones behind those before them, and of answers of which all tokens are, the `whole` ones."""
        found = list(self._of_each(pairs))
        count = max(1, sum(len(right) for _, _, right in found))
        return {
            "loss": sum(loss for _, loss, _ in found) / count,
            "tokens": sum(int(right.sum()) for *_, right in found) / count,
            "whole": sum(bool(right.all()) for *_, right in found) / max(1, len(pairs)),
        }

    def whole(self, pairs: Sequence[Pair]) -> list[bool]:
        """Of each sequence whether all of its answer's tokens are the most likely ones."""
        found = {id(pair): bool(right.all()) for pair, _, right in self._of_each(pairs)}
        return [found[id(pair)] for pair in pairs]

    @torch.no_grad()
    def _of_each(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, float, torch.Tensor]]:
        """Each sequence in some order, the loss of its answer's tokens, and which of them are the most likely ones."""
        self.model.eval()
        with torch.compiler.set_stance("force_eager"):  # compiling for so few batches takes longer than to run them
            for batch in batches(pairs, self.batch_tokens, random.Random(0), self.grain):
                logits, targets, _ = self._predicted(batch, 0.0)
                lengths = [len(ids) - prompt for ids, prompt in batch]
                losses = F.cross_entropy(logits, targets, reduction="none").split(lengths)
                right = (logits.argmax(-1) == targets).split(lengths)
                yield from zip(batch, (float(each.sum()) for each in losses), right, strict=True)

    def _predicted(self, batch: Sequence[Pair], of_task: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits, the tokens that they are of, and what each counts in the loss."""
        tokens, places, targets, weights = tensors_of(batch, self.device, self.grain, of_task)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.model(tokens, places).float(), targets, weights

    def _step(self, rate: float) -> None:
        if not self._queue:
            if self.renewed is not None:
                if self._next is not None and self._next.done():
                    self.sequences, self._next = self._next.result(), None
                    self.renewals += 1
                self._next = self._next or self._thread.submit(self.renewed)
            every = [*self.sequences, *self._own]
            self._queue = batches(every, self.batch_tokens, self.rng, self.grain)
            self.epochs += 1
        self.model.train()
        batch = self._queue.pop()
        logits, targets, weights = self._predicted(batch, _OF_TASK)
        loss = (F.cross_entropy(logits, targets, reduction="none") * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        self.tokens += sum(len(ids) for ids, _ in batch)
        self.answer_tokens += sum(len(ids) - prompt for ids, prompt in batch)
        if self.steps % 20 == 1:
            self.losses.append(float(loss.detach()))


def schedule(at: float) -> float:
    """The share of the learning rate at this share of training: a cosine."""
    return _LAST + (1 - _LAST) * 0.5 * (1 + math.cos(math.pi * at))


def batches(sequences: Sequence[Pair], batch_tokens: int, rng: random.Random, grain: int) -> list[list[Pair]]:
    """All sequences in batches of about the same length, in a random order."""
    order = sorted(sequences, key=lambda pair: len(pair[0]) + rng.random() * grain / 2)
    found: list[list[Pair]] = []
    for pair in order:
        if not found or (len(found[-1]) + 1) * _rounded(len(pair[0]), grain) > batch_tokens:
            found.append([])
        found[-1].append(pair)
    rng.shuffle(found)
    return found


def tensors_of(
    batch: Sequence[Pair], device: torch.device, grain: int, of_task: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (sequences, length), padded; where, in the flattened tokens, the next one is of an answer; those; and what
    each counts. Those of tasks are there, too, and count `of_task`, where it is not 0."""
    length = _rounded(max(len(ids) for ids, _ in batch), grain)
    tokens = torch.zeros(len(batch), length, dtype=torch.long)
    places, targets, weights = [], [], []
    for row, (ids, prompt) in enumerate(batch):
        first = 1 if of_task else prompt
        tokens[row, : len(ids)] = torch.tensor(ids)
        places.append(torch.arange(first - 1, len(ids) - 1) + row * length)
        targets += ids[first:]
        weights += [of_task] * (prompt - first) + [1.0] * (len(ids) - prompt)
    found = tokens, torch.cat(places), torch.tensor(targets), torch.tensor(weights)
    if device.type == "cuda":  # from other memory a copy waits until the GPU has done what it was given before
        found = tuple(each.pin_memory() for each in found)
    return tuple(each.to(device, non_blocking=True) for each in found)


def _rounded(length: int, grain: int) -> int:
    return -(-length // grain) * grain
