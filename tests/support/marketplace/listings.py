"""Services that list: the marketplace of skills (its site's listing, its API's search), the MCP registry."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal, TypeAlias

from tests.support.marketplace.messages import Reply, Request, Window, html_page, iso_time, json_reply
from tests.support.marketplace.world import Row, Server, TimeForm, World

Endpoint: TypeAlias = Literal["listing", "search"]
_PATHS: dict[str, Endpoint] = {"/api/skills": "listing", "/api/v1/skills/search": "search"}
_SORTS = {"stars", "recent", "updated", "updatedAt", "name"}


def _error(status: int, code: str, message: str) -> Reply:
    return json_reply({"success": False, "error": {"code": code, "message": message}}, status)


class SkillsMP:
    """Answers both endpoints from the world's rows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._day, self._minute = Window(86_400), Window(60)

    def answer(self, asked: Request) -> Reply:
        endpoint = _PATHS.get(asked.path)
        if endpoint is None or endpoint in self._world.skillsmp.missing:
            return _error(404, "NOT_FOUND", "No such endpoint")
        settings = self._world.skillsmp
        if endpoint in settings.html_wall:
            reply = html_page(settings.html_status)
        elif endpoint == "listing":
            reply = self._listing(asked)
        else:
            reply = self._search(asked)
        reply.kind = endpoint
        return reply

    def _listing(self, asked: Request) -> Reply:
        if asked.query.get("search") == "":
            return _error(400, "INVALID_QUERY", "search must not be empty")
        depth = self._world.skillsmp.listing_depth
        page = self._page(asked, asked.query.get("search"), depth)
        page["pagination"]["totalIsExact"] = False
        wanted = {name: asked.query[name] for name in ("search", "sortBy") if name in asked.query}
        rows = [self._listing_row(row) for row in page["rows"]]
        return json_reply({"skills": rows, "pagination": page["pagination"], "filters": wanted})

    def _search(self, asked: Request) -> Reply:
        if refused := self._refusal(asked):
            return refused
        headers, exhausted = self._count(asked.token)
        reply = exhausted or self._results(asked)
        reply.headers.update(headers)
        return reply

    def _results(self, asked: Request) -> Reply:
        query = asked.query.get("q", "")
        if not query:
            return _error(400, "MISSING_QUERY", "q is required")
        settings = self._world.skillsmp
        page = self._page(asked, None if query == "*" else query, None)
        rows, pagination = [self._search_row(row) for row in page["rows"]], page["pagination"]
        if settings.search_envelope == "bare":
            return json_reply({"skills": rows, "pagination": pagination})
        data: Any = {"skills": rows, "pagination": pagination}
        if settings.search_envelope == "flat":
            return json_reply({"success": True, "data": rows, "pagination": pagination})
        return json_reply({"success": True, "data": data, "meta": {"requestId": f"r-{len(rows)}"}})

    def _refusal(self, asked: Request) -> Reply | None:
        settings = self._world.skillsmp
        if asked.token is None:
            return _error(401, "MISSING_API_KEY", "A key is required") if settings.key_required else None
        wrong = settings.keys is not None and asked.token not in settings.keys
        return _error(401, "INVALID_API_KEY", "The key is not valid") if wrong else None

    def _count(self, token: str | None) -> tuple[dict[str, str], Reply | None]:
        now, quota = self._world.now(), self._world.skillsmp.key_quota
        if quota is None or token is None:
            return {}, None
        day, minute = self._day.at(now), self._minute.at(now)
        refused = None
        if day[token] >= quota[0]:
            refused = _error(429, "DAILY_QUOTA_EXCEEDED", "The day's quota is used up")
        elif minute[token] >= quota[1]:
            refused = _error(429, "RATE_LIMIT_EXCEEDED", "Too many requests")
        else:
            day[token] += 1
            minute[token] += 1
        return _quota_headers(quota, day[token], minute[token]), refused

    def _page(self, asked: Request, query: str | None, depth: int | None) -> dict[str, Any]:
        settings = self._world.skillsmp
        number, limit = _number(asked.query.get("page"), 1), _number(asked.query.get("limit"), 20)
        limit = min(limit, settings.most_rows)
        if settings.before_page:
            settings.before_page(number)
        rows = self._sorted(query, asked.query.get("sortBy", "recent"))
        reach = len(rows) if depth is None else min(len(rows), depth)
        shown = rows[(number - 1) * limit : min(number * limit, reach)]
        more = {"honest": number * limit < reach, "always": True, "never": False}[settings.has_next]
        too_few = -(-len(rows) // limit) // 9 + 1  # as recorded: 206 rows, 12 a page, "2 pages"
        pagination = {
            "page": number, "limit": limit, "total": len(rows), "totalPages": too_few, "hasNext": more,
            "hasPrev": number > 1,
        }  # fmt: skip
        return {"rows": shown, "pagination": pagination}

    def _sorted(self, query: str | None, order: str) -> list[Row]:
        wanted = (query or "").lower()
        rows = [row for row in self._world.rows if wanted in f"{row.name} {row.description}".lower()]
        if self._world.skillsmp.unstable_ties:
            salt = str(len(self._world.rows) + int(self._world.now() * 1000))
            rows.sort(key=lambda row: hashlib.sha256(f"{salt} {row.name}".encode()).digest())
        if order == "name":
            return sorted(rows, key=lambda row: row.name)
        if order == "stars":
            return sorted(rows, key=lambda row: -row.stars)
        return sorted(rows, key=lambda row: -row.updated_at) if order in _SORTS else rows

    def _row(self, row: Row) -> dict[str, Any]:
        settings = self._world.skillsmp
        record: dict[str, Any] = {
            "id": row.slug,
            "name": row.name,
            "author": row.author,
            "description": row.description,
            "githubUrl": "" if _every(row, settings.no_url_every) else row.github_url,
            "stars": row.stars,
        }
        if _every(row, settings.written_stars_every):
            record["stars"] = f"{row.stars / 1000:.1f}k"
        if _every(row, settings.nulls_every):
            record.update(author=None, description=None, stars=None)
        if settings.routes:
            owner, _, repo = row.full_name.partition("/")
            path = f"{row.folder}/SKILL.md".lstrip("/")
            route = {"ownerSlug": owner.lower(), "repoSlug": repo.lower(), "routeSlug": row.name}
            record["route"] = {**route, "sourceSkillPath": path}
        return record

    def _listing_row(self, row: Row) -> dict[str, Any]:
        return {
            **self._row(row),
            "authorAvatar": f"https://avatars.githubusercontent.com/{row.author}",
            "forks": row.stars // 6,
            "updatedAt": _written(row, self._world.skillsmp.listing_times),
            "path": "SKILL.md",
            # Recorded: it contradicts the URL, which is right.
            "branch": "master" if row.ref == "main" else "main",
        }

    def _search_row(self, row: Row) -> dict[str, Any]:
        return {
            **self._row(row),
            "skillUrl": f"https://skillsmp.com/skills/{row.slug}",
            "updatedAt": row.updated_at,
            "tags": [],
        }


def _quota_headers(quota: tuple[int, int], day: int, minute: int) -> dict[str, str]:
    return {
        "x-ratelimit-daily-limit": str(quota[0]),
        "x-ratelimit-daily-remaining": str(quota[0] - day),
        "x-ratelimit-minute-limit": str(quota[1]),
        "x-ratelimit-minute-remaining": str(quota[1] - minute),
    }


def _number(text: str | None, default: int) -> int:
    return max(int(text), 1) if text and text.isdecimal() else default


def _every(row: Row, n: int) -> bool:
    return n > 0 and row.serial % n == 0


def _written(row: Row, form: TimeForm) -> str | int | float:
    at = row.updated_at
    return str(at) if form == "text" else [str(at), at, iso_time(at), at * 1000, at + 0.25][row.serial % 5]


_OFFICIAL = "io.modelcontextprotocol.registry/official"


class Registry:
    """Answers `/v0.1/servers`, in the order of names and versions."""

    def __init__(self, world: World) -> None:
        self._world = world

    def answer(self, asked: Request) -> Reply:
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

    def _page(self, asked: Request, since: float | None, limit: int) -> Reply:
        cursor = asked.query.get("cursor", "")
        # Deletions are told unasked to whoever asks for changes.
        deleted = since is not None or asked.query.get("include_deleted") == "true"
        wanted = [
            server
            for server in sorted(self._world.servers, key=_cursor)
            if _cursor(server) > cursor
            and (deleted or server.status != "deleted")
            and (since is None or server.updated_at >= since)
            and (asked.query.get("version") in {None, server.version} or server.latest)
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
    limit = int(text or world.registry.most_rows)
    if not 1 <= limit <= world.registry.most_rows:
        msg = f"limit must lie between 1 and {world.registry.most_rows}"
        raise ValueError(msg)
    return limit


def _entry(server: Server) -> dict[str, Any]:
    told: dict[str, Any] = {"name": server.name, "description": server.description, "version": server.version}
    official = {
        "status": server.status,
        "publishedAt": iso_time(server.published_at),
        "updatedAt": iso_time(server.updated_at),
        "isLatest": server.latest,
    }
    return {"server": told, "_meta": {_OFFICIAL: official}}
