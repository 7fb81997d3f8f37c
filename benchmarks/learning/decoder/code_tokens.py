"""A tokenizer for tasks and passes: few tokens, and names, numbers and lines that can be copied."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

_NAME = r"\b[A-Za-z][A-Za-z_]*_[0-9]+"
_DIGIT = r"(?<![A-Za-z])(?<![A-Za-z][0-9])[0-9]"
_PIECES = Regex(rf"{_NAME}|{_DIGIT}|\n *|(?:(?!{_NAME}|{_DIGIT}|\n).)+")
"""What BPE does not merge over: a name with a number, such as `in_0` or `load_12`; a digit; a line's begin; what stands
between these, such as ` = torch.nn.functional.gelu(`."""
_COMMON = 0.03
"""Lines without names or digits in this share of the texts are tokens, and so are runs of such lines."""


@dataclass
class Text:
    """The tokenizer. A sequence is task, `answer`, the answer, `end`."""

    tokenizer: Tokenizer
    answer: int
    end: int

    @classmethod
    def trained(cls, texts: Sequence[str], vocabulary: int) -> "Text":
        """Byte-level BPE of these texts; lines that many of them have are a token each."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(_PIECES, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=["<end>", "<answer>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.add_tokens([AddedToken(block, normalized=False) for block in common_blocks(texts)])
        return cls(tokenizer, tokenizer.token_to_id("<answer>"), tokenizer.token_to_id("<end>"))

    def prompt(self, task: str) -> list[int]:
        """A task, ready to be answered."""
        return [*self.tokenizer.encode(shortened(task)).ids, self.answer]

    def pair(self, task: str, answer: str) -> tuple[list[int], int]:
        """A whole sequence, and how long its task is."""
        prompt = self.prompt(task)
        return [*prompt, *self.tokenizer.encode(answer).ids, self.end], len(prompt)

    def pairs(self, texts: Sequence[tuple[str, str]]) -> list[tuple[list[int], int]]:
        """As `pair`, of many tasks and answers side by side."""
        tasks = self.tokenizer.encode_batch_fast([shortened(task) for task, _ in texts])
        answers = self.tokenizer.encode_batch_fast([answer for _, answer in texts])
        return [
            ([*task.ids, self.answer, *answer.ids, self.end], len(task.ids) + 1)
            for task, answer in zip(tasks, answers, strict=True)
        ]


_VARIANT = re.compile(r"(?m)^\d+: (.*)\n?")
_DTYPE = re.compile(r"(in_\d+ )\w+\[")


def shortened(task: str) -> str:
    """A task without its name, and without the inputs of variants that differ in dtypes alone from an earlier one's."""
    source, begin, variants = task.partition("\n\n")[2].partition("\nInputs by variant:\n")
    one_each = {_DTYPE.sub(r"\1[", found[1]): found[0] for found in reversed(list(_VARIANT.finditer(variants)))}
    return f"{source}{begin}{''.join(reversed(one_each.values()))}".rstrip("\n")


_COPIED = re.compile(f"{_NAME}|{_DIGIT}")


def common_blocks(texts: Sequence[str]) -> list[str]:
    """Lines that are frequent, and frequent runs of them, the longest first."""
    least = max(2, _COMMON * len(texts))
    lines = Counter(line for text in texts for line in set(text.splitlines(keepends=True)))
    common = {line for line, count in lines.items() if count >= least and len(line) > 8 and not _COPIED.search(line)}
    runs = Counter(run for text in texts for run in set(_runs(text.splitlines(keepends=True), common)))
    return sorted(common | {run for run, count in runs.items() if count >= least}, key=len, reverse=True)


def _runs(lines: Sequence[str], common: set[str]) -> Iterator[str]:
    run: list[str] = []
    for line in (*lines, None):
        if line is not None and (line in common or (run and not line.strip())):
            run.append(line)
        elif run:
            yield "".join(run)
            run = []
