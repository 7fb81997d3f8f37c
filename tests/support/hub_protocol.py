"""What a Hub answers, as far as `huggingface_hub` and `datasets` ask: a table of routes and a function for each."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.support.hub_repos import Blob, Commit, Repo, now

LFS_FROM = 10 << 20
LFS_SUFFIXES = (".parquet", ".bin", ".safetensors", ".arrow")
REPO = r"(?P<kind>datasets|models|spaces)/(?P<repo>[^/]+/[^/]+)"


@dataclass(eq=False)
class Reply(Exception):
    """A response; raised by whatever finds out that a request is answered."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Hub:
    """State of a Hub. `tokens` gives each token its role: owner, reader or stranger."""

    tokens: dict[str, str]
    page_size: int
    endpoint: str = ""
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)
    listings: dict[tuple, list[Repo]] = field(default_factory=dict)
    """What the pages of a listing are cut from, by what is asked for; made anew for each first page."""

    def create(self, kind: str, name: str, private: bool) -> Repo:
        files = {".gitattributes": Blob(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n", False)}
        oid = hashlib.sha1(f"{kind}/{name}".encode()).hexdigest()
        self.repos[kind, name] = Repo(kind, name, private, Commit(oid, "initial commit", now(), files, None))
        return self.repos[kind, name]

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        url = urlsplit(target)
        for verb, pattern, action in ROUTES:
            if verb == ("GET" if method == "HEAD" else method) and (found := re.fullmatch(pattern, url.path)):
                path = {name: unquote(value) for name, value in found.groupdict().items() if value}
                try:
                    return action(Call(self, path, parse_qs(url.query), headers, body))
                except Reply as reply:
                    return reply
        return _error(404, "", f"no such route: {method} {url.path}")


@dataclass(frozen=True)
class Call:
    """One request on its way: the server, what the path and query say, headers and body."""

    hub: Hub
    path: dict[str, str]
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def role(self) -> str | None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given and given not in self.hub.tokens:
            raise _error(401, "", "Invalid credentials in Authorization header")
        return self.hub.tokens.get(given)

    def writer(self) -> None:
        role = self.role()
        if role is None:
            raise _error(401, "", "Invalid username or password.")
        if role != "owner":
            raise _error(403, "", "you have no write access to this namespace")

    def repo(self, write: bool = False) -> Repo:
        role = self.role()
        repo = self.hub.repos.get((self.path.get("kind", "models"), self.path["repo"]))
        if repo is None or (repo.private and role in (None, "stranger")):
            raise _error(401 if role is None else 404, "RepoNotFound", "Repository not found")
        if write:
            self.writer()
        return repo

    def commit(self) -> Commit:
        commit = self.repo().at(self.path.get("revision", "main"))
        if commit is None:
            raise _error(404, "RevisionNotFound", f"Invalid rev id: {self.path['revision']}")
        return commit


def create_repo(call: Call) -> Reply:
    call.writer()
    kind, name = call.json.get("type", "model") + "s", f"{call.json['organization'] or 'me'}/{call.json['name']}"
    url = {"url": f"{call.hub.endpoint}/{'' if kind == 'models' else kind + '/'}{name}", "name": name}
    if (kind, name) in call.hub.repos:
        return _json(url | {"error": "You already created this repo"}, 409)
    call.hub.create(kind, name, call.json.get("visibility") == "private" or bool(call.json.get("private")))
    return _json(url)


def repo_info(call: Call) -> Reply:
    repo, commit = call.repo(), call.commit()
    facts = {"id": repo.name, "sha": commit.oid, "private": repo.private, "lastModified": commit.date, "tags": []}
    siblings = [{"rfilename": path, "size": len(blob.data)} for path, blob in sorted(commit.files.items())]
    return _json(facts | {"author": repo.name.split("/")[0], "disabled": False, "gated": False, "siblings": siblings})


def _listed(call: Call, asked: Mapping[str, str]) -> list[Repo]:
    """All repositories that a listing asks for."""
    labels = set(call.query.get("filter", []))
    found = [
        repo
        for (kind, _), repo in sorted(call.hub.repos.items())
        if kind == call.path["kind"]
        and asked.get("search", "") in repo.name
        and labels <= set(repo.labels)
        and asked.get("pipeline_tag", repo.task) == repo.task
        and repo.name.startswith(asked.get("author", ""))
    ]
    if asked.get("sort") == "downloads":
        found.sort(key=lambda repo: -repo.downloads)
    return found


def list_repos(call: Call) -> Reply:
    """A listing by name, or by `sort`, in pages of at most `page_size`; the next one is in the Link header."""
    asked = {name: values[0] for name, values in call.query.items()}
    start = int(asked.get("cursor", 0))
    listing = (call.path["kind"], *sorted((name, *values) for name, values in call.query.items() if name != "cursor"))
    if start == 0 or listing not in call.hub.listings:
        call.hub.listings[listing] = _listed(call, asked)
    found = call.hub.listings[listing]
    end = start + min(call.hub.page_size, int(asked.get("limit", call.hub.page_size)))
    page = [
        {"id": r.name, "modelId": r.name, "sha": r.head.oid, "private": r.private, "tags": [], "downloads": r.downloads}
        for r in found[start:end]
    ]
    if end >= len(found):
        return _json(page)
    query = urlencode({**dict(call.query.items()), "cursor": end}, doseq=True)
    return _json(page, headers={"Link": f'<{call.hub.endpoint}/api/{call.path["kind"]}?{query}>; rel="next"'})


def list_refs(call: Call) -> Reply:
    repo = call.repo()
    branches = [{"name": "main", "ref": "refs/heads/main", "targetCommit": repo.head.oid}]
    tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c.oid} for n, c in sorted(repo.tags.items())]
    return _json({"branches": branches, "tags": tags, "converts": [], "pullRequests": []})


