"""The forge's API: repositories, commits, trees, refs, contents, and the way to an archive."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from urllib.parse import quote

from tests.support.marketplace.forge import blocked_json, locate, not_found
from tests.support.marketplace.github_json import (
    commit_json,
    entry_json,
    refs_json,
    repository_json,
    tree_json,
)
from tests.support.marketplace.messages import Asked, Reply, json_reply, text_reply, with_etag
from tests.support.marketplace.objects import Blob, Tree
from tests.support.marketplace.quotas import Window
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World

_NAMED = re.compile(r"/repos/([^/]+)/([^/]+)(?:/(.*))?")
_NUMBERED = re.compile(r"/repositories/(\d+)(?:/(.*))?")
_NAMES_SHA = "application/vnd.github.sha", "application/vnd.github.v3.sha"


class GitHubApi:
    """Answers the API's routes; `hosts` gives the base URLs of the API itself (`api`) and of archives."""

    def __init__(self, world: World, hosts: Callable[[str], str]) -> None:
        self._world, self._hosts = world, hosts
        self._window = Window(world.github.window_seconds)
        self._routes: list[tuple[str, str, Callable[[Repository, Asked, str], Reply]]] = [
            (r"()", "repo", self._repository),
            (r"commits/(.+)", "commit", self._commit),
            (r"git/trees/(.+)", "tree", self._tree),
            (r"git/matching-refs/(.*)", "refs", self._refs),
            (r"zipball(?:/(.+))?", "zipball", self._zipball),
            (r"contents(?:/(.*))?", "contents", self._contents),
        ]

    def answer(self, asked: Asked) -> Reply:
        settings = self._world.github
        who = asked.token or "anonymous"
        self._window.seconds = settings.window_seconds
        used = self._window.at(self._world.now())
        if asked.token and settings.tokens is not None and asked.token not in settings.tokens:
            return json_reply({"message": "Bad credentials", "status": "401"}, 401)
        limit = settings.token_limit if asked.token else settings.anonymous_limit
        kind, place, reply = self._routed(asked)
        if used[who] >= limit:
            reply = json_reply({"message": "API rate limit exceeded."}, settings.limit_status)
        reply = with_etag(reply, asked)
        free = reply.status == 304 and asked.token is not None
        used[who] += not free and used[who] < limit
        reply.headers.update(self._limits(limit, used[who]))
        reply.kind, reply.repository = kind, place
        return reply

    def _limits(self, limit: int, used: int) -> dict[str, str]:
        return {
            "x-ratelimit-limit": str(limit),
            "x-ratelimit-remaining": str(limit - used),
            "x-ratelimit-used": str(used),
            "x-ratelimit-reset": str(self._window.reset),
            "x-ratelimit-resource": "core",
        }

    def _routed(self, asked: Asked) -> tuple[str, str | None, Reply]:
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

    def _repository(self, repository: Repository, _asked: Asked, _rest: str) -> Reply:
        return json_reply(repository_json(repository, self._hosts("api")))

    def _commit(self, repository: Repository, asked: Asked, ref: str) -> Reply:
        if not self._world.github.commits_route:
            return not_found()
        if not repository.branches:
            return json_reply({"message": "Git Repository is empty.", "status": "409"}, 409)
        commit = repository.find(ref)
        if commit is None:
            return json_reply({"message": f"No commit found for SHA: {ref}", "status": "422"}, 422)
        if asked.headers.get("accept") in _NAMES_SHA:
            return text_reply(commit.sha, 200, "application/vnd.github.sha")
        return json_reply(commit_json(repository, commit, self._hosts("api")))

    def _tree(self, repository: Repository, asked: Asked, ref: str) -> Reply:
        commit = repository.find(ref)
        tree = commit.tree if commit else repository.node(ref)
        if not isinstance(tree, Tree):
            return not_found()
        most = self._world.github.tree_entries
        # Any value counts as yes, 0 and false too.
        recursive = bool(asked.query.get("recursive"))
        return json_reply(tree_json(tree, tree.sha, recursive=recursive, most=most))

    def _refs(self, repository: Repository, _asked: Asked, wanted: str) -> Reply:
        kind, _, prefix = wanted.partition("/")
        refs = {"heads": repository.branches, "tags": repository.tags}.get(kind, {})
        return json_reply(refs_json(kind, refs, prefix))

    def _zipball(self, repository: Repository, _asked: Asked, ref: str) -> Reply:
        path = quote(f"{repository.name}/legacy.zip/{ref or repository.default_branch}")
        return Reply(302, headers={"location": f"{self._hosts('archive')}/{path}"})

    def _contents(self, repository: Repository, asked: Asked, path: str) -> Reply:
        commit = repository.find(asked.query.get("ref", "HEAD"))
        node = commit.tree.at(path) if commit else None
        if isinstance(node, Tree):
            names = node.entries.items()
            return json_reply([entry_json(f"{path}/{name}".lstrip("/"), entry) for name, entry in names])
        if not isinstance(node, Blob) or node.kind != "blob":
            return not_found()
        content = b"".join(node.pieces())
        if "raw" in asked.headers.get("accept", ""):
            return Reply(200, content, {"content-type": "application/vnd.github.raw+json; charset=utf-8"})
        encoded = base64.encodebytes(content).decode()
        entry = {**entry_json(path, node), "type": "file", "encoding": "base64", "content": encoded}
        return json_reply(entry)
