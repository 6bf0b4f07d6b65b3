"""The forge: its API, the host of archives and the host of raw files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from tests.support.marketplace.messages import (
    Reply,
    Request,
    Window,
    iso_time,
    json_reply,
    text_reply,
    with_etag,
)
from tests.support.marketplace.repository import Blob, Commit, Node, Repository, Tree, archive_of
from tests.support.marketplace.world import World

_NAMED = re.compile(r"/repos/([^/]+)/([^/]+)(?:/(.*))?")
_NUMBERED = re.compile(r"/repositories/(\d+)(?:/(.*))?")
_ARCHIVE = re.compile(r"/([^/]+)/([^/]+)/(legacy\.)?zip/(.+)")
_RAW = re.compile(r"/([^/]+)/([^/]+)/(.+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A repository found by its name, and whether the name is an old one."""

    repository: Repository
    moved: bool


def locate(world: World, owner: str, repo: str) -> Place | None:
    """Return the repository of this name unless it is hidden; blocked ones are found."""
    found, moved = world.find(f"{owner}/{repo}")
    return Place(found, moved) if found and found.fate not in {"private", "deleted"} else None


def blocked_text(repository: Repository) -> Reply | None:
    """Return how a host of files refuses a repository, None where it does not."""
    said = {
        "dmca": ("Repository unavailable due to a DMCA takedown notice.", 403), "denied": ("Forbidden", 403),
        "blocked": ("Unavailable For Legal Reasons", 451),
    }.get(repository.fate)  # fmt: skip
    return text_reply(*said) if said else None


def blocked_json(repository: Repository) -> Reply | None:
    """Return how the API refuses a repository, None where it does not."""
    if repository.fate == "denied":
        return json_reply({"message": "Forbidden", "status": "403"}, 403)
    if repository.fate in {"dmca", "blocked"}:
        reason, status = ("dmca", 403) if repository.fate == "dmca" else ("legal", 451)
        block = {"reason": reason, "created_at": "2026-01-05T10:00:00Z", "html_url": None}
        return json_reply({"message": "Repository access blocked", "block": block}, status)
    return None


def not_found() -> Reply:
    return json_reply({"message": "Not Found", "documentation_url": "", "status": "404"}, 404)


def repository_json(repository: Repository, base: str) -> dict[str, Any]:
    licence, name = repository.licence, repository.name
    pushed = iso_time(repository.head.at) if repository.branches else None
    named = {"key": licence.lower(), "name": licence, "spdx_id": licence} if licence else None
    return {
        "id": repository.repo_id, "name": repository.repo, "full_name": name, "private": False,
        "owner": {"login": repository.owner, "type": "User"}, "html_url": f"https://github.com/{name}",
        "url": f"{base}/repos/{name}", "fork": False, "size": 1, "stargazers_count": repository.stars,
        "default_branch": repository.default_branch, "license": named, "archived": False, "disabled": False,
        "visibility": "public", "pushed_at": pushed,
    }  # fmt: skip


def commit_json(repository: Repository, commit: Commit, base: str) -> dict[str, Any]:
    url = f"{base}/repos/{repository.name}"
    who = {"name": "Market Gardener", "email": "gardener@example.org", "date": iso_time(commit.at)}
    tree = {"sha": commit.tree.sha, "url": f"{url}/git/trees/{commit.tree.sha}"}
    return {
        "sha": commit.sha,
        "url": f"{url}/commits/{commit.sha}",
        "commit": {"author": who, "committer": who, "message": "Tend the garden", "tree": tree},
        "parents": [{"sha": commit.parent}] if commit.parent else [],
    }


