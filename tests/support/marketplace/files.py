"""The host of archives and the host of raw files: no quota, no JSON."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.support.marketplace.archives import Shelf, root_name
from tests.support.marketplace.forge import Place, blocked_text, locate
from tests.support.marketplace.messages import Asked, Body, Reply, text_reply, with_etag
from tests.support.marketplace.objects import Blob
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World

_ARCHIVE = re.compile(r"/([^/]+)/([^/]+)/(legacy\.)?zip/(.+)")
_RAW = re.compile(r"/([^/]+)/([^/]+)/(.+)")


def _missing() -> Reply:
    return text_reply("404: Not Found", 404)


def _moved(world: World, place: Place, rest: str) -> Reply:
    if not world.github.files_follow_renames:
        return _missing()
    return Reply(301, headers={"location": quote(f"/{place.repository.name}/{rest}")})


class ArchiveHost:
    """Serves `/{owner}/{repo}/zip/{ref}`, and `legacy.zip`, to which the API's zipball leads."""

    def __init__(self, world: World, shelf: Shelf) -> None:
        self._world, self._shelf = world, shelf

    def answer(self, asked: Asked) -> Reply:
        match = _ARCHIVE.fullmatch(asked.path)
        place = locate(self._world, match[1], match[2]) if match else None
        reply = self._archive(place, match[3] or "", match[4]) if match and place else _missing()
        reply.kind = "archive"
        reply.repository = place.repository.name if place else match and f"{match[1]}/{match[2]}"
        return reply

    def _archive(self, place: Place, legacy: str, ref: str) -> Reply:
        repository = place.repository
        if refused := blocked_text(repository):
            return refused
        if place.moved:
            return _moved(self._world, place, f"{legacy}zip/{ref}")
        commit = repository.find(ref)
        if commit is None:
            return _missing()
        root = root_name(repository.repo, ref)
        if legacy:
            root = f"{repository.owner}-{repository.repo}-{commit.sha[:7]}"
        headers = {
            "content-type": "application/zip",
            "content-disposition": f"attachment; filename={root}.zip",
        }
        body: Body | None = repository.archive_override
        if body is None:
            body = self._shelf.archive(commit, root)
        return Reply(200, body, headers, chunked=not self._world.github.archive_lengths)


class RawHost:
    """Serves `/{owner}/{repo}/{ref}/{path}`; a ref with slashes is told from the path by trying."""

    def __init__(self, world: World) -> None:
        self._world = world

    def answer(self, asked: Asked) -> Reply:
        match = _RAW.fullmatch(asked.path)
        place = locate(self._world, match[1], match[2]) if match else None
        reply = self._file(place, match[3]) if match and place else _missing()
        reply.kind = "raw"
        reply.repository = place.repository.name if place else match and f"{match[1]}/{match[2]}"
        return with_etag(reply, asked)

    def _file(self, place: Place, rest: str) -> Reply:
        if refused := blocked_text(place.repository):
            return refused
        if place.moved:
            return _moved(self._world, place, rest)
        blob = _split(place.repository, rest)
        if blob is None:
            return _missing()
        return Reply(200, b"".join(blob.pieces()), {"content-type": "text/plain; charset=utf-8"})


def _split(repository: Repository, rest: str) -> Blob | None:
    parts = rest.split("/")
    for taken in range(1, len(parts)):
        commit = repository.find("/".join(parts[:taken]))
        node = commit.tree.at("/".join(parts[taken:])) if commit else None
        if isinstance(node, Blob) and node.kind == "blob":
            return node
    return None
