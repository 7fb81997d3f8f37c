"""Configs of models on the Hugging Face Hub: `config.json` alone, by the Hub's own client and in its cache.

The client follows redirects, tries again on 429 (waiting as `Retry-After` says) and 5xx, and keeps what it fetched;
with HF_HUB_OFFLINE=1 that is all there is. What it lacks is added here: a bound on sizes, on silence and on waits. A
config is data: nothing that it names is downloaded or executed.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from extraction.failures import ModelError
from storage.errors import PassNetError
from storage.hub_errors import refuse_long_wait, understood

FILE = "config.json"
MAX_BYTES = 8 << 20
"""A larger config is refused. The largest in earnest list the labels of some ten thousand classes: about 2 MiB."""
SILENCE_S = 30.0
"""Seconds without a byte after which a connection counts as lost."""
FETCHERS = 8
"""Configs that are fetched at a time."""
ATTEMPTS = 4
PAUSE_S = 1.0
"""A connection that is dropped, which the client does not try again by itself, is tried again after so many seconds,
each time twice as many."""
GIVE_UP = 5
"""Configs in a row without any answer after which the Hub counts as out of reach."""

_lock = threading.Lock()
_unanswered = 0
_known: dict[tuple[str, str], Path | ModelError] = {}
"""What was asked for in this process, so that a build sees one state of each repository."""


def fetch(name: str, revision: str = "") -> dict[str, Any]:
    """The config of a repository `ORG/NAME`, at a branch, tag or commit (default: main).

    Raises ModelError: "not_found" for no such repository or revision, or one that is not in the cache while offline;
    "gated" where the Hub refuses access; "config" for one without a config.json, or with one that is too large or no
    JSON object; "timeout" where the Hub gives no usable answer. Raises PassNetError if it does so `GIVE_UP` times on
    end.
    """
    prefetch([(name, revision)])
    found = _known[name, revision]
    if isinstance(found, ModelError):
        raise found
    try:
        fields = json.loads(found.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError("config", f"{FILE} of {name} is no JSON: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise PassNetError(f"{found} cannot be read: {error.strerror}; delete it and build again") from error
    if not isinstance(fields, dict):
        raise ModelError("config", f"{FILE} of {name} is a {type(fields).__name__}, not an object")
    return fields


def prefetch(wanted: Iterable[tuple[str, str]]) -> None:
    """Fetch configs, `FETCHERS` at a time, so that `fetch` has them; (name, revision) each.

    Raises PassNetError as `fetch` does.
    """
    missing = [each for each in dict.fromkeys(wanted) if each not in _known]
    if not missing:
        return
    with bounded_client(), ThreadPoolExecutor(min(FETCHERS, len(missing))) as pool:
        for each, found in zip(missing, pool.map(lambda each: _fetched(*each), missing), strict=True):
            _known[each] = found


def forget() -> None:
    """Ask the Hub, or its cache, anew."""
    global _unanswered
    _known.clear()
    _unanswered = 0


@contextlib.contextmanager
def bounded_client() -> Iterator[None]:
    """The client of `huggingface_hub` without waits that do not end: `SILENCE_S` a request, and no long `Retry-After`.

    It is one for the whole process; hooks are the means that it offers, since its own calls pass no time-out. Its lines
    about tries, two for each, are kept back: what came of them is told once.
    """
    from huggingface_hub.utils import get_session, logging

    session, told = get_session(), logging.get_verbosity()
    logging.set_verbosity_error()
    before = dict(session.event_hooks)
    session.event_hooks = before | {
        "request": [*before["request"], _bound_silence],
        "response": [*before["response"], refuse_long_wait],
    }
    try:
        yield
    finally:
        session.event_hooks = before
        logging.set_verbosity(told)


def _bound_silence(request: Any) -> None:
    asked = request.extensions.get("timeout") or {}
    kinds = ("connect", "read", "write", "pool")
    request.extensions["timeout"] = {kind: min(asked.get(kind) or SILENCE_S, SILENCE_S) for kind in kinds}


class TooLarge(Exception):
    """A file that is larger than `MAX_BYTES`."""


class _Bound(tqdm):
    """Stands in for the client's progress bar, which hears of a file's size first and of every chunk."""

    def __init__(self, *args: Any, total: float | None = None, **options: Any) -> None:
        super().__init__(disable=True)
        self.seen = 0
        if total is not None and total > MAX_BYTES:
            raise TooLarge

    def update(self, n: float | None = 1) -> None:
        self.seen += int(n or 0)
        if self.seen > MAX_BYTES:
            raise TooLarge


def _download(name: str, revision: str) -> Path:
    import huggingface_hub

    for attempt in range(ATTEMPTS):
        try:
            return Path(huggingface_hub.hf_hub_download(name, FILE, revision=revision or None, tqdm_class=_Bound))
        except Exception as error:
            if attempt == ATTEMPTS - 1 or not _dropped(error):
                raise
        time.sleep(PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def _dropped(error: BaseException) -> bool:
    """Whether a connection was lost, other than by silence, which was waited for already. One that could not be made at
    all the client has tried six times by itself, in 23 s."""
    failure = understood(error)
    causes = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    waited = any("Timeout" in type(cause).__name__ or type(cause).__name__ == "ConnectError" for cause in causes)
    return failure is not None and failure.status is None and failure.may_pass and not waited


def _fetched(name: str, revision: str) -> Path | ModelError:
    global _unanswered
    from huggingface_hub import constants, errors

    try:
        path = _download(name, revision)
    except TooLarge:
        return ModelError("config", f"{FILE} of {name} is larger than {MAX_BYTES} bytes")
    except errors.GatedRepoError:
        return ModelError("gated", f"{name} is gated: accept its terms on the Hub and set HF_TOKEN, or leave it out")
    except errors.DisabledRepoError:
        return ModelError("gated", f"{name} is disabled on the Hub")
    except errors.RevisionNotFoundError:
        return ModelError("not_found", f"{name} has no revision {revision!r}")
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        return ModelError("not_found", f"the Hub has no model {name!r}, or it is private")
    except errors.RemoteEntryNotFoundError:
        return ModelError("config", f"{name} has no {FILE}")
    except Exception as error:  # what the network or the Hub did, which `understood` tells from our own faults
        failure = understood(error)
        if failure is None:
            raise
        if constants.HF_HUB_OFFLINE:
            return ModelError("not_found", f"HF_HUB_OFFLINE is set, and {FILE} of {name} is not in the cache")
        what = f"HTTP status {failure.status}" if failure.status else f"no answer: {failure.text[:200]}"
        with _lock:
            _unanswered += 1
            if _unanswered >= GIVE_UP:
                raise PassNetError(
                    f"the Hub gives no usable answer ({what}): check the network and HF_ENDPOINT, or set "
                    "HF_HUB_OFFLINE=1 to go on with the configs that are in the cache"
                ) from None
        return ModelError("timeout", f"{FILE} of {name}: {what}")
    with _lock:
        _unanswered = 0
    return path
