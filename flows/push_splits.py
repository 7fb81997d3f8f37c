"""Publish a version to the Hugging Face Hub."""

from dataclasses import asdict

from prefect import flow

from flows import DEFAULT_DATA
from flows.expected_failures import one_line
from flows.steps import HOURS, say
from storage.hub_errors import HubBusy
from storage.versions.hub import push
from storage.versions.store import Store


@flow(name="push-splits", retries=1, retry_delay_seconds=300, timeout_seconds=12 * HOURS)
@one_line(HubBusy)
def push_splits(repo: str, data: str = DEFAULT_DATA, version: str | None = None, private: bool = False) -> dict:
    """Push a version (the latest by default) to the dataset repository `repo`, as one commit and one tag.

    Unchanged shards are not sent again; pushing what is there already does nothing. As a deployment it is tried once
    more after five minutes, the window of the Hub's rate limits, unless its caller can put right what it failed of. The
    token comes from HF_TOKEN or the Hub client's login. Raises PassNetError that says what to do when the Hub refuses.
    """
    opened = Store(data).open(version)
    say(f"pushing {opened.name} to {repo}")
    return asdict(push(opened, repo, private=private, progress=say))
