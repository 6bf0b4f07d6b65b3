"""The registry of MCP servers: read completely every 30 days, and by its changes in between."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from storage.errors import WrongInput
from storage.schemas import Dropped, Listing, RawDocument
from tasks.crawl.http.responses import HttpTerminal
from tasks.crawl.source.base import CrawlContext, Gone, Item, RemoteSource, Unchanged, drain
from tasks.crawl.source.identity import hide_credentials, repository_name
from tasks.models.fields import mapping_of, text_of, time_of

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_OFFICIAL = "io.modelcontextprotocol.registry/official"
# A namespace and a name, each of letters, digits, dots, hyphens and underscores; none is only dots.
_PART = r"(?=[^/]*[A-Za-z0-9])(?!\.\.)[A-Za-z0-9._-]+"
_NAME = re.compile(rf"\A{_PART}(?:/{_PART})+")
_LONGEST_NAME = 200
FULL_DAYS = 30  # a complete reading finds what readings of changes missed
OVERLAP = timedelta(days=1)  # of two readings of changes: the registry's clock may differ from ours
_STATE = "state/crawl/mcp-registry.json"
_PAGE_ROWS = 100


def items_of(entry: object, source: str) -> Iterator[Listing | RawDocument | Gone | Dropped]:
    """Yield the listing and the document of an entry, or that it is gone or dropped.

    Entries have the form `{server: {name, description, repository, ...}, _meta: {...}}`.
    """
    server = mapping_of(entry).get("server")
    if not isinstance(server, Mapping):
        yield Dropped("", source, "malformed", "the entry is no object with a server in it")
        return
    name = server.get("name")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or ".." in name or not _NAME.fullmatch(name):
        detail = f"{str(name)[:_LONGEST_NAME]!r} is no name of the form namespace/name"
        yield Dropped("", source, "malformed", detail.encode("utf-8", "replace").decode())
        return
    doc_id, official = f"mcp/{name}", mapping_of(mapping_of(mapping_of(entry).get("_meta")).get(_OFFICIAL))
    if official.get("isLatest") is False:
        detail = f"version {text_of(server.get('version'))} is not the latest"
        yield Dropped(doc_id, source, "older-version", detail, lost_to=doc_id)
    elif official.get("status") == "deleted":
        yield Gone((doc_id,), "retired", "the registry has marked it as deleted")
    else:
        listing = _listing(name, server, official, source)
        yield listing
        content = {**server, "name": name, "description": listing.description or ""}
        path = text_of(mapping_of(server.get("repository")).get("subfolder"))
        yield server_document(doc_id, listing, content, repo=_repository(listing.url), path=path)


def _listing(name: str, server: Mapping[str, Any], official: Mapping[str, Any], source: str) -> Listing:
    repository = mapping_of(server.get("repository"))
    url = text_of(repository.get("url"))
    return Listing(
        source, source_id=name, kind="mcp-server", name=name, description=text_of(server.get("description")),
        author=name.partition("/")[0], url=hide_credentials(url) if url else None,
        repo_id=text_of(repository.get("id")),
        updated_at=time_of(official.get("updatedAt")) or time_of(official.get("publishedAt")),
    )  # fmt: skip


def server_document(
    doc_id: str, listing: Listing, server: Mapping[str, Any], *, repo: str | None, path: str | None
) -> RawDocument:
    """Return the document of a listed server; its content is `server` as JSON, keys sorted, without blanks.

    Half of a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
    """
    text = json.dumps(server, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    content = text.encode("utf-8", "replace")
    return RawDocument(
        doc_id=doc_id, source=listing.source, kind="mcp-server", content=content, size=len(content),
        raw_hash=hashlib.sha256(content).hexdigest(), repo=repo, repo_id=listing.repo_id, path=path,
        url=listing.url, author=listing.author, category=listing.category, tags=listing.tags,
    )  # fmt: skip


def _repository(url: str | None) -> str | None:
    try:
        return repository_name(url) if url else None
    except WrongInput:
        return None


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of reading, kept on disk; times are ISO 8601."""

    base: str  # the registry's base URL; progress with another URL does not count
    started: str | None = None  # when the reading under way began; None: there is none
    since: str | None = None  # it asks for changes after this time; None: for everything
    cursor: str | None = None  # of its next page; None: the first
    last_full: str | None = None  # when the last complete reading of everything began
    last_complete: str | None = None  # when the last complete reading, of everything or changes, began


