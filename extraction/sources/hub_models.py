"""Models of the Hugging Face Hub: which there are, and which model of another source a repository's config makes.

A repository's config is all that is fetched. One that timm wrote makes a model of source timm, any other one of source
transformers, built by those libraries' own classes: so entries whose configs differ in nothing that changes the graph
share a trace with each other and with those sources' entries. Code in a repository is never executed.
"""

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from extraction.sources import hub_configs, timm_models, transformers_models
from storage.disk import write_json
from storage.errors import PassNetError
from storage.hub_errors import understood

LIBRARY = "huggingface_hub"

QUERY = {"task": "pipeline_tag", "library": "filter", "author": "author", "search": "search", "sort": "sort"}
"""What a listing can be asked for, and the client's names of that."""


def resolve(name: str, revision: str) -> tuple[str, dict[str, Any]]:
    """The source that builds a repository's model, and the config that it builds it from.

    Raises ModelError as `hub_configs.fetch`; "remote_code" for a model that only the repository's own code makes,
    "config" for one that the installed libraries do not have.
    """
    fields = hub_configs.fetch(name, revision)
    if isinstance(fields.get("architecture"), str) and "pretrained_cfg" in fields:
        return timm_models.LIBRARY, timm_models.of_json(fields)
    return transformers_models.LIBRARY, transformers_models.of_json(fields)


def listing(query: str, limit: int | None) -> list[str]:
    """The first `limit` models that the Hub lists for a query, most downloaded first, as ORG/NAME@COMMIT.

    `query` is as in a URL: `task=image-classification&library=timm`, see `QUERY`; "" lists all. Pages are fetched as
    far as needed. The list is kept, and is the answer while HF_HUB_OFFLINE is set. Raises PassNetError for a bad query,
    no limit, a Hub that does not answer, or a cache that cannot be written.
    """
    from huggingface_hub import HfApi, constants

    asked = _asked(query)
    if limit is None:
        raise PassNetError("the Hub lists more than a million models; say how many to take with --limit N")
    kept = _listings() / f"{_file_name(asked)}.json"
    if constants.HF_HUB_OFFLINE:
        return _kept(kept, query, limit)
    options = {"sort": "downloads", **{QUERY[key]: value for key, value in asked.items()}}
    api = HfApi(endpoint=constants.ENDPOINT)
    try:
        with hub_configs.bounded_client():
            models = list(islice(api.list_models(**options, limit=limit, expand=["sha"]), limit))
    except Exception as error:  # what the network or the Hub did, which `understood` tells from our own faults
        failure = understood(error)
        if failure is None:
            raise
        what = f"HTTP status {failure.status}" if failure.status else failure.text[:200]
        raise PassNetError(f"the Hub does not list models ({what}): check the network and HF_ENDPOINT") from None
    names = [f"{model.id}@{model.sha}" if model.sha else model.id for model in models]
    write_json(kept, names, _ELSEWHERE)
    return names


_ELSEWHERE = "another HF_HOME"


def _listings() -> Path:
    """Where listings are kept, in the client's cache. Raises PassNetError where that cannot be written."""
    from huggingface_hub import cached_assets_path, constants

    cache = constants.HF_ASSETS_CACHE
    try:
        return cached_assets_path("passnet", "listings", assets_dir=cache)
    except (OSError, ValueError) as error:  # the client makes a ValueError of a file that is in the way
        raise PassNetError(f"cannot write to {cache} ({error}): choose {_ELSEWHERE}") from error


def _asked(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    bad = next((f"{key}={value}" for key, value in pairs if key not in QUERY or not value), "")
    if bad:
        raise PassNetError(f"{bad!r} is not in a query of the Hub; write hub?KEY=VALUE&… with {', '.join(QUERY)}")
    return dict(sorted(pairs))


def _file_name(asked: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:20]


def _kept(path: Path, query: str, limit: int) -> list[str]:
    try:
        names = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise PassNetError(f"HF_HUB_OFFLINE is set, and no listing of hub?{query} is in the cache; unset it") from None
    return names[:limit]
