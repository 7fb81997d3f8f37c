"""The end of a flow run's process whose Prefect server is gone.

A process that is told to end (SIGTERM) reports that to the server. Prefect tries this again for two minutes where
nothing answers, and whoever stops a machine does not wait that long.
"""

import os
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

from prefect.settings import PREFECT_API_URL

SECONDS = 2.0
"""A server that refuses connections for so long is gone."""


def end_if_server_is_gone() -> None:
    """Watch the server from now on, in a process that has been told to end: it ends when the server is gone. While the
    server takes connections, Prefect reports as ever."""
    if address := PREFECT_API_URL.value():
        threading.Thread(target=_watch, args=(address,), daemon=True).start()


def _watch(address: str) -> None:
    url = urlsplit(address)
    place = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    gone_since = None
    while gone_since is None or time.monotonic() - gone_since < SECONDS:
        gone_since = None if _answers(place) else gone_since or time.monotonic()
        time.sleep(0.2)
    print(
        f"the Prefect server at {address} is gone: this run ends without reporting to it", file=sys.stderr, flush=True
    )
    os._exit(128 + signal.SIGTERM)


def _answers(place: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(place, timeout=SECONDS):
            return True
    except OSError:
        return False
