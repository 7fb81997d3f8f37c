"""Publishing a version to the Hugging Face Hub: one commit and one tag a version, unchanged files not sent again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import PassNetError
from storage.hub_repo import SILENCE, HubRepo, check_repo, checked_token, quiet_bounded_client
from storage.versions.shards import file_sha256
from storage.versions.store import Version

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile


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

    check_repo(repo_id)
    token = checked_token(token)
    version.verify()
    pusher = _Pusher(HfApi(endpoint=endpoint, token=token or False), repo_id, progress, token, version)
    with quiet_bounded_client():
        return pusher.run(private)


@dataclass
class _Pusher(HubRepo):
    """One push. Each step reads what the Hub has before it acts, so that any of them can be tried again."""

    version: Version
    uploaded: int = 0
    files: dict[str, str] = field(default_factory=dict)  # path → SHA-256

    def run(self, private: bool) -> PushResult:
        about = {name: self._about(self.version.path / name) for name in ("README.md", "manifest.json")}
        self.files = about | {shard.path: shard.sha256 for shard in self.version.manifest.shards}
        self.attempt(lambda: self.create(private))
        commit = self.attempt(self._tagged)
        if commit is not None:
            self.attempt(lambda: self._check_tag(commit))
            self.progress(f"{self.repo} already has {self.version.name}: nothing to upload")
        else:
            commit = self.attempt(self._commit)
            self.attempt(lambda: self._tag(commit))
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

    def _tagged(self) -> str | None:
        tags = self.api.list_repo_refs(self.repo, repo_type="dataset").tags
        return next((tag.target_commit for tag in tags if tag.name == self.version.name), None)

    def _check_tag(self, commit: str) -> None:
        remote = self.remote_files(commit)
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
        remote = self.remote_files(head)
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
        with self.storage():
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

    def _same(self, path: str, remote: "RepoFile | None") -> bool:
        return self.same(remote, self.version.path / path, self.files[path])
