"""Python programs, each in a process of its own that is a fork of one: what all of them import is imported once.

That one is a fork, too, of the process that PassBench's workers are forks of, which has imported torch alone.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from passbench.workers.fork_end import end_after
from passbench.workers.forked_program import ForkedProgram

Run = Callable[..., subprocess.CompletedProcess]


@contextmanager
def forked_programs(before: str = "") -> Iterator[Run]:
    """A function that runs a program as `python -c` does, with an environment and a directory of its own, and returns
    its end: status, output and errors as text. `before`: what is executed once, such as imports; no GPU, no threads."""
    with tempfile.TemporaryDirectory() as scratch, closing(ForkedProgram(__name__)) as one:

        def say(message: object) -> None:
            one.stdin.write(json.dumps(message).encode() + b"\n")
            one.stdin.flush()

        def run(
            program: str, environment: Mapping[str, str] = os.environ, directory: Path = Path()
        ) -> subprocess.CompletedProcess:
            said = [Path(scratch) / name for name in ("out", "err")]
            for path in said:
                path.write_text("")
            say([program, dict(environment), str(directory.resolve()), [*map(str, said)]])
            status = int(one.stdout.readline())
            return subprocess.CompletedProcess(program, status, *(path.read_text() for path in said))

        say([before, dict(os.environ)])
        yield run


def main(control: int) -> None:
    """Execute what comes first in its environment, then each program that comes, in a fork. The server's socket,
    `control`, is not needed."""
    os.close(control)
    requests = os.fdopen(0, "rb")
    before, environment = json.loads(requests.readline())
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # chosen anew from the environment
    exec(before, {})
    for line in requests:
        program, environment, directory, said = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for number, path in zip((0, 1, 2), (os.devnull, *said), strict=True):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(directory)
            end_after(lambda text=program: exec(compile(text, "<program>", "exec"), {"__name__": "__main__"}))
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
