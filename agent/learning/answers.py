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
from collections.abc import Mapping

from passbench.contract import NAMES_FILE

_MODULE = re.compile(
    r"`([A-Za-z_][A-Za-z0-9_]{0,79})\.py`:?[ \t]*\n+```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.S | re.M
)
_BLOCK = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```[ \t]*$", re.S | re.M)
_NAMES = re.compile(re.escape(NAMES_FILE) + r"`?:?\s*(?:```(?:json)?\s*)?(\[[^\]]*\])")
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
    files = {f"{name}.py": text for name, text in _MODULE.findall(answer)}
    if not files and len(blocks := _BLOCK.findall(answer)) == 1:
        files = {"fuse.py": blocks[0]}
    if not files:
        return {}
    listed = _NAMES.search(answer)
    names = listed[1] if listed else json.dumps([name.removesuffix(".py") for name in files])
    return files | {NAMES_FILE: names + "\n"}
