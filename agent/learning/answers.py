"""A pass as text that a model writes: each file in a block of its own, behind its name.

`fuse_add_relu.py`:
```python
import torch
...
```
`sorted_output_pass_rule_names.json`: ["fuse_add_relu"]
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from passbench.contract import NAMES_FILE

_NAME = re.compile(r"`([A-Za-z_][A-Za-z0-9_]{0,79})\.py`:?[ \t]*\Z")
_FENCE = re.compile(r"```(python|py)?[ \t]*")
_LISTED = re.compile(re.escape(NAMES_FILE) + r"`?:?\s{0,80}(?:```(?:json)?\s{0,80})?(\[[^\]]{0,4000}\])")
_LONGEST = 400_000  # characters


def answer_of(files: Mapping[str, str], rationale: str = "") -> str:
    """Files of a pass as an answer, the rationale in front."""
    blocks = [f"`{name}`:\n```python\n{text.rstrip()}\n```" for name, text in files.items() if name != NAMES_FILE]
    return "\n\n".join([*([rationale] if rationale else []), *blocks, f"`{NAMES_FILE}`: {files[NAMES_FILE].strip()}"])


def files_of(answer: str) -> dict[str, str]:
    """Files of a pass in an answer; empty where it has none.

    An answer that lists no names applies its modules in the order in which they stand. A single Python block without a
    name is the module `fuse`.
    """
    answer = answer[:_LONGEST]
    blocks = list(_blocks(answer.split("\n")))
    files = {f"{name}.py": text for name, text in blocks if name}
    if not files and len(blocks) == 1:
        files = {"fuse.py": blocks[0][1]}
    if not files:
        return {}
    listed = _LISTED.search(answer)
    names = listed[1] if listed else json.dumps([name.removesuffix(".py") for name in files])
    return files | {NAMES_FILE: names + "\n"}


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and text of each block that is closed: of blocks behind a name, and of Python blocks, whose name is "".

    The time is linear: a model that repeats itself writes thousands of blocks that it never closes.
    """
    fences = {number: found[1] for number, line in enumerate(lines) if (found := _FENCE.fullmatch(line))}
    closing = [number for number, language in fences.items() if language is None]
    name, number = "", 0
    while number < len(lines):
        line = lines[number]
        if number in fences:
            place = bisect_right(closing, number)
            if (name or fences[number]) and place < len(closing):
                yield name, "".join(f"{each}\n" for each in lines[number + 1 : closing[place]])
                number = closing[place]
            name = ""
        elif line.strip():
            found = _NAME.search(line)
            name = found[1] if found else ""
        number += 1
