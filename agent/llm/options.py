"""What a caller may choose for the author `llm`: where its model is, and how much it may use."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from storage.errors import PassNetError

_PER_RUN = ("base_url", "stream", "price", "tries", "backoff", "stall_seconds", "run_cost_usd", "run_seconds")
"""Options that are no part of an attempt's identity. A run with a higher budget, say, goes on with the earlier run."""


@dataclass(frozen=True)
class LlmOptions:
    """Limits are for one attempt unless their name starts with `run_`; None sets no limit.

    `tokens`: of input and output together; `price`: US dollars per million input and output tokens, for models whose
    price pydantic-ai does not know; `settings`: pydantic-ai's `ModelSettings`, such as `{"temperature": 0.2}`.
    """

    base_url: str | None = None  # of an OpenAI-compatible server or a proxy; None: the provider's own variable
    steps: int = 40  # a step is one answer of the model and the tools that it calls
    tokens: int | None = 2_000_000
    cost_usd: float | None = None
    seconds: float | None = 3600.0
    run_cost_usd: float | None = None  # of all attempts of the run, earlier parts of it included
    run_seconds: float | None = None
    output_tokens: int = 16_384  # of one answer
    price: tuple[float, float] | None = None
    stream: bool = True  # streamed answers show a stall at once; turn off for servers that cannot
    stall_seconds: float = 300.0  # without a byte from the provider
    tries: int = 8  # of one call, before the run stops
    backoff: float = 1.0  # seconds after the first failed try; doubled after each, at most a minute
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises PassNetError for what cannot be, and for an address with a password in it."""
        for name in ("steps", "tokens", "cost_usd", "seconds", "run_cost_usd", "run_seconds", "output_tokens", "tries"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise PassNetError(f"{name} must be above 0, not {value}")
        if self.price is not None and (len(self.price) != 2 or not all(0 <= p < math.inf for p in self.price)):
            raise PassNetError("a price is two numbers: dollars per million input and per million output tokens")
        if self.base_url is not None:
            url = urlsplit(self.base_url)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise PassNetError(f"base URL {self.base_url!r} must start with http:// or https://")
            if url.username or url.password or url.query:
                raise PassNetError("a base URL is stored: put keys into the environment, not into the address")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "LlmOptions":
        """From names and values, as a deployment's parameters give them. Raises PassNetError for an unknown name."""
        names = [f.name for f in fields(cls)]
        if unknown := sorted(given.keys() - set(names)):
            raise PassNetError(f"llm has no option {unknown[0]!r}: it has {', '.join(names)}")
        price = given.get("price")
        return cls(**{**given, **({"price": tuple(price)} if price is not None else {})})

    @property
    def identity(self) -> dict[str, Any]:
        """The options that decide what an attempt is."""
        return {name: value for name, value in asdict(self).items() if name not in _PER_RUN}
