"""The client of GitHub's API: commits, trees and refs as records; archives and single files cost no quota."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from tasks.crawl.http.responses import Answer, HttpTerminal
from tasks.crawl.http.settings import CrawlSettings, Secret
from tasks.crawl.source.bundle import SourceEntry

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_T = TypeVar("_T", str, int, bool, list[Any], dict[str, Any])
_KINDS: dict[str, Literal["link", "submodule"]] = {"120000": "link", "160000": "submodule"}
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAMES: dict[type, str] = {str: "text", int: "number", bool: "true or false", list: "list", dict: "object"}
_HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
_ELSEWHERE = {"missing", "denied", "unauthorised"}  # failures that another URL of an archive may not have


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a ref names now."""

    sha: str  # of a mirror that knows no commits: the tree
    tree: str  # the tree of its root folder
    etag: str | None = None  # repeats the same question, with the same token


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a repository."""

    repo_id: str  # stays the same when the repository is renamed
    full_name: str  # its present `owner/repo`
    stars: int
    licence: str | None  # SPDX identifier; None if the forge knows none


@dataclass(slots=True)
class Tree:
    """Every path of a commit; the targets of links are not known."""

    sha: str  # of the root folder
    entries: list[SourceEntry] = field(default_factory=list)  # without folders; key: the git object's id
    folders: dict[str, str] = field(default_factory=dict)  # tree ids by path; the root's path is empty


def read_commit(answer: Answer) -> Commit:
    """Return the commit of an answer to `commits/{ref}`."""
    data = answer.json()
    return Commit(
        _sha(answer, data, "sha"), _sha(answer, data, "commit.tree.sha"), answer.headers.get("etag")
    )


def read_metadata(answer: Answer) -> Metadata:
    """Return the metadata of an answer; a licence that GitHub cannot name is None."""
    data = answer.json()
    licence = _find(data, "license.spdx_id")
    return Metadata(
        repo_id=str(_value(answer, data, "id", int)),
        full_name=_value(answer, data, "full_name", str),
        stars=_value(answer, data, "stargazers_count", int),
        licence=licence if isinstance(licence, str) and licence != "NOASSERTION" else None,
    )


def read_tree(answer: Answer, folder: str = "") -> tuple[Tree, bool]:
    """Return a tree whose paths begin with `folder`, and whether the answer leaves some of it out."""
    data = answer.json()
    tree = Tree(_sha(answer, data, "sha"))
    tree.folders[folder] = tree.sha
    for item in _value(answer, data, "tree", list):
        path, key = _value(answer, item, "path", str), _sha(answer, item, "sha")
        path = f"{folder}/{path}" if folder else path
        mode = _value(answer, item, "mode", str)
        if mode == "040000":
            tree.folders[path] = key
        else:
            size = _find(item, "size")
            size = size if isinstance(size, int) else 0
            tree.entries.append(SourceEntry(path, _KINDS.get(mode, "file"), key, size=size))
    return tree, _value(answer, data, "truncated", bool)


def read_refs(answer: Answer) -> list[str]:
    """Return the names of branches or tags, without `refs/heads/` and `refs/tags/`."""
    data = answer.json()
    if not isinstance(data, list):
        raise answer.error("shape", "the answer is no list")
    return [_value(answer, item, "ref", str).split("/", 2)[-1] for item in data]


def _find(data: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _value(answer: Answer, data: Any, path: str, kind: type[_T]) -> _T:  # noqa: ANN401 - JSON
    value = _find(data, path)
    if type(value) is not kind:  # exactly, since true and false are numbers to Python
        raise answer.error("shape", f"the answer has no {_NAMES[kind]} as {path!r}")
    return value


def _sha(answer: Answer, data: Any, path: str) -> str:  # noqa: ANN401 - JSON
    value = _value(answer, data, path, str)
    if not _SHA.fullmatch(value):
        raise answer.error("shape", f"the answer has no object id as {path!r}")
    return value


class GitHub:
    """A client of GitHub, or of a mirror with its routes at the three base URLs of the settings.

    Every method raises HttpTerminal and HttpTransient as Http does; reason `shape` names the field that an
    answer lacks. Repositories are named `owner/repo`; redirects of renamed ones are followed. The token is
    sent to the API only. A tree that is too large for one answer may take `tree_requests`.
    """

    def __init__(
        self, http: Http, token: Secret | None, given: CrawlSettings, *, tree_requests: int = 50
    ) -> None:
        urls = given.github_api_url, given.github_archive_url, given.github_raw_url
        self._api, self._archives, self._raw = (url.rstrip("/") for url in urls)
        self._http, self._token = http, token
        self._archive_bytes, self._tree_requests = given.archive_bytes, tree_requests
        self._has_commits: bool | None = None  # None until the first answer; a mirror may have none

    async def commit(self, repository: str, ref: str, etag: str | None = None) -> Commit | None:
        """Return the commit that a branch, tag, full commit id or HEAD names; None: it is as `etag` says.

        That is the tag of the last answer; with a token, an unchanged answer costs no quota. Reasons are also
        `missing-ref` if the repository has no such ref, `empty` if it has none at all.
        """
        if self._has_commits is not False:
            try:
                # A page of one file, since the list of changed files may be megabytes long.
                question = {"per_page": "1"}
                answer = await self._ask(repository, f"commits/{quote(ref)}", params=question, etag=etag)
            except HttpTerminal as error:
                if error.reason != "missing" or self._has_commits:
                    raise _of_ref(error, ref) from None
            else:
                self._has_commits = True
                return None if answer.status == 304 else read_commit(answer)
        answer = await self._ask(repository, f"git/trees/{quote(ref)}", etag=etag)
        self._has_commits = False
        if answer.status == 304:
            return None
        sha = read_tree(answer)[0].sha
        return Commit(sha, sha, answer.headers.get("etag"))

    async def metadata(self, repository: str) -> Metadata:
        """Return the metadata of a repository; an old name is redirected to the new one."""
        return read_metadata(await self._ask(repository, ""))

    async def tree(self, repository: str, sha: str) -> Tree:
        """Return every path below a tree or commit, in one request if its size allows it.

        One that takes more than `tree_requests` is `too-large`.
        """
        answer = await self._ask(repository, f"git/trees/{quote(sha)}", params={"recursive": "1"})
        tree, truncated = read_tree(answer)
        return await self._walk(repository, tree.sha) if truncated else tree

    async def _walk(self, repository: str, sha: str) -> Tree:
        """Return a tree assembled from those of its folders, each with all below it if one answer can."""
        whole, pending = Tree(sha), [("", sha, False)]
        for _ in range(self._tree_requests):
            folder, key, recursive = pending.pop()
            question = {"recursive": "1"} if recursive else {}
            answer = await self._ask(repository, f"git/trees/{quote(key)}", params=question)
            part, truncated = read_tree(answer, folder)
            if truncated and not recursive:
                break  # GitHub never lists all of so large a folder
            if truncated:
                pending.append((folder, key, False))
                continue
            whole.entries += part.entries
            whole.folders |= part.folders
            if not recursive:
                pending += [(path, sub, True) for path, sub in part.folders.items() if path != folder]
            if not pending:
                return whole
        detail = f"its tree cannot be had whole in {self._tree_requests} requests; stopped at {folder!r}"
        raise HttpTerminal("too-large", answer.url, detail)

    async def refs(self, repository: str, prefix: str) -> list[str]:
        """Return the names of branches and tags that begin with `prefix`, branches first."""
        names: list[str] = []
        for kind in ("heads", "tags"):
            names += read_refs(await self._ask(repository, f"git/matching-refs/{kind}/{quote(prefix)}"))
        return names

    async def archive(self, repository: str, commit: str, ref: str, path: Path) -> Path:
        """Download a commit's zip archive to `path` and return the path.

        Three URLs are tried: by commit and by ref at the host that costs no quota, then the API. An archive
        by ref may be of a later commit, which its comment tells. If all fail, the API's error is raised.
        """
        name = quote(repository)
        by_commit, by_ref = (f"{self._archives}/{name}/zip/{quote(version)}" for version in (commit, ref))
        for url in dict.fromkeys((by_commit, by_ref)):
            try:
                await self._http.download(url, path, max_bytes=self._archive_bytes)
                return path
            except HttpTerminal as error:
                if error.reason not in _ELSEWHERE:
                    raise
        url, most = f"{self._api}/repos/{name}/zipball/{quote(ref)}", self._archive_bytes
        await self._http.download(url, path, headers=_HEADERS, token=self._token, max_bytes=most)
        return path

    async def raw(self, repository: str, commit: str, path: str, max_bytes: int) -> bytes:
        """Return one file of a commit, which costs no quota."""
        url = f"{self._raw}/{quote(repository)}/{quote(commit)}/{quote(path)}"
        return (await self._http.get(url, max_bytes=max_bytes)).body

    async def _ask(
        self, repository: str, route: str, *, params: Mapping[str, str] | None = None, etag: str | None = None
    ) -> Answer:
        url = f"{self._api}/repos/{quote(repository)}/{route}".rstrip("/")
        return await self._http.get(url, params=params, headers=_HEADERS, token=self._token, etag=etag)


def _of_ref(error: HttpTerminal, ref: str) -> HttpTerminal:
    """Return the error with GitHub's meaning of its status, if it is not about the repository."""
    meanings = {409: ("empty", "the repository is empty"), 422: ("missing-ref", f"there is no ref {ref!r}")}
    if error.status not in meanings:
        return error
    reason, detail = meanings[error.status]
    return HttpTerminal(
        reason, error.url, detail, status=error.status, body=error.body, headers=error.headers
    )
