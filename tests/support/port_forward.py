"""A port of loopback that leads to another one for a while: to take a server away from one of its clients."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def a_way_to(port: int) -> Iterator[int]:
    """A port that leads to another one of loopback, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends: list[socket.socket] = [listener]

        def carry(here: socket.socket, there: socket.socket) -> None:
            with suppress(OSError):
                while data := here.recv(1 << 16):
                    there.sendall(data)
            for end in (here, there):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    here, there = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                    ends.extend((here, there))
                    for pair in ((here, there), (there, here)):
                        threading.Thread(target=carry, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
