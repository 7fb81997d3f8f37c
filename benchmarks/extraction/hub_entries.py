"""A Hub on loopback with as many models as are asked for, spread as the real Hub's are, in a process of its own.

    python -m benchmarks.extraction.hub_entries --entries 100000 --kinds all --address FILE

Writes its address into FILE when it serves. Few bases have many fine-tunes (the k-th base's share goes with 1/k), which
differ in names, labels, versions and settings that change no graph. `SHARES` of the entries are odd. Every
`LIMITED_EVERY`th request for a file is answered with status 429 first, as the Hub does with too many requests.

`--kinds tiny`: bases are small models of eight types that are traced in seconds, twice as many of them for ten times
as many entries. `--kinds all`: default configs of all config classes of transformers that make a model, and variants of
them (`benchmarks.extraction.collapse`).
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.extraction.collapse import irrelevant, read_kinds
from benchmarks.extraction.large_catalog import MODELS
from tests.support.hub_protocol import Reply
from tests.support.hub_server import HubServer

SHARES = {
    "no_config": 0.04,  # adapters, quantised single files, other libraries' models
    "broken": 0.005,
    "not_an_object": 0.005,
    "gated": 0.03,
    "remote_code": 0.03,
    "unknown_type": 0.02,
    "refused_by_its_class": 0.01,
}
"""What is wrong with how many of the entries."""
LIMITED_EVERY = 400
ACTIVATIONS = ("gelu", "relu", "silu", "tanh")


class LimitingHub(HubServer):
    """A Hub that turns every `LIMITED_EVERY`th request for a file away."""

    asked = itertools.count(1)

    def respond(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if "/resolve/" in target and next(self.asked) % LIMITED_EVERY == 0:
            return Reply(429, b'{"error": "too many requests"}', {"Retry-After": "1"})
        return super().respond(method, target, headers, body)


def bases(kinds: str, entries: int) -> list[dict[str, Any]]:
    """Configs that fine-tunes are made of, the most used first."""
    if kinds == "all":
        found = [{**kind.default, **fields} for kind in read_kinds()[0].values() for _, fields in kind.variants]
        random.Random(1).shuffle(found)
        return found
    found = [
        {
            "model_type": kind,
            "architectures": [architecture],
            **sizes,
            {"distilbert": "activation", "gpt2": "activation_function"}.get(kind, "hidden_act"): activation,
            "id2label": {"0": "a", "1": "b"},
        }
        for activation in ACTIVATIONS
        for kind, architecture, sizes in MODELS
    ]
    return found[: 8 * 2 ** (len(str(entries)) - 4)]


def configs(kinds: str, entries: int) -> Iterator[tuple[str, str, bytes | None, bool]]:
    """(what it is, base's name, config.json or None, whether it is gated) of each entry."""
    models = bases(kinds, entries)
    weights = list(itertools.accumulate(1 / (k + 1) for k in range(len(models))))
    draw = random.Random(entries)
    odd = list(itertools.accumulate(SHARES.values()))
    for _ in range(entries):
        base = draw.choices(models, cum_weights=weights)[0]
        fields = {**base, **irrelevant(draw, base)}
        number = draw.random()
        what = next((name for name, upto in zip(SHARES, odd, strict=True) if number < upto), "plain")
        name = base["model_type"]
        if what == "remote_code":
            fields |= {"model_type": f"own_{name}", "auto_map": {"AutoModel": "modeling.Own"}}
        elif what == "unknown_type":
            fields["model_type"] = f"{name}_of_tomorrow"
        elif what == "refused_by_its_class":
            fields["pad_token_id"] = {"not": "a number"}
        data = json.dumps(fields).encode()
        data = {"no_config": None, "broken": data[: len(data) // 2], "not_an_object": b"[1, 2]"}.get(what, data)
        yield what, name, data, what == "gated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--kinds", choices=["tiny", "all"], default="tiny")
    parser.add_argument("--address", type=Path, required=True)
    arguments = parser.parse_args()
    with LimitingHub() as hub:
        whats: dict[str, int] = {}
        for number, (what, base, data, gated) in enumerate(configs(arguments.kinds, arguments.entries)):
            files = {"README.md": b"A model."} | ({} if data is None else {"config.json": data})
            repo = hub.put("model", f"org{number % 997}/{base}-{number}", files)
            repo.gated, repo.downloads = gated, arguments.entries - number
            whats[what] = whats.get(what, 0) + 1
        arguments.address.write_text(json.dumps({"endpoint": hub.endpoint, "entries": whats}))
        while True:
            time.sleep(1)
            hub.requests.clear()


if __name__ == "__main__":
    main()
