"""The source `clawhub[:QUERY]`: the skills of ClawHub, listed by when they were updated, down to the mark."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from storage.schemas import Dropped, Finding, RawDocument
from tasks.crawl.http.responses import HttpTerminal, load_json
from tasks.crawl.registries.artifact import opened
from tasks.crawl.registries.digested import DigestedSource, Fetched
from tasks.crawl.registries.discovery import SKILL_FILE, is_plain_path
from tasks.crawl.source.base import CrawlContext, Gone, Item, Missed, Unchanged, in_order
from tasks.crawl.source.bundle import BundledSkill, Reader, SourceEntry, plan, read_skill
from tasks.crawl.source.unchanged import VERDICT
from tasks.models.fields import mapping_of

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_PAGE_ROWS, _MOST_PAGES = 200, 10_000
_AHEAD = 4  # skills under way at once
_MOST_OWNERS = 20  # of one slug, that are asked for
_INJECTED = "_meta.json"  # what the registry adds to each archive
_LICENCE = "MIT-0"  # of every skill that ClawHub hosts
_JUDGED = "ClawHub has judged {} as malicious"
UNVERIFIED = "registry.unverified"  # the finding on a skill whose bytes nothing vouches for


class ClawHubSource(DigestedSource):
    """The skills of ClawHub; one that is listed no more is asked for before it counts as withdrawn."""

    exhaustive = False

    def __init__(self, query: str, context: CrawlContext) -> None:
        super().__init__(f"clawhub:{query}" if query else "clawhub", context)
        self._query, self._base = query, f"{self._settings.clawhub_url.rstrip('/')}/api/v1"
        self._site = urlsplit(self._base).hostname or ""

    async def _items(self) -> AsyncGenerator[Item, None]:
        marks, now = self._digests.marks, self._now
        full = datetime.fromisoformat(marks["full"]) if marks else None
        days = timedelta(days=self._settings.recheck_days)
        whole = bool(self._query) or full is None or not timedelta() <= now - full < days
        latest = int(self._now.timestamp() * 1_000)  # a row may state any time
        newest, mark, met = 0, 0 if whole else min(marks["newest"], latest), set[str]()
        flagged, clean = set[str](marks.get("flagged", ())), set[str]()
        # When rows were updated that could not be read, and skills that could not be asked for: until they
        # are, nobody knows whether they are unchanged.
        missed, unknown = dict[str, int](), list[str]()
        async with self._client(self._base) as http:
            if judges := whole and bool(marks) and not self._query:  # a verdict alone is no update of a row
                async for page in self._pages(http, nonSuspiciousOnly="true"):
                    clean.update(map(_key, page))

            async def one(row: Mapping[str, Any]) -> Fetched:
                key, doc_id = _key(row), f"{self._site}/{row['slug']}"
                digest = f"{row['updatedAt']} {_version(row)}"
                digest += " flagged" * (key not in clean if judges else key in flagged)
                held = self._digests.ids(key) or (doc_id,)
                found = await self._digests.fetched(
                    key, digest, doc_id, lambda at: self._skill(http, row, held, at / "artifact")
                )
                if any(isinstance(item, Missed) for item in found[2]):
                    missed[row["slug"]] = row["updatedAt"]
                return found

            async for page in self._pages(http):
                rows = [row for row in page if row["updatedAt"] >= mark and _key(row) not in met]
                met.update(map(_key, rows))
                newest = max([newest, *(row["updatedAt"] for row in rows)])
                async for item in self._digests.taken(in_order(one, rows, _AHEAD)):
                    yield item
                if any(row["updatedAt"] < mark for row in page):
                    break
            keys = self._digests.keys() if whole else marks.get("unknown", [])
            absent = [key for key in keys if key not in met]
            if not whole:
                known = {i for key in (*met, *absent) for i in self._digests.ids(key)}
                rest = self._present() - known
                yield Unchanged(tuple(sorted(i for i in rest if i.rpartition("/")[2] not in missed)))
            for key in absent:
                item = await self._absent(http, key)
                unknown += [key] * isinstance(item, Missed)
                yield item
        newest, full = min(max(newest, mark), latest, *missed.values()), now if whole else full or now
        judged = sorted(met - clean if judges else flagged)
        self._digests.end(newest=newest, full=full.isoformat(), unknown=unknown, flagged=judged)

    async def _pages(self, http: Http, **also: str) -> AsyncGenerator[list[Mapping[str, Any]], None]:
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            if self._query:
                route, asked = "search", {"q": self._query, "limit": "200"}
            else:
                route, asked = "skills", {"sort": "updated", "limit": str(_PAGE_ROWS), **also}
                asked |= {"cursor": cursor} if cursor else {}
            answer = await http.get(f"{self._base}/{route}", params=asked)
            body = mapping_of(answer.json())
            rows, following = body.get("results" if self._query else "items"), body.get("nextCursor")
            if not isinstance(rows, list) or not isinstance(following, str | None):
                raise answer.error("shape", "the answer holds no list of skills")
            yield [row for row in rows if _is_row(row)]
            if not following or following == cursor:
                return
            cursor = following

    async def _absent(self, http: Http, key: str) -> Item:
        ids, slug = self._digests.ids(key), key.partition(" ")[0]
        owner = ids[0].removeprefix(f"{self._site}/").partition("/")[0] if ids else ""
        try:
            detail = await self._ask(http, slug, "", {"ownerHandle": owner} if owner else {})
        except HttpTerminal as error:
            if error.reason == "missing":
                return Gone(ids, "withdrawn", f"ClawHub no longer has {slug} (HTTP {error.status})")
            return Missed(ids, error.reason, str(error))
        return Gone(ids, "withdrawn", _JUDGED.format(slug)) if _is_malicious(detail) else Unchanged(ids)

    async def _ask(self, http: Http, slug: str, rest: str, params: Mapping[str, str]) -> Mapping[str, Any]:
        answer = await http.get(f"{self._base}/skills/{quote(slug, safe='')}{rest}", params=params)
        body = answer.json()
        if not isinstance(body, Mapping):
            raise answer.error("shape", "the answer is no object")
        return body

    async def _skill(
        self, http: Http, row: Mapping[str, Any], held: tuple[str, ...], path: Path
    ) -> list[Item]:
        try:
            return await self._read(http, row, held, path)
        except HttpTerminal as error:
            if error.reason != "missing":
                raise
            return [Gone(held, "withdrawn", f"ClawHub no longer shows {row['slug']} (HTTP {error.status})")]

    async def _detail(self, http: Http, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ClawHub says of a row's skill; of a slug that several owners have, that of its time."""
        slug, owner = row["slug"], row.get("ownerHandle")
        try:
            return await self._ask(http, slug, "", {"ownerHandle": owner} if isinstance(owner, str) else {})
        except HttpTerminal as error:
            for handle in _owners(error) if row.get("createdAt") is not None else ():
                with contextlib.suppress(HttpTerminal):
                    detail = await self._ask(http, slug, "", {"ownerHandle": handle})
                    if mapping_of(detail.get("skill")).get("createdAt") == row.get("createdAt"):
                        return detail
            raise

    async def _read(
        self, http: Http, row: Mapping[str, Any], held: tuple[str, ...], path: Path
    ) -> list[Item]:
        slug, detail = row["slug"], await self._detail(http, row)
        moderation = mapping_of(detail.get("moderation"))
        if _is_malicious(detail):
            return [Gone(held, "withdrawn", _JUDGED.format(slug))]
        handle = mapping_of(detail.get("owner")).get("handle") or row.get("ownerHandle")
        version = _version(row) or _version(detail)
        if not is_plain_path(handle) or "/" in str(handle) or not version:
            return [Dropped(held[0], self.spec, "malformed", f"{slug} has no owner's handle, or no version")]
        given = {"ownerHandle": str(handle)}
        told = await self._ask(http, slug, f"/versions/{quote(version, safe='')}", given)
        listed = mapping_of(told.get("version"))
        url = f"{self._base}/download?{urlencode({'slug': slug, 'version': version, **given})}"
        answer = await http.download(url, path, max_bytes=self._limits.bundle_bytes, roams=True)
        doc_id = f"{self._site}/{handle}/{slug}"
        if answer.headers.get("content-type", "").startswith("application/json"):
            why = f"{slug} lies in a repository on GitHub, not here"
            return [Dropped(doc_id, self.spec, "not-read", why)]
        unverified = Finding(UNVERIFIED, "warning", "ClawHub lists no digests of it")
        findings = [] if listed.get("files") else [unverified]
        findings += _verdict(moderation)
        findings += _verdict(mapping_of(listed.get("security") or told.get("security")))
        with opened(path, archive=True, limits=self._limits) as (entries, read):
            whole = [entry for entry in entries if entry.path != _INJECTED]
            if wrong := _mismatch(whole, read, listed.get("files")):
                raise HttpTerminal("digest-mismatch", url, f"{wrong}: {slug} {version} is not taken")
            found = next((r for r in plan(whole, doc_id, self.spec) if isinstance(r, BundledSkill)), None)
            if found is None or found.entry.folder:
                return [Missed((doc_id,), "no-skill", f"{slug} holds no {SKILL_FILE} at its root")]
            page = f"{self._base.removesuffix('/api/v1')}/{handle}/skills/{slug}"
            origin = {"url": page, "author": handle, "ref": version, "repo_licence": _LICENCE}
            raw = read_skill(found, read, self._limits, self.spec, **origin)
        return [replace(raw, findings=(*raw.findings, *findings)) if isinstance(raw, RawDocument) else raw]