def list_commits(call: Call) -> Reply:
    history = [
        {"id": c.oid, "title": c.title, "message": "", "date": c.date, "authors": []} for c in call.repo().history()
    ]
    return _json(history)


def list_tree(call: Call) -> Reply:
    commit, below = call.commit(), call.path.get("path", "").strip("/")
    prefix = below + "/" if below else ""
    files = {path: blob for path, blob in sorted(commit.files.items()) if path.startswith(prefix)}
    if below and not files:
        raise _error(404, "EntryNotFound", f"{below} does not exist")
    recursive = call.query.get("recursive", ["false"])[0].lower() in ("true", "1")
    entries: dict[str, dict[str, Any]] = {}
    for path, blob in files.items():
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            folder = prefix + "/".join(parts[:depth])
            entries[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
        if recursive or len(parts) == 1:
            entries[path] = blob.listed(path)
    start = int(call.query.get("cursor", ["0"])[0])
    end = start + call.hub.page_size
    page = [_dated(entry, commit) for entry in list(entries.values())[start:end]]
    if end >= len(entries):
        return _json(page)
    here = f"{call.hub.endpoint}/api/{call.path['kind']}/{call.path['repo']}/tree/{commit.oid}/{below}".rstrip("/")
    return _json(page, headers={"Link": f'<{here}?recursive={recursive}&cursor={end}>; rel="next"'})


def paths_info(call: Call) -> Reply:
    commit = call.commit()
    if "json" in call.headers.get("Content-Type", ""):
        wanted = call.json["paths"]
    else:
        wanted = parse_qs(call.body.decode()).get("paths", [])
    found = []
    for path in (p.strip("/") for p in wanted):
        if path in commit.files:
            found.append(_dated(commit.files[path].listed(path), commit))
        elif any(other.startswith(path + "/") for other in commit.files):
            found.append(_dated({"type": "directory", "path": path, "size": 0, "oid": "0" * 40}, commit))
    return _json(found)


def preupload(call: Call) -> Reply:
    files = call.repo(write=True).head.files
    answers = []
    for file in call.json["files"]:
        mode = "lfs" if is_lfs(file["path"], file["size"]) else "regular"
        oid = files[file["path"]].etag if file["path"] in files else None
        answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return _json({"files": answers})


def lfs_batch(call: Call) -> Reply:
    call.repo(write=True)
    objects = []
    for wanted in call.json["objects"]:
        entry = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in call.hub.lfs:
            entry["actions"] = {"upload": {"href": f"{call.hub.endpoint}/lfs/{wanted['oid']}"}}
        objects.append(entry)
    return _json({"transfer": "basic", "objects": objects})


def lfs_put(call: Call) -> Reply:
    if hashlib.sha256(call.body).hexdigest() != call.path["oid"]:
        raise _error(400, "", "content does not match its oid")
    call.hub.lfs[call.path["oid"]] = call.body
    return _json({})


def commit(call: Call) -> Reply:
    repo = call.repo(write=True)
    items = [json.loads(line) for line in call.body.splitlines() if line.strip()]
    header = next(item["value"] for item in items if item["key"] == "header")
    if header.get("parentCommit") not in (None, repo.head.oid):
        raise _error(412, "", "A commit has happened since. Please refresh and try again.")
    files = dict(repo.head.files)
    for item in items:
        value, path = item["value"], item["value"].get("path", "")
        if item["key"] == "file":
            files[path] = Blob(base64.b64decode(value["content"]), False)
        elif item["key"] == "lfsFile":
            if value["oid"] not in call.hub.lfs:
                raise _error(400, "", f"LFS object {value['oid']} was not uploaded")
            files[path] = Blob(call.hub.lfs[value["oid"]], True)
        elif item["key"] == "deletedFile":
            if files.pop(path, None) is None:
                raise _error(404, "EntryNotFound", "A file with this name doesn't exist")
        elif item["key"] == "deletedFolder":
            files = {other: blob for other, blob in files.items() if not other.startswith(path.rstrip("/") + "/")}
    oid = repo.commit(header["summary"], files).oid
    return _json({"commitUrl": f"{call.hub.endpoint}/{repo.kind}/{repo.name}/commit/{oid}", "commitOid": oid})


def create_tag(call: Call) -> Reply:
    repo, target, tag = call.repo(write=True), call.commit(), call.json["tag"]
    if tag in repo.tags:
        raise _error(409, "", f"Tag {tag} already exists")
    repo.tags[tag] = target
    return _json({})


def delete_tag(call: Call) -> Reply:
    if call.repo(write=True).tags.pop(call.path["revision"], None) is None:
        raise _error(404, "RevisionNotFound", "no such tag")
    return _json({})


def resolve(call: Call) -> Reply:
    revision = call.commit()
    if call.repo().gated and call.role() != "owner":
        raise _error(403 if call.role() else 401, "GatedRepo", "Access to this model is restricted.")
    blob = revision.files.get(call.path["path"])
    if blob is None:
        reply = _error(404, "EntryNotFound", f"{call.path['path']} does not exist")
        reply.headers["X-Repo-Commit"] = revision.oid
        raise reply
    headers = {"ETag": f'"{blob.etag}"', "X-Repo-Commit": revision.oid, "Accept-Ranges": "bytes"}
    headers["Content-Type"] = "application/octet-stream"
    if blob.lfs:
        headers |= {"X-Linked-Size": str(len(blob.data)), "X-Linked-Etag": f'"{blob.etag}"'}
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("Range", ""))
    if not wanted:
        return Reply(200, blob.data, headers)
    first, last = int(wanted[1]), min(int(wanted[2] or len(blob.data)), len(blob.data) - 1)
    if first > last:
        return Reply(416, b"", headers | {"Content-Range": f"bytes */{len(blob.data)}"})
    return Reply(
        206, blob.data[first : last + 1], headers | {"Content-Range": f"bytes {first}-{last}/{len(blob.data)}"}
    )


