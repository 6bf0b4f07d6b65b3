"""The skills marketplace: the listing that its site uses, and the search of its API."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from tests.support.marketplace.messages import Asked, Reply, Window, html_page, json_reply
from tests.support.marketplace.world import Row, TimeForm, World

Endpoint: TypeAlias = Literal["listing", "search"]
_PATHS: dict[str, Endpoint] = {"/api/skills": "listing", "/api/v1/skills/search": "search"}
_SORTS = {"stars", "recent", "updated", "updatedAt", "name"}


def _error(status: int, code: str | None, message: str) -> Reply:
    return json_reply(
        {"success": False, "error": {**({"code": code} if code else {}), "message": message}}, status
    )


class SkillsMP:
    """Answers both endpoints from the world's rows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._day, self._minute = Window(86_400), Window(60)

    def answer(self, asked: Asked) -> Reply:
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

    def _listing(self, asked: Asked) -> Reply:
        if asked.query.get("search") == "":
            return _error(400, "INVALID_QUERY", "search must not be empty")
        depth = self._world.skillsmp.listing_depth
        page = self._page(asked, asked.query.get("search"), depth)
        page["pagination"]["totalIsExact"] = False
        wanted = {name: asked.query[name] for name in ("search", "sortBy") if name in asked.query}
        rows = [self._listing_row(row) for row in page["rows"]]
        return json_reply({"skills": rows, "pagination": page["pagination"], "filters": wanted})

    def _search(self, asked: Asked) -> Reply:
        if refused := self._refusal(asked):
            return refused
        headers, exhausted = self._count(asked.token)
        reply = exhausted or self._results(asked)
        reply.headers.update(headers)
        return reply

    def _results(self, asked: Asked) -> Reply:
        query = asked.query.get("q", "")
        if not query:
            return _error(400, "MISSING_QUERY", "q is required")
        settings = self._world.skillsmp
        page = self._page(asked, None if query == "*" else query, settings.search_depth)
        rows, pagination = [self._search_row(row) for row in page["rows"]], page["pagination"]
        if settings.search_envelope == "bare":
            return json_reply({"skills": rows, "pagination": pagination})
        data: Any = {"skills": rows, "pagination": pagination}
        if settings.search_envelope == "flat":
            return json_reply({"success": True, "data": rows, "pagination": pagination})
        return json_reply({"success": True, "data": data, "meta": {"requestId": f"r-{len(rows)}"}})

    def _refusal(self, asked: Asked) -> Reply | None:
        settings = self._world.skillsmp
        if asked.token is None:
            return _error(401, "MISSING_API_KEY", "A key is required") if settings.key_required else None
        wrong = settings.keys is not None and asked.token not in settings.keys
        return _error(401, "INVALID_API_KEY", "The key is not valid") if wrong else None

    def _count(self, token: str | None) -> tuple[dict[str, str], Reply | None]:
        settings, now, who = self._world.skillsmp, self._world.now(), token or "anonymous"
        quota = settings.key_quota if token else settings.anonymous_quota
        if quota is None:
            return {}, None
        day, minute = self._day.at(now), self._minute.at(now)
        refused = None
        if day[who] >= quota[0]:
            refused = _error(429, "DAILY_QUOTA_EXCEEDED", "The day's quota is used up")
        elif minute[who] >= quota[1]:
            refused = _error(429, settings.minute_code, "Too many requests")
        else:
            day[who] += 1
            minute[who] += 1
        if refused and settings.retry_after is not None:
            refused.headers["retry-after"] = str(settings.retry_after)
        return _quota_headers(quota, day[who], minute[who]), refused

    def _page(self, asked: Asked, query: str | None, depth: int | None) -> dict[str, Any]:
        settings = self._world.skillsmp
        number, limit = _number(asked.query.get("page"), 1), _number(asked.query.get("limit"), 20)
        limit = min(limit, settings.most_rows)
        if settings.before_page:
            settings.before_page(number)
        rows = self._sorted(query, asked.query.get("sortBy", "recent"))
        reach = len(rows) if depth is None else min(len(rows), depth)
        shown = [row for row in rows[(number - 1) * limit : min(number * limit, reach)] if not row.hidden]
        more = {"honest": number * limit < reach, "always": True, "never": False}[settings.has_next]
        pagination = {
            "page": number,
            "limit": limit,
            "total": len(rows),
            # Far too few, as recorded: 206 rows, 12 a page, "2 pages".
            "totalPages": -(-len(rows) // limit) // 9 + 1,
            "hasNext": more,
            "hasPrev": number > 1,
        }
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
            "updatedAt": _time(row, self._world.skillsmp.listing_times),
            "path": "SKILL.md",
            # Recorded: it contradicts the URL, which is right.
            "branch": "master" if row.ref == "main" else "main",
        }

    def _search_row(self, row: Row) -> dict[str, Any]:
        return {
            **self._row(row),
            "skillUrl": f"https://skillsmp.com/skills/{row.slug}",
            "updatedAt": _time(row, self._world.skillsmp.search_times),
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


def _time(row: Row, form: TimeForm) -> str | int | float:
    at = row.updated_at
    if form == "rotating":
        return _time(row, ("text", "int", "iso", "ms", "float")[row.serial % 5])
    forms: dict[str, str | int | float] = {
        "text": str(at),
        "int": at,
        "float": at + 0.25,
        "ms": at * 1000,
        "iso": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return forms[form]
