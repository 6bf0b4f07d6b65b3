"""The client of SkillsMP's API: pages of skills, by its search or by the endpoint of its own site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from storage.schemas import Dropped, Listing
from tasks.crawl.http.responses import (
    ERROR_BYTES,
    Answer,
    HttpTerminal,
    HttpTransient,
    QuotaExhausted,
    error_code,
)
from tasks.crawl.http.settings import Secret
from tasks.crawl.source.identity import hide_credentials
from tasks.models.fields import count_of, mapping_of, text_of, time_of, whole_of

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

PAGE_ROWS = 100  # the most that either endpoint gives
SEARCH, SITE = "/api/v1/skills/search", "/api/skills"
# Reasons for which the other endpoint is tried; any other error would occur there too.
_NOT_SERVED = frozenset({"missing", "html", "not-json", "denied"})


@dataclass(frozen=True, slots=True)
class ListingPage:
    """One page of a listing."""

    number: int  # from 1
    rows: tuple[Listing | Dropped, ...]
    has_next: bool  # whether the next page is to be asked for
    total: int | None  # the number of rows that the server states, exact or not
    capped: bool = False  # the listing ends here, although the server states more rows

    @property
    def times(self) -> list[datetime]:
        """The times at which the rows were updated, if they tell."""
        return [r.updated_at for r in self.rows if isinstance(r, Listing) and r.updated_at is not None]


class SkillsMP:
    """Asks the marketplace at a base URL for pages, newest rows first.

    The key, which may be a secret without a value, is sent to the search only.
    """

    def __init__(self, http: Http, url: str, key: Secret | None, *, source: str = "skillsmp") -> None:
        self._http, self._url, self._source = http, url.rstrip("/"), source
        self._key = key or None
        self._endpoints = [SEARCH, SITE] if self._key else [SITE, SEARCH]
        self._failed: dict[str, HttpTerminal] = {}

    async def page(self, query: str | None, number: int, *, limit: int = PAGE_ROWS) -> ListingPage:
        """Return page `number` (from 1, at most `limit` or 100 rows) of the matching rows; None: of all rows.

        With a key the API's search is asked first, without one the site's endpoint; if one is missing or
        blocked, the other is asked from then on.

        Raises:
            HttpTerminal: `unauthorised`: the key is wrong; `html`: both endpoints answer with web pages;
                `shape`: the JSON is no listing; otherwise as `Http.get`.
            HttpTransient: As `Http.get`; `QuotaExhausted` when the day's requests are used up.
        """
        for endpoint in self._endpoints:
            if endpoint in self._failed:
                continue
            try:
                return await self._ask(endpoint, (query or "").strip(), number, limit)
            except HttpTerminal as error:
                if not self._may_go_on(error):
                    raise
                self._failed[endpoint] = error
        raise self._blocked()

    async def _ask(self, endpoint: str, query: str, number: int, limit: int) -> ListingPage:
        params = {"page": str(number), "limit": str(limit), "sortBy": "recent"}
        if endpoint == SEARCH:
            params["q"] = query or "*"
        elif query:  # the site refuses an empty `search`
            params["search"] = query
        token = self._key if endpoint == SEARCH else None
        answer = await self._http.get(f"{self._url}{endpoint}", params=params, token=token)
        records, pagination = unwrap(answer)
        return _page(records, pagination, number, limit, self._source)

    def _may_go_on(self, error: HttpTerminal) -> bool:
        """Return whether the other endpoint may answer; a wrong key is wrong at both."""
        if error.reason == "unauthorised":
            return self._key is None and error_code(error.body) != "INVALID_API_KEY"
        return error.reason in _NOT_SERVED

    def _blocked(self) -> HttpTerminal:
        walls = [error for error in self._failed.values() if error.reason == "html"]
        if not walls:
            return self._failed[self._endpoints[0]]
        advice = "ask the marketplace" if self._key else "set SKILLERY_SKILLSMP_KEY to use its API with a key"
        detail = f"the source is blocked: it answers programs with a page for people; {advice}"
        return HttpTerminal("html", self._url, detail, status=walls[0].status, body=walls[0].body)


def unwrap(answer: Answer) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the rows and the pagination of an answer, or raise the error that it reports.

    It has the form `{skills, pagination}`, `{success, data: {skills, pagination}}` or `{success, data: [...],
    pagination}`; any other raises HttpTerminal with reason `shape`.
    """
    body = mapping_of(answer.json())
    if body.get("success") is False:
        raise _reported(answer, mapping_of(body.get("error")))
    held = body.get("data", body)
    records = held.get("skills") if isinstance(held, Mapping) else held
    if not isinstance(records, list):
        raise answer.error("shape", "the answer holds no list of skills")
    given = [mapping_of(m).get("pagination") for m in (held, body)]
    return records, next((p for p in given if isinstance(p, Mapping)), {})


def _reported(answer: Answer, given: Mapping[str, Any]) -> HttpTerminal | HttpTransient:
    """Return the error of an answer with status 200 that says `success: false`."""
    code, detail = str(given.get("code")), f"the answer reports {given.get('code')}: {given.get('message')}"
    if code == "DAILY_QUOTA_EXCEEDED":
        return QuotaExhausted(answer.url, None)
    if code == "INTERNAL_ERROR":
        return HttpTransient("server", answer.url, detail, body=answer.body[:ERROR_BYTES])
    reason = "unauthorised" if code in ("MISSING_API_KEY", "INVALID_API_KEY") else "refused"
    return answer.error(reason, detail)


def _page(
    records: list[Any], pagination: Mapping[str, Any], number: int, limit: int, source: str
) -> ListingPage:
    count, total = len(records), whole_of(pagination.get("total"))
    per_page = whole_of(pagination.get("limit"))
    size = min(per_page or limit, limit)
    # A short page is not the end if the server says that more follow: it may have left rows out. A full page
    # is followed whatever the server says: one page too many costs a request, one too few costs rows.
    has_next = count > 0 and (pagination.get("hasNext") is True or count >= size)
    shown = (number - 1) * size + count
    capped = not has_next and total is not None and shown < total
    return ListingPage(number, tuple(listing_of(r, source) for r in records), has_next, total, capped)


def listing_of(record: object, source: str) -> Listing | Dropped:
    """Return a row of a page, any JSON value, as a listing, or why it is dropped: `no-url` or `malformed`.

    Only `githubUrl` tells where the skill is: `branch` contradicts it, `path` is relative to the skill's
    folder, and the slugs of `route` and `id` are lossy.
    """
    if not isinstance(record, Mapping):
        return Dropped("", source, "malformed", f"the row is {_kind(record)}, not an object")
    row_id, url = text_of(record.get("id")), text_of(record.get("githubUrl"))
    name, tags = text_of(record.get("name")), record.get("tags")
    if url is None and row_id is None:
        detail = f"the row of {name or 'an unnamed skill'} lacks id and githubUrl"
        return Dropped("", source, "malformed", detail)
    if url is None:
        return Dropped(row_id or "", source, "no-url", f"{name or row_id}: githubUrl is missing or empty")
    shown = hide_credentials(url)
    return Listing(
        source=source, source_id=row_id or shown, name=name, description=text_of(record.get("description")),
        author=text_of(record.get("author")), url=shown, category=text_of(record.get("category")),
        tags=tuple(filter(None, map(text_of, tags))) if isinstance(tags, list) else (),
        stars=count_of(record.get("stars")), updated_at=time_of(record.get("updatedAt")),
    )  # fmt: skip


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