def entry_json(path: str, node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": path, "mode": node.mode, "type": node.kind, "sha": node.sha}
    if not isinstance(node, Tree) and node.kind == "blob":
        entry["size"] = len(node.content)
    return entry


def tree_json(tree: Tree, sha: str, *, recursive: bool, most: int) -> dict[str, Any]:
    """List a tree; of more than `most` entries only the first, with `truncated` set."""
    nodes = list(tree.walk()) if recursive else list(tree.entries.items())
    entries = [entry_json(path, node) for path, node in nodes[:most]]
    return {"sha": sha, "tree": entries, "truncated": len(nodes) > most}


def refs_json(kind: str, refs: dict[str, str], prefix: str) -> list[dict[str, Any]]:
    return [
        {"ref": f"refs/{kind}/{name}", "object": {"sha": sha, "type": "commit"}}
        for name, sha in sorted(refs.items())
        if name.startswith(prefix)
    ]


class GitHubApi:
    """Answers the API's routes; `hosts` gives the base URLs of the API itself (`api`) and of archives."""

    def __init__(self, world: World, hosts: Callable[[str], str]) -> None:
        self._world, self._hosts = world, hosts
        self._window = Window(3_600)
        self._routes: list[tuple[str, str, Callable[[Repository, Request, str], Reply]]] = [
            (r"()", "repo", self._repository),
            (r"commits/(.+)", "commit", self._commit),
            (r"git/trees/(.+)", "tree", self._tree),
            (r"git/matching-refs/(.*)", "refs", self._refs),
            (r"zipball(?:/(.+))?", "zipball", self._zipball),
        ]

    def answer(self, asked: Request) -> Reply:
        settings = self._world.github
        who = asked.token or "anonymous"
        used = self._window.at(self._world.now())
        if asked.token and settings.tokens is not None and asked.token not in settings.tokens:
            return json_reply({"message": "Bad credentials", "status": "401"}, 401)
        limit = 5_000 if asked.token else settings.anonymous_limit
        kind, place, reply = self._routed(asked)
        if used[who] >= limit:
            reply = json_reply({"message": "API rate limit exceeded."}, 403)
        reply = with_etag(reply, asked)
        free = reply.status == 304 and asked.token is not None
        used[who] += not free and used[who] < limit
        left = {
            "limit": limit,
            "remaining": limit - used[who],
            "used": used[who],
            "reset": self._window.reset,
        }
        reply.headers.update({f"x-ratelimit-{name}": str(n) for name, n in left.items()})
        reply.headers["x-ratelimit-resource"] = "core"
        reply.kind, reply.repository = kind, place
        return reply

    def _routed(self, asked: Request) -> tuple[str, str | None, Reply]:
        """Return what kind of route was asked for, of which repository, and the answer."""
        repository, moved, rest, name = self._find(asked.path)
        for pattern, kind, route in self._routes:
            if match := re.fullmatch(pattern, rest):
                if repository is None:
                    return kind, name, not_found()
                if refused := blocked_json(repository):
                    return kind, name, refused
                if moved:
                    return kind, name, self._elsewhere(repository, rest)
                return kind, name, route(repository, asked, match[1] or "")
        return "other", name, not_found()

    def _find(self, path: str) -> tuple[Repository | None, bool, str, str | None]:
        if match := _NUMBERED.fullmatch(path):
            found = self._world.by_id(int(match[1]))
            hidden = found is not None and found.fate in {"private", "deleted"}
            return None if hidden else found, False, match[2] or "", found.name if found else None
        if match := _NAMED.fullmatch(path):
            place = locate(self._world, match[1], match[2])
            if place:
                return place.repository, place.moved, match[3] or "", place.repository.name
            return None, False, match[3] or "", f"{match[1]}/{match[2]}"
        return None, False, "/", None

    def _elsewhere(self, repository: Repository, rest: str) -> Reply:
        url = f"{self._hosts('api')}/repositories/{repository.repo_id}{'/' if rest else ''}{quote(rest)}"
        return json_reply({"message": "Moved Permanently", "url": url}, 301, location=url)

    def _repository(self, repository: Repository, _asked: Request, _rest: str) -> Reply:
        return json_reply(repository_json(repository, self._hosts("api")))

    def _commit(self, repository: Repository, _asked: Request, ref: str) -> Reply:
        if not self._world.github.commits_route:
            return not_found()
        if not repository.branches:
            return json_reply({"message": "Git Repository is empty.", "status": "409"}, 409)
        commit = repository.find(ref)
        if commit is None:
            return json_reply({"message": f"No commit found for SHA: {ref}", "status": "422"}, 422)
        return json_reply(commit_json(repository, commit, self._hosts("api")))

    def _tree(self, repository: Repository, asked: Request, ref: str) -> Reply:
        commit = repository.find(ref)
        tree = commit.tree if commit else repository.node(ref)
        if not isinstance(tree, Tree):
            return not_found()
        most = self._world.github.tree_entries
        # Any value counts as yes, 0 and false too.
        recursive = bool(asked.query.get("recursive"))
        return json_reply(tree_json(tree, tree.sha, recursive=recursive, most=most))

    def _refs(self, repository: Repository, _asked: Request, wanted: str) -> Reply:
        kind, _, prefix = wanted.partition("/")
        refs = {"heads": repository.branches, "tags": repository.tags}.get(kind, {})
        return json_reply(refs_json(kind, refs, prefix))

    def _zipball(self, repository: Repository, _asked: Request, ref: str) -> Reply:
        path = quote(f"{repository.name}/legacy.zip/{ref or repository.default_branch}")
        return Reply(302, headers={"location": f"{self._hosts('archive')}/{path}"})


def _missing() -> Reply:
    return text_reply("404: Not Found", 404)


class _FileHost:
    """Answers for a kind of files, found by a pattern whose first groups are owner and repository."""

    kind: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]

    def __init__(self, world: World) -> None:
        self._world = world

    def answer(self, asked: Request) -> Reply:
        match = self.pattern.fullmatch(asked.path)
        place = locate(self._world, match[1], match[2]) if match else None
        reply = _missing()
        if match and place:
            rest = asked.path.split("/", 3)[3]
            reply = blocked_text(place.repository) or (
                self._moved(place, rest) if place.moved else self.file(place.repository, match)
            )
        reply.kind = self.kind
        reply.repository = place.repository.name if place else match and f"{match[1]}/{match[2]}"
        return reply

    def _moved(self, place: Place, rest: str) -> Reply:
        if not self._world.github.files_follow_renames:
            return _missing()
        return Reply(301, headers={"location": quote(f"/{place.repository.name}/{rest}")})

    def file(self, repository: Repository, match: re.Match[str]) -> Reply:
        raise NotImplementedError


