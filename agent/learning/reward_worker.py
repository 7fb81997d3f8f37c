"""One device's process of `agent.learning.rewards`: jobs come on standard input, rewards go to standard output.

    python -m agent.learning.reward_worker

Both ends are ours: the passes that are judged run in PassBench's own isolated processes, further down. Messages are
pickles behind their length, which is 8 bytes.
"""

import os
import pickle
import struct
import sys
from typing import Any, BinaryIO

from agent.learning.reward import Reward, earn
from passbench.bench import Bench
from storage.errors import PassNetError

_LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message. Raises OSError where nobody reads any more."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message. Raises EOFError where the other side has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """The first message is (device, settings), each further one (sample, files, level, clock); the answer to each is a
    `Reward`, or the text of an error that is the caller's to mend. The first answer is an empty text."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    jobs = sys.stdin.buffer
    device, settings = receive(jobs)
    try:
        bench = Bench(device, settings)
    except PassNetError as error:
        send(answers, str(error))
        return
    with bench:
        send(answers, "")
        while True:
            try:
                job = receive(jobs)
            except EOFError:
                return
            answer: Reward | str
            try:
                answer = earn(bench, *job)
            except PassNetError as error:
                answer = str(error)
            send(answers, answer)


if __name__ == "__main__":
    main()
