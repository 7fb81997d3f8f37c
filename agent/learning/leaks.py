"""What must not be learned from: whatever is too near to an evaluation sample."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from storage.graph.render import render
from storage.records import Sample, Variant


@dataclass(frozen=True)
class HeldOut:
    """What evaluation samples are made of. `families`: their family hashes, which constants do not change. `sequences`:
    their op sequences. `texts`: their source without numbers."""

    families: frozenset[str]
    sequences: frozenset[tuple[str, ...]]
    texts: frozenset[str]

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> "HeldOut":
        """Of these evaluation samples, all of their variants."""
        families, sequences, texts = set(), set(), set()
        for sample in samples:
            families.add(sample.family_hash)
            for variant in sample.variants:
                families.add(variant.family_hash)
                sequences.add(tuple(variant.graph.op_sequence))
                texts.add(text_without_numbers(variant))
        return cls(frozenset(families), frozenset(sequences), frozenset(texts))

    def why_not(self, sample: Sample) -> str:
        """Why a sample must not be learned from; empty if it may."""
        if sample.split == "eval":
            return "an evaluation sample"
        if sample.family_hash in self.families or any(v.family_hash in self.families for v in sample.variants):
            return "the family of an evaluation sample"
        if any(tuple(v.graph.op_sequence) in self.sequences for v in sample.variants):
            return "the op sequence of an evaluation sample"
        if any(text_without_numbers(v) in self.texts for v in sample.variants):
            return "the text of an evaluation sample"
        return ""


def text_without_numbers(variant: Variant) -> str:
    """The source of a variant's graph, every number, name of a value and dtype in it the same."""
    text = re.sub(r"\b(?:in|tmp)_\d+\b", "v", render(variant.graph))
    text = re.sub(r"torch\.(?:float|bfloat|int|uint)\d+", "torch.dtype", text)
    return re.sub(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", "#", text)