def _owners(error: HttpTerminal) -> list[str]:
    matches: object = None
    if error.status == HTTPStatus.CONFLICT:
        with contextlib.suppress(ValueError, RecursionError):
            matches = mapping_of(load_json(error.body)).get("matches")
    handles = [mapping_of(m).get("ownerHandle") for m in matches] if isinstance(matches, list) else []
    return [handle for handle in handles[:_MOST_OWNERS] if isinstance(handle, str)]


def _is_malicious(detail: Mapping[str, Any]) -> bool:
    moderation = mapping_of(detail.get("moderation"))
    return moderation.get("isMalwareBlocked") is True or moderation.get("verdict") == "malicious"


def _is_row(row: object) -> bool:
    slug, updated = mapping_of(row).get("slug"), mapping_of(row).get("updatedAt")
    plain = isinstance(slug, str) and is_plain_path(slug) and "/" not in slug and " " not in slug
    return plain and isinstance(updated, int | float) and updated >= 0  # which no NaN is


def _key(row: Mapping[str, Any]) -> str:
    """Return what tells a skill from others of its slug: its owner may free it, and another take it."""
    return f"{row['slug']} {row.get('ownerHandle') or row.get('createdAt') or ''}"


def _version(row: Mapping[str, Any]) -> str:
    found = mapping_of(row.get("latestVersion")).get("version") or row.get("version")
    return found if isinstance(found, str) else str(mapping_of(row.get("tags")).get("latest") or "")


