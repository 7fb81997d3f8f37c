"""What an error of the Hub's client means: whether it may pass, and what a user can do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.errors import PassNetError

LONGEST_WAIT = 300.0  # seconds that a Hub may ask to wait; its rate limits are windows of five minutes
PASSING = (408, 409, 412, 429, 500, 502, 503, 504)  # 409 and 412: somebody else committed meanwhile


class LongWait(Exception):
    """The Hub asks to wait for longer than a push is ready to."""

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(f"the Hub asks to wait {seconds:.0f} s")
        self.status = status
        self.seconds = seconds


class HubBusy(PassNetError):
    """The Hub did not do what it may well do later: a rate limit, a server that fails, no connection."""


@dataclass(frozen=True)
class Failure:
    """An HTTP status, or None where there was no answer; `wait` is what the Hub asked for, in seconds."""

    status: int | None
    may_pass: bool
    wait: float = 0.0
    text: str = ""


def understood(error: BaseException) -> Failure | None:
    """The failure behind an error or one of its causes; None for errors that are not the Hub's or the network's."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LongWait):
            return Failure(cause.status, False, cause.seconds)
        if isinstance(cause, HfHubHTTPError):
            status = cause.response.status_code
            return Failure(status, status in PASSING, asked_wait(cause.response.headers), cause.server_message or "")
        if isinstance(cause, OfflineModeIsEnabled):
            return Failure(None, False, text="HF_HUB_OFFLINE is set, unset it")
        if isinstance(cause, HTTPError | ConnectionError | TimeoutError):
            return Failure(None, True, text=str(cause))
        cause = cause.__cause__
    if isinstance(error, ValueError):  # what the client makes of an answer outside the protocol
        return Failure(None, False, text=str(error))
    return None


def refuse_long_wait(response: Any) -> None:
    """Response hook for the client, which sleeps for as long as a server says: raises LongWait instead."""
    if response.status_code in PASSING and (wait := asked_wait(response.headers)) > LONGEST_WAIT:
        raise LongWait(response.status_code, wait)


def asked_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a `Retry-After` header asks for; 0 without one, or with a date."""
    value = headers.get("Retry-After", "").strip()
    return float(value) if value.isdecimal() else 0.0


def advice(failure: Failure, repo: str, endpoint: str, token: str | None) -> str:
    """One line: what went wrong and what to do. The token is not in it, whatever the server says."""
    again = "run it again: what has arrived is not sent again"
    match failure.status:
        case None:
            message = f"no usable answer from {endpoint}: check the network and HF_ENDPOINT, then {again}"
        case 401 if token is None:
            message = f"{endpoint} wants a token for {repo}: run `hf auth login`, or set HF_TOKEN"
        case 401:
            message = f"{endpoint} does not accept the token for {repo}: set HF_TOKEN to one that is valid"
        case 403:
            message = f"the token may not write to {repo}: use one with write access to it, or push elsewhere"
        case 404:
            message = f"{repo} does not exist or the token cannot see it: check its name and the token's access"
        case 409 | 412:
            message = f"others keep committing to {repo}: {again}"
        case 429:
            message = f"the Hub's rate limit is reached: wait {failure.wait or 300:.0f} s, then {again}"
        case status if status >= 500:
            message = f"{endpoint} keeps failing ({status}): later, {again}"
        case status:
            message = f"{endpoint} refuses the push to {repo} ({status}): see what it says"
    said = " ".join(failure.text.split())[:200]
    message += f" [{said}]" if said else ""
    return message.replace(token, "***") if token else message
