"""What a finding says of a pass, which its author has written: a line that a terminal and a table can hold."""

import json

from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from tests.passbench.policy.test_policy import in_wrapper

CONSTRAINT = "\\ud800\\n\\x1b[2J" + "q" * 9000


def test_a_message_and_a_name_are_one_line_of_letters():
    kernel = f'@triton.jit\ndef k(n):\n    tl.inline_asm_elementwise("", "{CONSTRAINT}", [n], tl.int32, True, 1)\n'
    files = {"rule.py": in_wrapper("pass") + kernel, "a\nb.py": "import ctypes\n", NAMES_FILE: json.dumps(["rule"])}
    found = check_files(PassFiles(("rule",), files, ()))
    assert {finding.rule for finding in found} == {"assembly", "import"}
    for finding in found:
        assert finding.message.isprintable() and finding.file.isprintable() and len(finding.message) <= 2000
