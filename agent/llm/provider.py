"""Calls of a model's provider: streamed, tried again with back-off, priced, and cleared of keys."""

import os
import random
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, Self

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from agent.llm.options import LlmOptions
from agent.llm.redact import redacted, secrets_of, whole_characters
from storage.errors import PassNetError

_LONGEST_WAIT = 60.0
_MOST_PATIENCE = 600.0
"""Seconds that a provider may ask to wait; what is longer, as until the next day, is no time to sleep."""
_TRANSIENT = frozenset((408, 409, 425, 429))  # and everything from 500 on
_CALLERS = frozenset((401, 402, 403, 404))  # for the caller to put right: the key, the account, the model's id
_FAILURES = (ModelAPIError, UnexpectedModelBehavior, httpx2.HTTPError, TimeoutError, ConnectionError)
_UNREACHED_TRIES = 3
"""Tries of a call at a provider that no connection reaches and that has never answered: its address is wrong, or it is
not running."""
_CONNECT_SECONDS = 20.0


class Refused(Exception):
    """The provider will never answer this conversation."""


class NoAnswer(Exception):
    """No answer after all tries, or none for longer than is waited."""


class Unreachable(NoAnswer):
    """No connection in any try, to a provider that has never answered."""


class OutOfTime(Exception):
    """No answer before the deadline."""


class Answer(NamedTuple):
    """A response, and what it cost in US dollars; None where the price is not known."""

    response: ModelResponse
    cost_usd: float | None


