"""A dataset repository on the Hugging Face Hub: steps that are tried again, in a client that is bounded and quiet.

`push_files` sends files of a directory there and `pull_files` fetches them; versions of the dataset are pushed by
`storage.versions.hub`.
"""

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage import hub_errors
from storage.errors import PassNetError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

ATTEMPTS = 5
PATIENCE = 120.0  # seconds of trying after which a step is not tried again
SILENCE = 180.0  # seconds without a byte after which a connection counts as lost

T = TypeVar("T")


@dataclass
class HubRepo:
    """A repository and how to reach it; `progress` is told of what is tried again."""

    api: "HfApi"
    repo: str
    progress: Callable[[str], None]
    token: str | None

    def create(self, private: bool) -> None:
        """Create the repository if need be. Raises PassNetError where it is public and must not be."""
        from huggingface_hub.errors import HfHubHTTPError

        try:
            info = self.api.repo_info(self.repo, repo_type="dataset", timeout=SILENCE)
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 404):  # both may mean that there is none
                raise
            # None leaves the visibility to what the organisation prefers
            self.api.create_repo(self.repo, repo_type="dataset", private=True if private else None)
            return
        if private and not info.private:
            raise PassNetError(
                f"{self.repo} exists and is public: make it private in its settings, or push without --private"
            )

    def remote_files(self, revision: str) -> dict[str, "RepoFile"]:
        """Its files at a revision, by path."""
        from huggingface_hub.hf_api import RepoFile

        tree = self.api.list_repo_tree(self.repo, repo_type="dataset", revision=revision, recursive=True)
        return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}

    @staticmethod
    def same(remote: "RepoFile | None", path: Path, digest: str) -> bool:
        """Whether a file of the repository is the local one, whose SHA-256 is `digest`."""
        if remote is None:
            return False
        if remote.lfs:
            return remote.lfs.sha256 == digest
        data = path.read_bytes()
        return remote.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    @contextlib.contextmanager
    def storage(self) -> Iterator[None]:
        """Upload by plain LFS where the endpoint has no Xet storage, which the client takes for granted."""
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        before = constants.HF_HUB_DISABLE_XET
        if not before:
            url = f"{self.api.endpoint}/api/datasets/{self.repo}/xet-write-token/main"
            response = get_session().get(url, headers=build_hf_headers(token=self.token or False))
            constants.HF_HUB_DISABLE_XET = response.status_code == 404
            if response.status_code != 404:
                hf_raise_for_status(response)
        try:
            yield
        finally:
            constants.HF_HUB_DISABLE_XET = before

    def attempt(self, step: Callable[[], T]) -> T:
        """Do a step, again while what stops it may pass. Raises PassNetError that says what to do."""
        start, attempt = time.monotonic(), 1
        while True:
            try:
                return step()
            except Exception as error:
                failure = hub_errors.understood(error)
                if failure is None:
                    raise
                wait = max(failure.wait, 2.0 ** (attempt - 1))
                if not failure.may_pass or attempt == ATTEMPTS or time.monotonic() + wait - start > PATIENCE:
                    message = hub_errors.advice(failure, self.repo, self.api.endpoint, self.token)
                    # without the cause: a traceback through the client may show a request with its headers
                    raise (hub_errors.HubBusy if failure.may_pass else PassNetError)(message) from None
            self.progress(f"{self.repo}: {failure.status or 'no connection'}, trying again in {wait:.0f} s")
            time.sleep(wait)
            attempt += 1


@contextlib.contextmanager
def quiet_bounded_client() -> Iterator[None]:
    """Give the client time-outs and a bound on waits, which it lacks, and no progress bars where nobody watches."""
    from huggingface_hub.utils import disable_progress_bars, get_session

    session = get_session()
    timeout, hooks = session.timeout, dict(session.event_hooks)
    session.timeout = SILENCE
    session.event_hooks = hooks | {"response": [*hooks["response"], hub_errors.refuse_long_wait]}
    try:
        with contextlib.nullcontext() if sys.stderr.isatty() else disable_progress_bars():
            yield
    finally:
        session.timeout, session.event_hooks = timeout, hooks


def check_repo(repo_id: str) -> None:
    """Raises PassNetError for what is not ORG/NAME."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo_id)
        if repo_id.count("/") == 1:
            return
        problem = "the part before the slash, a user or an organisation, is missing"
    except HFValidationError as error:
        problem = str(error)
    raise PassNetError(f"{repo_id!r} is no repository id: it is written ORG/NAME ({problem})")


def checked_token(token: str | None) -> str | None:
    """The token, that of the login without one, or None. Raises PassNetError for what cannot be a token."""
    from huggingface_hub import get_token

    token = token or get_token()
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise PassNetError("the Hub token has characters that no token has: set HF_TOKEN again, or `hf auth login`")
    return token


def create_repo(repo_id: str, *, private: bool, progress: Callable[[str], None], endpoint: str | None = None) -> None:
    """Create a repository if need be. Raises PassNetError, also where it is public and must not be."""
    repo = _reached(repo_id, progress, endpoint)
    with quiet_bounded_client():
        repo.attempt(lambda: repo.create(private))


def push_files(
    root: Path,
    paths: Sequence[str],
    repo_id: str,
    message: str,
    *,
    progress: Callable[[str], None],
    endpoint: str | None = None,
) -> tuple[str, int]:
    """Add files below `root` to a repository by one commit, which is made where any differs; others stay.

    Returns the commit and how many files were sent. Raises PassNetError.
    """
    from huggingface_hub import CommitOperationAdd

    repo = _reached(repo_id, progress, endpoint)

    def commit() -> tuple[str, int]:
        head = repo.api.repo_info(repo_id, repo_type="dataset", revision="main", timeout=SILENCE).sha
        remote = repo.remote_files(head)
        digests = {path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in paths}
        changed = [path for path in paths if not repo.same(remote.get(path), root / path, digests[path])]
        if not changed:
            return head, 0
        operations = [CommitOperationAdd(path, root / path) for path in changed]
        with repo.storage():
            made = repo.api.create_commit(
                repo_id, operations, commit_message=message, repo_type="dataset", parent_commit=head
            )
        return made.oid, len(changed)

    with quiet_bounded_client():
        return repo.attempt(commit)


def pull_files(
    repo_id: str, into: Path, pattern: str, *, progress: Callable[[str], None], endpoint: str | None = None
) -> str:
    """Fetch a repository's files that match a pattern, such as "passes/*", into a directory; returns the commit.

    Raises PassNetError.
    """
    repo = _reached(repo_id, progress, endpoint)

    def fetch() -> str:
        head = repo.api.repo_info(repo_id, repo_type="dataset", revision="main", timeout=SILENCE).sha
        if any(fnmatch(name, pattern) for name in repo.remote_files(head)):  # the client warns where none does
            repo.api.snapshot_download(
                repo_id, repo_type="dataset", revision=head, local_dir=into, allow_patterns=[pattern]
            )
        return head

    with quiet_bounded_client():
        return repo.attempt(fetch)


def _reached(repo_id: str, progress: Callable[[str], None], endpoint: str | None) -> HubRepo:
    from huggingface_hub import HfApi

    check_repo(repo_id)
    token = checked_token(None)
    return HubRepo(HfApi(endpoint=endpoint, token=token or False), repo_id, progress, token)