def _verdict(told: Mapping[str, Any]) -> list[Finding]:
    """Return the finding on what the registry says of a skill, unless it says nothing or that it is clean."""
    verdict = told.get("verdict") or told.get("status")
    if verdict not in ("suspicious", "malicious"):
        return []
    codes = told.get("reasonCodes")
    why = ", ".join(str(code)[:80] for code in codes[:10]) if isinstance(codes, list) else ""
    message = f"ClawHub has judged it as {verdict}" + (f": {why}" if why else "")
    return [Finding(VERDICT, "error" if verdict == "malicious" else "warning", message)]


def _mismatch(entries: list[SourceEntry], read: Reader, files: object) -> str:
    """Return what differs between an archive and the list of its files, if there is one; empty: nothing."""
    rows = [mapping_of(row) for row in files] if isinstance(files, list) else []
    stated = {str(row.get("path")): row.get("sha256") for row in rows if row.get("sha256")}
    by_path = {entry.path: entry for entry in entries if entry.kind == "file"}
    for path, digest in stated.items():
        if path not in by_path:
            return f"{path[:100]} is listed, and not in the archive"
        if read(by_path[path], 0).sha256 != digest:
            return f"{path[:100]} has another digest than listed"
    return f"{min(more)[:100]} is not listed" if stated and (more := by_path.keys() - stated.keys()) else ""