class McpRegistrySource(RemoteSource):
    """The registry's servers as documents of kind `mcp-server`, each in its latest version."""

    def __init__(self, context: CrawlContext) -> None:
        super().__init__("mcp-registry", context)
        self._base = self._settings.mcp_registry_url.rstrip("/")
        self._reached: _Progress | None = None

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Do nothing: only the progress is remembered, and a server that is changed back is a change too."""

    def checkpoint(self) -> None:
        """Remember the pages that were yielded to their end."""
        if self._reached is not None:
            self._root.write_json(_STATE, asdict(self._reached))

    def read(self) -> Iterator[Item]:
        """Yield listings and documents, and the servers that the registry has deleted.

        A reading is complete at first and every 30 days; others ask for changes since the last began, and
        yield all other servers as unchanged. A reading that broke off goes on with its next page.
        """
        before = _Progress(**(self._root.read_json(_STATE) or {"base": self._base}))
        if before.base != self._base:
            before = _Progress(self._base)
        try:
            yield from drain(lambda: self._items(before))
        except GeneratorExit:
            # The caller wanted no more: the next reading begins where this one did.
            self._reached = before
            raise

    async def _items(self, held: _Progress) -> AsyncGenerator[Item, None]:
        async with self._client(self._base) as http:
            progress, (entries, following) = await self._begin(http, held)
            # The pages before a break are not read again: a server absent from the rest is not deleted.
            self.exhaustive = progress.since is None and progress.cursor is None
            met: set[str] = set()
            while True:
                for item in chain.from_iterable(items_of(entry, self.spec) for entry in entries):
                    if isinstance(item, Gone | RawDocument):
                        met.update(item.doc_ids if isinstance(item, Gone) else [item.doc_id])
                    yield item
                if following is None:
                    break
                progress = self._reached = replace(progress, cursor=following)
                entries, following = await self._page(http, progress)
        if progress.since is not None:
            yield Unchanged(tuple(sorted(self._present() - met)))
        whole = progress.started if progress.since is None else progress.last_full
        self._reached = _Progress(self._base, last_full=whole, last_complete=progress.started)

    async def _begin(self, http: Http, held: _Progress) -> tuple[_Progress, tuple[list[Any], str | None]]:
        """Return the reading to go on with and its page; a new reading if its cursor is refused."""
        if held.started is not None:
            try:
                return held, await self._page(http, held)
            except HttpTerminal as error:
                if error.reason not in ("refused", "missing"):
                    raise
        progress = self._started(held)
        return progress, await self._page(http, progress)

    def _started(self, held: _Progress) -> _Progress:
        """Return a reading that begins now: of everything if that is due, otherwise of the changes."""
        now = self._now
        full, last = (t and datetime.fromisoformat(t) for t in (held.last_full, held.last_complete))
        # After a clock was set back, a time may lie after now: then everything is read.
        due = not full or not timedelta() <= now - full < timedelta(FULL_DAYS) or bool(last and last > now)
        since = (last - OVERLAP).isoformat() if last and not due else None
        return replace(held, started=now.isoformat(), since=since, cursor=None)

    async def _page(self, http: Http, progress: _Progress) -> tuple[list[Any], str | None]:
        """Return the entries of a page and the cursor of the next, None after the last."""
        params = {"limit": str(_PAGE_ROWS), "version": "latest"}
        if progress.since is not None:
            params["updated_since"] = progress.since.replace("+00:00", "Z")
        if progress.cursor is not None:
            params["cursor"] = progress.cursor
        answer = await http.get(f"{self._base}/v0.1/servers", params=params)
        body = mapping_of(answer.json())
        entries, metadata = body.get("servers"), mapping_of(body.get("metadata"))
        if not isinstance(entries, list):
            raise HttpTerminal("shape", answer.url, "the answer holds no list of servers")
        following = metadata.get("nextCursor") or metadata.get("next_cursor") or None
        if following is not None and (not isinstance(following, str) or following == progress.cursor):
            raise HttpTerminal("shape", answer.url, f"{following!r} cannot be the cursor of a next page")
        return entries, following
