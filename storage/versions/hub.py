"""Publishing a version to the Hugging Face Hub: one commit and one tag a version, unchanged files not sent again."""

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.errors import PassNetError
from storage.versions import hub_errors
from storage.versions.shards import file_sha256
from storage.versions.store import Version

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

ATTEMPTS = 5
PATIENCE = 120.0  # seconds of trying after which a step is not tried again
SILENCE = 180.0  # seconds without a byte after which a connection counts as lost

T = TypeVar("T")


@dataclass(frozen=True)
class PushResult:
    """What a push did; `uploaded` and `skipped` count files, `revision` is the commit."""

    repo_id: str
    revision: str
    tag: str
    uploaded: int
    skipped: int
    url: str


def push(
    version: Version,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool = False,
    endpoint: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> PushResult:
    """Make `main` of a dataset repository equal to `version` by one commit, and tag that with the version's name.

    The repository is created if need be; a version that is there already is left alone, and an interrupted push is
    completed by the next. `token` defaults to that of `hf auth login` or HF_TOKEN.
    Raises PassNetError when the version is corrupt, its tag has other rows on the Hub, or the Hub refuses.
    """
    from huggingface_hub import HfApi

    _check_repo(repo_id)
    token = _checked_token(token)
    version.verify()
    pusher = _Pusher(HfApi(endpoint=endpoint, token=token or False), repo_id, version, progress, token)
    with _quiet_bounded_client():
        return pusher.run(private)


@dataclass
class _Pusher:
    """One push. Each step reads what the Hub has before it acts, so that any of them can be tried again."""

    api: "HfApi"
    repo: str
    version: Version
    progress: Callable[[str], None]
    token: str | None
    uploaded: int = 0
    files: dict[str, str] = field(default_factory=dict)  # path → SHA-256

    def run(self, private: bool) -> PushResult:
        about = {name: self._about(self.version.path / name) for name in ("README.md", "manifest.json")}
        self.files = about | {shard.path: shard.sha256 for shard in self.version.manifest.shards}
        self._attempt(lambda: self._create(private))
        commit = self._attempt(self._tagged)
        if commit is not None:
            self._attempt(lambda: self._check_tag(commit))
            self.progress(f"{self.repo} already has {self.version.name}: nothing to upload")
        else:
            commit = self._attempt(self._commit)
            self._attempt(lambda: self._tag(commit))
            self.progress(f"{self.repo}: {self.version.name} is commit {commit[:12]}, {self.uploaded} files uploaded")
        url = f"{self.api.endpoint}/datasets/{self.repo}/tree/{self.version.name}"
        skipped = len(self.files) - self.uploaded
        return PushResult(self.repo, commit, self.version.name, self.uploaded, skipped, url)

    @staticmethod
    def _about(file: Path) -> str:
        try:
            return file_sha256(file)
        except OSError as error:
            raise PassNetError(f"cannot read {file} ({error.strerror}): restore it, or rebuild the version") from error

    def _create(self, private: bool) -> None:
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

    def _tagged(self) -> str | None:
        tags = self.api.list_repo_refs(self.repo, repo_type="dataset").tags
        return next((tag.target_commit for tag in tags if tag.name == self.version.name), None)

    def _check_tag(self, commit: str) -> None:
        remote = self._remote_files(commit)
        ours = {path for path in self.files if path.startswith("data/")}
        theirs = {path for path in remote if path.startswith("data/")}
        different = sorted((ours ^ theirs) | {path for path in ours & theirs if not self._same(path, remote[path])})
        if different:
            raise PassNetError(
                f"{self.repo} has a tag {self.version.name} with other rows (first difference: {different[0]}): "
                "push to another repository, or delete the tag there if it is no longer wanted"
            )

    def _commit(self) -> str:
        """Make `main` equal to the version; the commit that does, which is the present one when nothing differs."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        head = self.api.repo_info(self.repo, repo_type="dataset", revision="main", timeout=SILENCE).sha
        remote = self._remote_files(head)
        gone = [path for path in remote if path.startswith("data/") and path not in self.files]
        if gone and "manifest.json" not in remote:
            raise PassNetError(f"{self.repo} holds other data ({gone[0]}), which a push would delete: name another one")
        changed = [path for path in self.files if not self._same(path, remote.get(path))]
        if not changed and not gone:
            return head
        present = {file.lfs.sha256 for file in remote.values() if file.lfs}
        self.uploaded = sum(self.files[path] not in present for path in changed)
        self.progress(f"{self.repo}: uploading {self.uploaded} of {len(self.files)} files of {self.version.name}")
        operations = [CommitOperationAdd(path, self.version.path / path) for path in changed]
        operations += [CommitOperationDelete(path) for path in gone]
        with self._storage():
            commit = self.api.create_commit(
                self.repo,
                operations,
                commit_message=f"PassNet {self.version.name}",
                repo_type="dataset",
                parent_commit=head,
            )
        return commit.oid

    def _tag(self, commit: str) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self.api.create_tag(self.repo, tag=self.version.name, revision=commit, repo_type="dataset")
        except HfHubHTTPError as error:
            tagged = self._tagged() if error.response.status_code == 409 else None
            if tagged is None:
                raise
            self._check_tag(tagged)

    def _remote_files(self, revision: str) -> dict[str, "RepoFile"]:
        from huggingface_hub.hf_api import RepoFile

        tree = self.api.list_repo_tree(self.repo, repo_type="dataset", revision=revision, recursive=True)
        return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}

    def _same(self, path: str, remote: "RepoFile | None") -> bool:
        if remote is None:
            return False
        if remote.lfs:
            return remote.lfs.sha256 == self.files[path]
        return remote.blob_id == _git_oid(self.version.path / path)

    @contextlib.contextmanager
    def _storage(self) -> Iterator[None]:
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

    def _attempt(self, step: Callable[[], T]) -> T:
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
def _quiet_bounded_client() -> Iterator[None]:
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


def _check_repo(repo_id: str) -> None:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo_id)
        if repo_id.count("/") == 1:
            return
        problem = "the part before the slash, a user or an organisation, is missing"
    except HFValidationError as error:
        problem = str(error)
    raise PassNetError(f"{repo_id!r} is no repository id: it is written ORG/NAME ({problem})")


def _checked_token(token: str | None) -> str | None:
    from huggingface_hub import get_token

    token = token or get_token()
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise PassNetError("the Hub token has characters that no token has: set HF_TOKEN again, or `hf auth login`")
    return token


def _git_oid(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
