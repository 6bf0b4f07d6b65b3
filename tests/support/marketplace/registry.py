"""The registry of MCP servers, version 0.1 of its API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.marketplace.messages import Asked, Reply, json_reply
from tests.support.marketplace.world import Server, World

_OFFICIAL = "io.modelcontextprotocol.registry/official"


class Registry:
    """Answers `/v0.1/servers`, in the order of names and versions."""

    def __init__(self, world: World) -> None:
        self._world = world

    def answer(self, asked: Asked) -> Reply:
        if asked.path != "/v0.1/servers":
            return json_reply({"title": "Not Found", "status": 404}, 404)
        try:
            since = _since(asked.query.get("updated_since"))
            limit = _limit(asked.query.get("limit"), self._world)
        except ValueError as error:
            reply = json_reply({"title": "Bad Request", "status": 400, "detail": str(error)}, 400)
        else:
            reply = self._page(asked, since, limit)
        reply.kind = "registry"
        return reply

    def _page(self, asked: Asked, since: float | None, limit: int) -> Reply:
        cursor = asked.query.get("cursor", "")
        # Deletions are told unasked to whoever asks for changes.
        deleted = since is not None or asked.query.get("include_deleted") == "true"
        wanted = [
            server
            for server in sorted(self._world.servers, key=_cursor)
            if _cursor(server) > cursor
            and (deleted or server.status != "deleted")
            and (since is None or server.updated_at >= since)
            and (asked.query.get("version") in {None, server.version} or _asks_latest(asked, server))
            and asked.query.get("search", "").lower() in server.name.lower()
        ]
        shown = wanted[:limit]
        more = _cursor(shown[-1]) if len(wanted) > limit else None
        metadata = {"count": len(shown), **self._next(more)}
        return json_reply({"servers": [_entry(server) for server in shown], "metadata": metadata})

    def _next(self, cursor: str | None) -> dict[str, str | None]:
        settings = self._world.registry
        if cursor is None and settings.last_cursor == "absent":
            return {}
        return {settings.cursor_key: "" if cursor is None and settings.last_cursor == "empty" else cursor}


def _asks_latest(asked: Asked, server: Server) -> bool:
    return asked.query.get("version") == "latest" and server.latest


def _cursor(server: Server) -> str:
    return f"{server.name}:{server.version}"


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        msg = "updated_since must be an RFC 3339 time"
        raise ValueError(msg)
    return at.timestamp()


def _limit(text: str | None, world: World) -> int:
    limit = world.registry.default_limit if text is None else int(text)
    if not 1 <= limit <= world.registry.most_rows:
        msg = f"limit must lie between 1 and {world.registry.most_rows}"
        raise ValueError(msg)
    return limit


def _time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _entry(server: Server) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": server.name,
        "description": server.description,
        "version": server.version,
        **server.extra,
    }
    if server.repository:
        told["repository"] = {"url": server.repository, "source": "github"}
        if server.repository_id:
            told["repository"]["id"] = server.repository_id
    official = {
        "status": server.status,
        "publishedAt": _time(server.published_at),
        "updatedAt": _time(server.updated_at),
        "isLatest": server.latest,
    }
    return {"server": told, "_meta": {_OFFICIAL: official}}
