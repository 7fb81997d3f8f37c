"""Python programs, each in a process of its own that is a fork of one: what all of them import is imported once."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_FORKS = """
import json, os, sys
from passbench.workers.fork_end import end_after
exec(sys.argv[1])
for line in sys.stdin:
    program, environment, directory, said = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, path in zip((0, 1, 2), (os.devnull, *said)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        end_after(lambda: exec(compile(program, "<program>", "exec"), {"__name__": "__main__"}))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

Run = Callable[..., subprocess.CompletedProcess]


@contextmanager
def forked_programs(before: str) -> Iterator[Run]:
    """A function that runs a program as `python -c` does, with an environment and a directory of its own, and returns
    its end: status, output and errors as text. `before`: what is executed once, such as imports; no GPU, no threads."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen(
            [sys.executable, "-c", _FORKS, before], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as one,
    ):

        def run(
            program: str, environment: Mapping[str, str] = os.environ, directory: Path = Path()
        ) -> subprocess.CompletedProcess:
            said = [Path(scratch) / name for name in ("out", "err")]
            for path in said:
                path.write_text("")
            given = [program, dict(environment), str(directory.resolve()), [*map(str, said)]]
            one.stdin.write(json.dumps(given) + "\n")
            one.stdin.flush()
            status = int(one.stdout.readline())
            return subprocess.CompletedProcess(program, status, *(path.read_text() for path in said))

        yield run
        one.stdin.close()
