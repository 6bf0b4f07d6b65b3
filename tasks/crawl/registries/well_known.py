"""The source `well-known:URL`: a site's skills by its discovery index, in either version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from storage.errors import WrongInput
from storage.schemas import Dropped
from tasks.crawl.http.responses import Answer, HttpTerminal, is_page, web_url
from tasks.crawl.registries.artifact import fetch, opened, read_file
from tasks.crawl.registries.digested import DigestedSource, Fetched
from tasks.crawl.registries.discovery import INDEX, OLDER_INDEX, SKILL_FILE, Entry, NoIndex, read_index
from tasks.crawl.source.base import CrawlContext, Item, Missed, Unchanged, in_order
from tasks.crawl.source.bundle import BundledSkill, Reader, SourceEntry, plan, read_skill

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_AHEAD = 4  # artifacts under way at once
_LARGEST_INDEX = 50_000_000  # bytes


def normal_url(url: str) -> str:
    """Return `URL` or `HOST` as its spec is remembered; raise WrongInput if it is no web address."""
    whole = url if "://" in url else f"https://{url}"
    try:
        return str(web_url(whole)).rstrip("/")
    except HttpTerminal as error:
        raise WrongInput(f"{error}: give https://HOST or https://HOST/PATH") from error


def site_of(url: str) -> str:
    """Return what the ids of a site's skills begin with: its host, without the port, and its path."""
    split = urlsplit(url)
    path = split.path.partition("/.well-known/")[0].strip("/")
    return "/".join(filter(None, (split.hostname or "", path)))


class WellKnownSource(DigestedSource):
    """The skills of a site's index; each artifact has the digest that the index states, or is not taken.

    With `names` only those skills are read, of which an index may hold many thousand.
    """

    def __init__(self, url: str, context: CrawlContext, names: Collection[str] | None = None) -> None:
        self._url, self._names = normal_url(url), names
        super().__init__(f"well-known:{self._url}", context)
        self._site = site_of(self._url)

    async def _items(self) -> AsyncGenerator[Item, None]:
        async with self._client(self._url) as http:
            answer, where = await self._index(http)
            if answer.status == 304:
                yield Unchanged(tuple(sorted(self._present())))
                return
            try:
                entries, refused = read_index(answer.json(), where)
            except NoIndex as error:
                raise answer.error("shape", str(error)) from error
            for name, why in refused:
                yield Dropped(f"{self._site}/{name}", self.spec, "malformed", why)
            whole = True

            async def one(entry: Entry) -> Fetched:
                doc_id, take = f"{self._site}/{entry.name}", self._artifact if entry.digest else self._files
                return await self._digests.fetched(
                    entry.name, entry.digest, doc_id, lambda at: take(http, entry, doc_id, at)
                )

            entries = [e for e in entries if self._names is None or e.name in self._names]
            async for item in self._digests.taken(in_order(one, entries, _AHEAD)):
                whole = whole and not isinstance(item, Missed)
                yield item
            # The files of an index without digests may change while it does not.
            if whole and where.endswith(INDEX):
                self._digests.end(index=where, etag=answer.headers.get("etag"))

    async def _index(self, http: Http) -> tuple[Answer, str]:
        """Return the first index that is there, and where; an empty 304 if it is as it was."""
        known, base = self._digests.marks.get("index"), web_url(self._url)
        places = [f"{self._url}/{path}" for path in (INDEX, OLDER_INDEX)]
        places += [f"{base.origin()}/{path}" for path in (INDEX, OLDER_INDEX)]
        if self._url.endswith("/index.json"):
            places = [self._url]
        error: HttpTerminal | None = None
        for place in dict.fromkeys([known, *places] if known in places else places):
            etag = self._digests.marks.get("etag") if place == known else None
            try:
                answer = await http.get(place, etag=etag, max_bytes=_LARGEST_INDEX, roams=True)
            except HttpTerminal as failure:
                if failure.reason not in ("missing", "html"):
                    raise
                error = error or failure
                continue
            if not is_page(answer.headers, answer.body):  # some sites answer everything with a page
                return answer, place
        detail = f"no index of skills is at {' or '.join(dict.fromkeys(places))}"
        raise HttpTerminal("missing", self._url, detail) from error

    async def _artifact(self, http: Http, entry: Entry, doc_id: str, folder: Path) -> list[Item]:
        path = folder / "artifact"
        await fetch(http, entry.url, path, entry.digest, self._limits)
        with opened(path, archive=entry.kind == "archive", limits=self._limits) as (entries, read):
            return self._skills(entries, read, entry, doc_id)

    async def _files(self, http: Http, entry: Entry, doc_id: str, folder: Path) -> list[Item]:
        """Return the skill of an entry without digest: each of its files is fetched every time."""
        room = self._limits.bundle_bytes
        entries: list[SourceEntry] = []
        for number, name in enumerate(entry.files):
            path = folder / str(number)
            await http.download(f"{entry.url}{quote(name)}", path, max_bytes=max(room, 0), roams=True)
            entries.append(SourceEntry(name, key=str(path), size=path.stat().st_size))
            room -= entries[-1].size
        return self._skills(entries, read_file, entry, doc_id)

    def _skills(self, entries: list[SourceEntry], read: Reader, entry: Entry, doc_id: str) -> list[Item]:
        rows = plan(entries, doc_id, self.spec)
        if not any(isinstance(row, BundledSkill) and not row.entry.folder for row in rows):
            return [Missed((doc_id,), "no-skill", f"{entry.url} holds no {SKILL_FILE} at its root")]
        author = urlsplit(self._url).hostname
        url = entry.url if entry.digest else f"{entry.url}{SKILL_FILE}"
        origin = {"url": url, "author": author, "tree_sha": entry.digest}
        return [read_skill(row, read, self._limits, self.spec, **origin) for row in rows]
