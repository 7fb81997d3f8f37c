"""One device's process of `agent.learning.rewards`: jobs come on standard input, rewards go to standard output.

It is a fork of the process that PassBench's workers are forks of. Both ends are ours: the passes that are judged run in
PassBench's own isolated processes. Messages are pickles behind their length, which is 8 bytes.
"""

import os
import pickle
import socket
import struct
from typing import Any, BinaryIO

import torch

from agent.learning.reward import Reward, earn
from passbench.bench import Bench
from passbench.workers.fork_server_client import shared_server
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


def main(control: int) -> None:
    """The first message is (environment, the server's directory, device, settings), and `control` the server's socket;
    each further message is (sample, files, level, clock). The first answer is an empty text, or why the device does not
    work; each further one is a `Reward`, or the text of an error that is the caller's to mend."""
    answers, jobs = os.fdopen(os.dup(1), "wb"), os.fdopen(0, "rb")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    environment, scratch, device, settings = receive(jobs)
    os.environ.clear()
    os.environ.update(environment)
    if "OMP_NUM_THREADS" in environment:  # which torch has not seen
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    shared_server().borrow(scratch, socket.socket(fileno=control))
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