def validate_yaml(call: Call) -> Reply:
    head = re.match(r"---\n(.*?)\n---\n", call.json["content"], re.DOTALL)
    return _json({"errors": [], "warnings": [] if head else [{"message": "empty or missing yaml metadata"}]})


def whoami(call: Call) -> Reply:
    if call.role() is None:
        raise _error(401, "", "Invalid username or password.")
    return _json({"type": "user", "name": "me", "orgs": [], "auth": {"accessToken": {"role": "write"}}})


ROUTES: tuple[tuple[str, str, Callable[[Call], Reply]], ...] = (
    ("POST", r"/api/repos/create", create_repo),
    ("POST", r"/api/validate-yaml", validate_yaml),
    ("GET", r"/api/whoami-v2", whoami),
    ("GET", r"/api/(?P<kind>datasets|models|spaces)", list_repos),
    ("GET", rf"/api/{REPO}(/revision/(?P<revision>[^/]+))?", repo_info),
    ("GET", rf"/api/{REPO}/refs", list_refs),
    ("GET", rf"/api/{REPO}/commits/(?P<revision>[^/]+)", list_commits),
    ("GET", rf"/api/{REPO}/tree/(?P<revision>[^/]+)(/(?P<path>.+))?", list_tree),
    ("POST", rf"/api/{REPO}/paths-info/(?P<revision>[^/]+)", paths_info),
    ("POST", rf"/api/{REPO}/preupload/(?P<revision>[^/]+)", preupload),
    ("POST", rf"/api/{REPO}/commit/(?P<revision>[^/]+)", commit),
    ("POST", rf"/api/{REPO}/tag/(?P<revision>[^/]+)", create_tag),
    ("DELETE", rf"/api/{REPO}/tag/(?P<revision>[^/]+)", delete_tag),
    ("POST", r"/((?P<kind>datasets|spaces)/)?(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", lfs_batch),
    ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", lfs_put),
    ("GET", r"/((?P<kind>datasets|spaces)/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", resolve),
)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})


def _error(status: int, code: str, message: str) -> Reply:
    headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return _json({"error": message}, status, headers)


def _dated(entry: dict[str, Any], commit: Commit) -> dict[str, Any]:
    return entry | {"lastCommit": {"id": commit.oid, "title": commit.title, "date": commit.date}}


def is_lfs(path: str, size: int) -> bool:
    return path.endswith(LFS_SUFFIXES) or size > LFS_FROM