class ArchiveHost(_FileHost):
    """Serves `/{owner}/{repo}/zip/{ref}`, and `legacy.zip`, to which the API's zipball leads."""

    kind, pattern = "archive", _ARCHIVE

    def file(self, repository: Repository, match: re.Match[str]) -> Reply:
        commit = repository.find(match[4])
        if commit is None:
            return _missing()
        root = f"{repository.repo}-{match[4].replace('/', '-')}"
        if match[3]:
            root = f"{repository.owner}-{repository.repo}-{commit.sha[:7]}"
        named = {"content-disposition": f"attachment; filename={root}.zip"}
        body = repository.archive_override or archive_of(commit, root)
        return Reply(200, body, {"content-type": "application/zip", **named})


class RawHost(_FileHost):
    """Serves `/{owner}/{repo}/{ref}/{path}`; a ref with slashes is told from the path by trying."""

    kind, pattern = "raw", _RAW

    def answer(self, asked: Request) -> Reply:
        return with_etag(super().answer(asked), asked)

    def file(self, repository: Repository, match: re.Match[str]) -> Reply:
        blob = _split(repository, match[3])
        if blob is None:
            return _missing()
        return Reply(200, blob.content, {"content-type": "text/plain; charset=utf-8"})


def _split(repository: Repository, rest: str) -> Blob | None:
    parts = rest.split("/")
    for taken in range(1, len(parts)):
        commit = repository.find("/".join(parts[:taken]))
        node = commit.tree.at("/".join(parts[taken:])) if commit else None
        if isinstance(node, Blob) and node.kind == "blob":
            return node
    return None