class Provider:
    """A model to ask. Use as a context manager: its connections live on a thread of their own."""

    def __init__(self, model: str | Model, options: LlmOptions, say: Callable[[str], None]) -> None:
        self.model = model_of(model, options.base_url)
        self.options, self.say = options, say
        self.failed_calls = 0
        self._secrets = secrets_of()
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self.model))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)

    def ask(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        deadline: float | None,
        answered_before: bool = False,
    ) -> Answer:
        """The model's answer to a conversation; `deadline` is a time of `time.monotonic`.

        A provider that has `answered_before` may be starting again: it is waited for where no connection reaches it,
        another one for seconds only. Failed tries add to `failed_calls`. Raises Refused, NoAnswer, Unreachable and
        OutOfTime, and PassNetError for what the caller must put right: a key, an account, a model's id.
        """
        unreached = not answered_before
        for number in range(1, self.options.tries + 1):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise OutOfTime
            try:
                response = self._portal.call(self._request, list(messages), list(tools), left)
                return Answer(self._clean(response), self._cost(response))
            except _FAILURES as error:
                self.failed_calls += 1
                connection = _no_connection(error)
                reason = redacted(connection or _one_line(error), self._secrets)
                self._raise_if_final(error, reason)
                unreached = unreached and connection is not None
                tries = min(self.options.tries, _UNREACHED_TRIES) if unreached else self.options.tries
                if number >= tries:
                    no_answer = Unreachable if unreached else NoAnswer
                    raise no_answer(f"{number} {'try' if number == 1 else 'tries'}, the last: {reason}") from None
                wait = _wait(error, number, self.options.backoff)
                if wait > _MOST_PATIENCE:
                    raise NoAnswer(f"it asks to wait {wait:.0f} s; {reason}") from None
                if deadline is not None and time.monotonic() + wait >= deadline:
                    raise OutOfTime from None
                self.say(f"provider failed ({reason}); try {number + 1} of {tries} in {wait:.1f} s")
                time.sleep(wait)
        raise AssertionError("unreachable")

    async def _request(
        self, messages: list[ModelMessage], tools: list[ToolDefinition], left: float | None
    ) -> ModelResponse:
        settings = ModelSettings(
            **{
                "max_tokens": self.options.output_tokens,
                "cache": True,
                **self.options.settings,
                "max_retries": 0,  # `ask` counts them
                "timeout": httpx2.Timeout(
                    self.options.stall_seconds, connect=min(_CONNECT_SECONDS, self.options.stall_seconds)
                ),
                **({} if left is None else {"request_timeout": left}),
            }
        )
        parameters = ModelRequestParameters(function_tools=tools)
        if not self.options.stream:
            return await model_request(
                self.model, messages, model_settings=settings, model_request_parameters=parameters
            )
        async with model_request_stream(
            self.model, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            async for _ in stream:
                pass
            response = stream.get()
        if _broke_off(self.model, response):
            raise ModelAPIError(self.model.model_name, "the stream broke off")
        return response

    def _raise_if_final(self, error: Exception, reason: str) -> None:
        """Raise an error that no further try can mend."""
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        at = f" at {self.options.base_url}" if self.options.base_url else ""
        if status == 404:
            path = "; addresses of OpenAI-compatible servers mostly end in /v1" if at else ""
            raise PassNetError(f"the provider{at} knows no such model or path{path}: {reason}") from None
        if status in _CALLERS:
            raise PassNetError(f"the provider{at} refuses the model or its key: {reason}") from None
        refused = status is not None and 400 <= status < 500 and status not in _TRANSIENT
        if refused or isinstance(error, ContentFilterError):
            raise Refused(reason) from None

    def _clean(self, response: ModelResponse) -> ModelResponse:
        """The response without secrets, without the provider's address, which may hold some, and without halves of
        characters, which a stream may cut in two and no file can hold."""
        (plain,) = ModelMessagesTypeAdapter.dump_python([response], mode="json")
        plain |= {"provider_url": None}
        (clean,) = ModelMessagesTypeAdapter.validate_python([whole_characters(redacted(plain, self._secrets))])
        return clean

    def _cost(self, response: ModelResponse) -> float | None:
        if self.options.price is not None:
            tokens = response.usage.input_tokens, response.usage.output_tokens
            return sum(n * price for n, price in zip(tokens, self.options.price, strict=True)) / 1e6
        asked = replace(response, model_name=self.model.model_name)  # a deployment's name, say, where that has no price
        return next((price for price in map(_price, (response, asked)) if price is not None), None)


def _price(response: ModelResponse) -> float | None:
    """US dollars, by pydantic-ai's prices; None where it knows none."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # unknown model, usage that cannot be priced, no name
        return None


def model_of(model: str | Model, base_url: str | None = None) -> Model:
    """pydantic-ai's model of an id, such as `anthropic:claude-sonnet-5`. With a base URL, an id without a provider is
    one of an OpenAI-compatible server. Raises PassNetError for an unknown id and a missing key."""
    if isinstance(model, Model):
        return model
    known = _knows(model.partition(":")[0]) if ":" in model else False
    try:
        if base_url is None and model == "test":  # pydantic-ai's own, which answers at random
            raise UserError("it is no model of a provider")
        if base_url is None:
            return infer_model(model)
        name = model if known else f"openai-chat:{model}"
        return infer_model(name, lambda provider: infer_provider_class(provider)(base_url=base_url))
    except Exception as error:  # of pydantic-ai, or of the provider's own package, such as for a key that is empty
        hint = "" if known else "; ids look like anthropic:NAME or openai:NAME, and a server's own ids need a base URL"
        raise PassNetError(f"cannot use model {model!r}: {_advice(error)}{hint}") from None


def check_price(model: Model, options: LlmOptions) -> None:
    """Raises PassNetError where money is limited and the price of the model is not known: before anything is paid."""
    limited = options.cost_usd is not None or options.run_cost_usd is not None
    if not limited or options.price is not None:
        return
    asked = ModelResponse(
        [],
        usage=RequestUsage(input_tokens=1, output_tokens=1),
        model_name=model.model_name,
        provider_name=model.system,
        provider_url=model.base_url,
    )
    if _price(asked) is None:
        raise PassNetError(UNKNOWN_PRICE)


UNKNOWN_PRICE = "this model's price is not known, so cost cannot be limited: give --price IN OUT"


def _no_connection(error: Exception) -> str | None:
    """Why no connection was made, without the address; None where one was."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    if any(isinstance(each, httpx2.ConnectTimeout) for each in chain):
        return "no connection in time"
    if not any(isinstance(each, httpx2.ConnectError) for each in chain):
        return None
    system = next((each for each in reversed(chain) if isinstance(each, OSError)), None)
    if isinstance(system, socket.gaierror | ssl.SSLError):
        return f"no connection: {system.strerror or system}"
    return f"no connection: {os.strerror(system.errno) if system is not None and system.errno else 'refused'}"


def _broke_off(model: Model, response: ModelResponse) -> bool:
    """Whether a stream ended before the model did. For OpenAI's chat API pydantic-ai puts in a finish reason where none
    came; the one that did come is among the details."""
    chat = sys.modules.get("pydantic_ai.models.openai")  # imported if the model is one of its
    if chat is not None and isinstance(model, chat.OpenAIChatModel) and response.finish_reason != "content_filter":
        return not (response.provider_details or {}).get("finish_reason")
    return response.finish_reason is None and model.provider is not None


def _knows(provider: str) -> bool:
    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:  # a provider whose package is not installed; `infer_model` says so
        return True
    return True


def _wait(error: Exception, failed: int, backoff: float) -> float:
    """Seconds until the next try: as the provider says, else doubled each time, give or take a quarter."""
    if isinstance(error, ModelHTTPError) and error.retry_after is not None:
        return error.retry_after
    return min(backoff * 2 ** (failed - 1), _LONGEST_WAIT) * random.uniform(0.75, 1.25)


def _advice(error: Exception) -> str:
    """What pydantic-ai says is wrong with a model, without what it says to programmers."""
    said = _one_line(error)
    variable = re.match(r"Set the `(\w+)` environment variable\b", said)
    return f"set the environment variable {variable[1]}" if variable else said


def _one_line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]
