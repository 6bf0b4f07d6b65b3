"""GitHub: commits, trees, refs, archives and single files; quota is spent on the API alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tasks.crawl.github.responses import (
    Commit,
    Metadata,
    NotModified,
    Tree,
    read_commit,
    read_metadata,
    read_refs,
    read_tree,
)
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal
from tasks.crawl.http.network import Network
from tasks.crawl.http.responses import Answer
from tasks.crawl.http.secrets import Secret

_HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
_ELSEWHERE = {"missing", "denied", "unauthorised"}  # what another way to an archive may get over


class GitHub:
    """A client of GitHub, or of a mirror that has its routes.

    Every method raises HttpTerminal and HttpTransient as Http does; reason `shape` names the field that an
    answer lacks. A repository is named `owner/repo`; where it was renamed, the redirect is followed.

    Args:
        http: Sends the requests; its politeness says which hosts the API may redirect to.
        token: Sent to the API alone.
        api_url: Stands for `https://api.github.com`.
        archive_url: Stands for `https://codeload.github.com`.
        raw_url: Stands for `https://raw.githubusercontent.com`.
        archive_bytes: The largest archive that is fetched.
        tree_requests: How many requests a tree may take that is too large for one.
    """

    def __init__(
        self,
        http: Http,
        token: Secret | None,
        api_url: str,
        archive_url: str,
        raw_url: str,
        *,
        archive_bytes: int = 50_000_000,
        tree_requests: int = 50,
    ) -> None:
        self._http = http
        self._token = token
        self._api = api_url.rstrip("/")
        self._archives = archive_url.rstrip("/")
        self._raw = raw_url.rstrip("/")
        self._archive_bytes = archive_bytes
        self._tree_requests = tree_requests
        self._has_commits: bool | None = None  # until some answer tells

    async def commit(self, repository: str, ref: str, etag: str | None = None) -> Commit | NotModified:
        """Return what a branch, tag, full commit id or HEAD stands for.

        Args:
            repository: `owner/repo`.
            ref: A ref may have slashes in it.
            etag: That of the last answer to the same question; with a token, asking again is free of quota.

        Raises:
            HttpTerminal: Also `missing-ref` where the repository has no such ref, `empty` where it has none.
        """
        if self._has_commits is not False:
            try:
                # A page of one file: what a commit changed comes along, and may be megabytes.
                question = {"per_page": "1"}
                answer = await self._ask(repository, f"commits/{_path(ref)}", params=question, etag=etag)
            except HttpTerminal as error:
                if error.reason != "missing" or self._has_commits:
                    raise _of_ref(error, ref) from None
            else:
                self._has_commits = True
                return NotModified() if answer.status == 304 else read_commit(answer)
        answer = await self._ask(repository, f"git/trees/{_path(ref)}", etag=etag)
        self._has_commits = False
        if answer.status == 304:
            return NotModified()
        sha = read_tree(answer)[0].sha
        return Commit(sha, sha, answer.headers.get("etag"))

    async def metadata(self, repository: str) -> Metadata:
        """Return what GitHub says of a repository; under an old name, what it says of the new one."""
        return read_metadata(await self._ask(repository, ""))

    async def tree(self, repository: str, sha: str) -> Tree:
        """Return every path below a tree or commit, in one request where its size allows it.

        Raises:
            HttpTerminal: Also `too-large`, where it takes more than `tree_requests`.
        """
        answer = await self._ask(repository, f"git/trees/{_path(sha)}", params={"recursive": "1"})
        tree, truncated = read_tree(answer)
        return await self._walk(repository, tree.sha) if truncated else tree

    async def _walk(self, repository: str, sha: str) -> Tree:
        """Return a tree put together from those of its folders, each as deep as one answer goes."""
        whole, pending = Tree(sha), [("", sha, False)]
        for _ in range(self._tree_requests):
            folder, key, recursive = pending.pop()
            question = {"recursive": "1"} if recursive else {}
            answer = await self._ask(repository, f"git/trees/{_path(key)}", params=question)
            part, truncated = read_tree(answer, folder)
            if truncated and not recursive:
                break  # one folder has more in it than GitHub ever tells
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
            names += read_refs(await self._ask(repository, f"git/matching-refs/{kind}/{_path(prefix)}"))
        return names

    async def archive(self, repository: str, commit: str, ref: str, path: Path) -> Path:
        """Download a commit's zip archive to `path` and return it.

        It is asked for by commit, then by ref, both of the host that costs no quota, then of the API. What
        an archive holds is said by its comment: by ref it may be a later commit.

        Raises:
            HttpTerminal: Also `too-large`; where all three fail, as the API does.
        """
        name = _path(repository)
        by_commit, by_ref = (f"{self._archives}/{name}/zip/{_path(version)}" for version in (commit, ref))
        for url in dict.fromkeys((by_commit, by_ref)):
            try:
                await self._http.download(url, path, max_bytes=self._archive_bytes)
            except HttpTerminal as error:
                if error.reason not in _ELSEWHERE:
                    raise
            else:
                return path
        url = f"{self._api}/repos/{name}/zipball/{_path(ref)}"
        await self._http.download(
            url, path, headers=_HEADERS, token=self._token, max_bytes=self._archive_bytes
        )
        return path

    async def raw(self, repository: str, commit: str, path: str, max_bytes: int) -> bytes:
        """Return one file of a commit; it costs no quota."""
        url = f"{self._raw}/{_path(repository)}/{_path(commit)}/{_path(path)}"
        return (await self._http.get(url, max_bytes=max_bytes)).body

    async def _ask(
        self,
        repository: str,
        route: str,
        *,
        params: Mapping[str, str] | None = None,
        etag: str | None = None,
    ) -> Answer:
        url = f"{self._api}/repos/{_path(repository)}/{route}".rstrip("/")
        return await self._http.get(url, params=params, headers=_HEADERS, token=self._token, etag=etag)


def _path(text: str) -> str:
    return quote(text, safe="/")


def _of_ref(error: HttpTerminal, ref: str) -> HttpTerminal:
    """Return the error as what GitHub means by it, where it is not about the repository."""
    meanings = {409: ("empty", "the repository is empty"), 422: ("missing-ref", f"there is no ref {ref!r}")}
    if error.status not in meanings:
        return error
    reason, detail = meanings[error.status]
    return HttpTerminal(
        reason, error.url, detail, status=error.status, body=error.body, headers=error.headers
    )


def open_github(http: Http, token: Secret, network: Network) -> GitHub:
    """Return the client of GitHub's API, or of the mirror that the network settings name."""
    return GitHub(
        http,
        token,
        network.github_api_url,
        network.github_archive_url,
        network.github_raw_url,
        archive_bytes=network.archive_bytes,
    )
