"""The source `mcp:`: the skills that an MCP server with the Skills extension lists, read by their digests."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, unquote

from storage.errors import WrongInput
from storage.schemas import Dropped
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.registries.digested import DigestedSource, Fetched
from tasks.crawl.registries.discovery import SKILL_FILE, digest_of, is_plain_path
from tasks.crawl.registries.mcp_calls import UNKNOWN, Call, CallRefused, calls_by_http, calls_to_command
from tasks.crawl.registries.well_known import normal_url, site_of
from tasks.crawl.source.base import CrawlContext, Gone, Item, Missed, Unchanged
from tasks.crawl.source.bundle import BundledSkill, Content, SourceEntry, consume, plan, read_skill, wanted
from tasks.crawl.source.identity import REDACTED, shown_spec
from tasks.models.fields import mapping_of, whole_of

EXTENSION = "io.modelcontextprotocol/skills"
_STDIO = "stdio:"
_LONGEST_MS = 10**12  # for which a list may be said to be good; `recheck_days` is less
_MOST_HUNG = 3  # calls in a row without an answer in time: it hangs
_MOST_SKILLS, _MOST_PAGES, _MOST_FILES = 100_000, 5_000, 2_000
_MOST_EMPTY = 10  # pages in a row: one that filters its list may give some


@dataclass(frozen=True, slots=True)
class _Skill:
    uri: str
    path: str  # of its folder on the server
    entries: tuple[SourceEntry, ...]  # by their addresses
    digests: dict[str, str]  # by address

    @property
    def digest(self) -> str:
        """The digest of the digests of its files."""
        lines = sorted(f"{entry.path} {self.digests[entry.key]}" for entry in self.entries)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def normal_server(place: str) -> str:
    """Return `URL` or `stdio:COMMAND` as it is remembered; raise WrongInput if it is neither."""
    if not place.startswith(_STDIO):
        return normal_url(place)
    try:
        words = shlex.split(place.removeprefix(_STDIO))
    except ValueError as error:
        raise WrongInput(f"mcp:stdio: the command cannot be read: {error}") from error
    if not words:
        raise WrongInput("mcp:stdio: wants a command after it")
    if (shown := shown_spec(f"mcp:{place}")) != f"mcp:{place}":
        name = shown.removeprefix("mcp:").removesuffix(f" {REDACTED}")
        raise WrongInput(f"mcp:{name}: its words hold a secret: pass it by an environment variable")
    return place


class McpServerSource(DigestedSource):
    """The skills of one server; one that it lists no more is asked for before it counts as gone."""

    exhaustive = False

    def __init__(self, place: str, context: CrawlContext) -> None:
        self._place = normal_server(place)
        super().__init__(f"mcp:{self._place}", context)
        self._hung, self._fresh_ms = 0, 0
        self._command = self._place.removeprefix(_STDIO) if self._place.startswith(_STDIO) else None
        program = PurePath(shlex.split(self._command)[0]).name if self._command else ""
        self._site = f"local/{program}" if self._command else site_of(self._place)

    @asynccontextmanager
    async def _calls(self) -> AsyncGenerator[Call, None]:
        if self._command:
            with self._as_source():
                async with calls_to_command(self._command, self._settings.request_timeout) as call:
                    yield self._counted(call)
        else:
            async with self._client(self._place) as http:
                yield self._counted(calls_by_http(http, self._place))

    def _counted(self, call: Call) -> Call:
        async def counted(method: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401 (JSON)
            try:
                answer = await call(method, **params)
            except HttpTransient as error:
                self._hung = self._hung + 1 if error.reason == "timeout" else 0
                raise
            self._hung = 0
            return answer

        return counted

    async def _items(self) -> AsyncGenerator[Item, None]:
        until = datetime.fromisoformat(self._digests.marks.get("until", self._now.isoformat()))
        if self._now < until <= self._now + timedelta(days=self._settings.recheck_days):
            yield Unchanged(tuple(sorted(self._present())))
            return
        whole = True
        async with self._calls() as call:
            found = await call("server/discover")
            if EXTENSION not in mapping_of(mapping_of(found.get("capabilities")).get("extensions")):
                detail = f"the server does not offer the extension {EXTENSION}"
                raise HttpTerminal("no-skills", self._place, detail)
            async for item in self._listed(call):
                whole = whole and not isinstance(item, Missed)
                yield item
        fresh = timedelta(milliseconds=self._fresh_ms if whole else 0)
        self._digests.end(until=(self._now + fresh).isoformat())

    async def _listed(self, call: Call) -> AsyncGenerator[Item, None]:
        met: set[str] = set()
        async for row in self._rows(call):
            async for item in self._row(call, row, met):
                yield item
        for uri in self._digests.keys():  # noqa: SIM118 (it is no mapping)
            if uri not in met:  # a list may be partial
                async for item in self._unlisted(call, uri, met):
                    yield item

    async def _rows(self, call: Call) -> AsyncGenerator[object, None]:
        cursor, listed, empty, self._fresh_ms = None, 0, 0, _LONGEST_MS
        for _ in range(_MOST_PAGES):
            page = await call("skills/list", **({} if cursor is None else {"cursor": cursor}))
            rows, following = page.get("skills"), page.get("nextCursor") or None
            self._fresh_ms = min(self._fresh_ms, whole_of(page.get("ttlMs"), _LONGEST_MS) or 0)
            repeated = following is not None and following == cursor
            if not isinstance(rows, list) or not isinstance(following, str | None) or repeated:
                raise HttpTerminal("shape", self._place, "skills/list gives no list, or the same page again")
            listed, empty = listed + len(rows), 0 if rows else empty + 1
            if listed > _MOST_SKILLS or empty > _MOST_EMPTY:
                what = f"{_MOST_SKILLS:,} skills" if rows else f"{_MOST_EMPTY} pages in a row without a skill"
                raise HttpTerminal("too-many", self._place, f"it lists more than {what}")
            for row in rows:
                yield row
            if following is None:
                return
            cursor = following
        raise HttpTerminal("too-many", self._place, f"its list has more than {_MOST_PAGES:,} pages")

    async def _unlisted(self, call: Call, uri: str, met: set[str]) -> AsyncGenerator[Item, None]:
        try:
            row = (await call("skills/get", uri=uri)).get("skill")
        except CallRefused as error:
            ids = self._digests.ids(uri)
            if error.code == UNKNOWN:
                yield Gone(ids, "retired", "the server no longer has it")
            else:
                yield Missed(ids, error.reason, error.detail)
            return
        if mapping_of(row).get("uri") != uri:
            yield Missed(self._digests.ids(uri), "shape", f"the server gives another skill for {uri}")
            return
        async for item in self._row(call, row, met):
            yield item

    async def _row(self, call: Call, row: object, met: set[str]) -> AsyncGenerator[Item, None]:
        try:
            skill = _skill(row)
        except ValueError as error:
            uri = mapping_of(row).get("uri")
            named = uri if isinstance(uri, str) else ""
            met.add(named)
            if held := self._digests.ids(named):
                yield Missed(held, "malformed", str(error))
            else:
                yield Dropped(f"{self._site}/{named[:200]}", self.spec, "malformed", str(error))
            return
        if skill.uri in met:
            return
        met.add(skill.uri)
        doc_id = f"{self._site}/{skill.path}"

        async def result() -> AsyncGenerator[Fetched, None]:
            yield await self._digests.fetched(
                skill.uri, skill.digest, doc_id, lambda _: self._read(call, skill, doc_id)
            )

        async for item in self._digests.taken(result()):
            yield item
        if self._hung >= _MOST_HUNG:
            raise HttpTransient("timeout", self._site, f"{self._hung} calls in a row had no answer in time")

    async def _read(self, call: Call, skill: _Skill, doc_id: str) -> list[Item]:
        rows = plan(skill.entries, doc_id, self.spec)
        found = next(row for row in rows if isinstance(row, BundledSkill) and not row.entry.folder)
        contents: dict[str, bytes] = {}
        for entry in wanted(found, self._limits):
            if entry.key not in contents:
                contents[entry.key] = await self._file(call, entry, skill.digests[entry.key])

        def read(entry: SourceEntry, keep: int) -> Content:
            if entry.key not in contents:
                raise OSError("it was not read")
            return consume([contents[entry.key]], keep)

        author = self._site.partition("/")[0]
        url = None if self._command else self._place
        return [read_skill(found, read, self._limits, self.spec, url=url, author=author)]

    async def _file(self, call: Call, entry: SourceEntry, digest: str) -> bytes:
        """Return the bytes of a file; raise HttpTerminal `digest-mismatch` if they are not those listed."""
        contents = (await call("resources/read", uri=entry.key)).get("contents")
        first = mapping_of(contents[0] if isinstance(contents, list) and contents else None)
        text, blob = first.get("text"), first.get("blob")
        try:
            told = text.encode() if isinstance(text, str) else None
            content = base64.b64decode(str(blob or ""), validate=True) if told is None else told
        except ValueError as error:
            raise HttpTerminal("shape", self._place, f"{entry.key} is no text and no base64") from error
        if digest_of(content) != digest or len(content) != entry.size:
            detail = f"{entry.key} has the digest {digest_of(content)}, and {digest} is listed: not taken"
            raise HttpTerminal("digest-mismatch", self._place, detail)
        return content


def _skill(row: object) -> _Skill:
    entry = mapping_of(row)
    uri, resources = entry.get("uri"), entry.get("resources")
    root, slash, name = uri.rpartition("/") if isinstance(uri, str) else ("", "", "")
    path = root.partition("://")[2]
    if not slash or name != SKILL_FILE or not is_plain_path(unquote(path)) or len(str(uri)) > 1_000:
        raise ValueError(f"{str(uri)[:100]!r} is no address of a {SKILL_FILE}")
    if resources == "dynamic":
        raise ValueError("its files are dynamic, and have no digests")
    if not isinstance(resources, list) or len(resources) > _MOST_FILES:
        raise ValueError(f"its resources are no list of at most {_MOST_FILES:,}")
    entries: dict[str, SourceEntry] = {}
    digests: dict[str, str] = {}
    for given in map(mapping_of, resources):
        address, digest, size = given.get("uri"), given.get("digest"), given.get("size")
        if not isinstance(address, str) or not address.startswith(f"{root}/") or not isinstance(digest, str):
            raise ValueError(f"its resource {str(address)[:100]!r} lies outside it, or has no digest")
        below = unquote(address[len(root) + 1 :])
        if not is_plain_path(below) or not isinstance(size, int) or size < 0 or below in entries:
            raise ValueError(f"its resource {str(address)[:100]!r} has no plain path of its own, or no size")
        entries[below], digests[address] = SourceEntry(below, key=address, size=size), digest
    if SKILL_FILE not in entries:
        raise ValueError(f"its resources lack {SKILL_FILE}")
    return _Skill(str(uri), quote(unquote(path), safe="/+~@:!$&'()*,;="), tuple(entries.values()), digests)
