"""Reads `awesome:PATH-or-URL`, an awesome list: MCP servers that people collected, in Markdown."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from storage.errors import SourceError, WrongInput
from storage.schemas import Dropped, Listing, RawDocument
from tasks.crawl.mcp.registry import server_document
from tasks.crawl.source.base import CrawlContext, Item, RemoteSource, Unchanged, drain
from tasks.crawl.source.identity import (
    doc_key,
    hide_credentials,
    make_doc_id,
    parse_github_url,
    parse_remote,
    public_url,
)

_LINK = r"\[(?P<name>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<url>(?:[^()\s]|\([^()\s]*\))*)(?:\s+\"[^\"]*\")?\)"
_BULLET = r"^\s*(?:[-*+]|\d+[.)])\s"
_CONTINUED = re.compile(rf"\A(?!{_BULLET})[ \t]\s*\S")
_ENTRY = re.compile(
    rf"{_BULLET}\s*(?:<[^>]*>\s*)*(?P<mark>\*\*|__)?{_LINK}(?(mark)(?:\*\*|__)?)(?P<rest>.*)$"
)
_HEADING = re.compile(r"^(?P<level>#{1,6})\s+(?P<title>\S.*)$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_BADGE = re.compile(r"\[!\[[^\]]{0,200}\]\([^)]{0,500}\)\]\([^)]{0,500}\)|!\[[^\]]{0,200}\]\([^)]{0,500}\)")
_TAG = re.compile(r"<[^>]{0,500}>")
_LINKED = re.compile(r"\[([^\]]{0,200})\]\([^)]{0,500}\)")
_GAP = re.compile(r"\A[\s\uFE0F/,|)\-–—:]+")  # what people put between flags, and before a description
_SYMBOL = re.compile(r"[#*0-9]\uFE0F?\u20E3|\S\uFE0F?(?:\u200D\S\uFE0F?)*")  # keycaps, joined ones too
_VARIATION = "\ufe0f"
# The meaning of the flags of awesome-mcp-servers, from its own legend.
_LEGEND = {
    "🎖": "official", "🐍": "python", "📇": "typescript", "🏎": "go", "🦀": "rust", "#⃣": "csharp",
    "☕": "java", "🌊": "cpp", "💎": "ruby", "☁": "cloud", "🏠": "local", "📟": "embedded", "🍎": "macos",
    "🪟": "windows", "🐧": "linux",
}  # fmt: skip
# Sections, case-folded, whose entries are about servers but are no servers.
_ABOUT = {
    "clients", "community", "contributing", "frameworks", "legend", "resources", "tips & tricks",
    "tips and tricks", "tutorials", "utilities",
}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RULES = 1  # raised when the same text yields other rows: older ETags are then ignored
_LARGEST = 20_000_000  # bytes
_RAW_HOST = "raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One item of a list."""

    line: int  # the number of its line, from 1
    name: str  # the text of its link
    url: str
    flags: tuple[str, ...]  # the symbols before its description, such as 🐍, without variation selectors
    description: str  # one line; may be empty
    sections: tuple[str, ...]  # the headings above it, outermost first


def entries(text: str) -> Iterator[ListEntry]:
    """Yield the items of a list that begin with a link to another page.

    The link may be bold and have a logo before it; flags, a dash, both or nothing separate it from the
    description. Indented lines that follow belong to the description.
    """
    headings: dict[int, str] = {}
    last: ListEntry | None = None
    for number, line in enumerate(_outside_code(text), start=1):
        if last is not None and _CONTINUED.match(line):
            last = replace(last, description=f"{last.description} {line.strip()}".strip())
            continue
        if last is not None:
            yield last
            last = None
        if heading := _HEADING.match(line):
            level = len(heading["level"])
            headings = {above: title for above, title in headings.items() if above < level}
            headings[level] = _flags(_plain(heading["title"]))[1]
        elif (item := _ENTRY.match(line)) and not item["url"].startswith("#"):
            flags, description = _flags(_BADGE.sub("", item["rest"]))
            name, sections = " ".join(item["name"].split()), tuple(headings.values())
            last = ListEntry(number, name, item["url"], flags, description, sections)
    if last is not None:
        yield last


def _outside_code(text: str) -> Iterator[str]:
    fenced = False
    for line in text.split("\n"):
        fenced ^= _FENCE.match(line) is not None
        yield "" if fenced else line


def _flags(text: str) -> tuple[tuple[str, ...], str]:
    found: list[str] = []
    rest = _GAP.sub("", text)
    while match := _SYMBOL.match(rest):
        symbol = match[0].replace(_VARIATION, "")
        if unicodedata.category(symbol[-1]) not in ("So", "Me"):
            break
        found.append(symbol)
        rest = _GAP.sub("", rest[match.end() :])
    return tuple(found), rest.strip()


def _plain(heading: str) -> str:
    return _LINKED.sub(r"\1", _TAG.sub("", _BADGE.sub("", heading.rstrip(" \t\r#"))))


class _Place(NamedTuple):
    doc_id: str
    author: str | None = None
    repo: str | None = None
    ref: str | None = None
    folder: str | None = None


def servers_of(text: str, source: str) -> Iterator[Listing | RawDocument | Dropped]:
    """Yield a listing and a document for each server of a list in Markdown, and the dropped entries.

    An entry is dropped as `no-url` if its link is no web address, as `not-a-server` in a section about other
    things, and as `duplicate_id` if an earlier entry has its repository and folder.
    """
    first: dict[str, str] = {}
    for entry in entries(text):
        place, at = _place(entry.url), f"line {entry.line}, {entry.name}"
        if place is None:
            shown = repr(hide_credentials(entry.url)[:100])
            yield Dropped("", source, "no-url", f"{at}: {shown} is no address of a page")
            continue
        known = first.get(doc_key(place.doc_id))
        if about := [s for s in entry.sections if s.casefold() in _ABOUT]:
            # Without a doc_id: a server that was moved to this section is to be retired.
            yield Dropped("", source, "not-a-server", f"{at}, {place.doc_id}: stands under {about[0]}")
        elif known is not None:
            yield Dropped(place.doc_id, source, "duplicate_id", at, lost_to=known)
        else:
            first[doc_key(place.doc_id)] = place.doc_id
            yield from _server(entry, place, source)


def _server(entry: ListEntry, place: _Place, source: str) -> Iterator[Listing | RawDocument]:
    url = hide_credentials(entry.url)
    section = entry.sections[-1] if entry.sections else None
    tags = tuple(dict.fromkeys(_LEGEND[f] for f in entry.flags if f in _LEGEND))
    listing = Listing(
        source, place.doc_id, kind="mcp-server", name=entry.name or None,
        description=entry.description or None, author=place.author, url=url, category=section, tags=tags,
    )  # fmt: skip
    yield listing
    server = {
        "name": entry.name, "description": entry.description, "url": url, "section": section,
        "flags": list(entry.flags),
    }  # fmt: skip
    document = server_document(place.doc_id, listing, server, repo=place.repo, path=place.folder)
    yield replace(document, ref=place.ref)


def _place(url: str) -> _Place | None:
    """Return the target of a link, None where it is no http(s) address."""
    found = parse_github_url(url)
    if found is not None:
        # The shortest ref is assumed, since asking for the branches would cost a request for each entry.
        ref, folder = found.candidates()[0] if found.rest else (None, "")
        doc_id = make_doc_id(found.repository, folder)
        return _Place(doc_id, found.owner, found.repository, ref, folder or None)
    try:
        split = urlsplit(url)
        host = split.hostname
    except ValueError:
        return None
    if split.scheme not in ("http", "https") or not host:
        return None
    parts = [p for p in unquote(split.path).split("/") if p not in {"", ".", ".."}]
    parts = [*parts[:-1], re.sub(r"(?<=.)\.git$", "", parts[-1])] if parts else []
    doc_id = "/".join([host, *parts])
    return None if _CONTROL.search(doc_id) else _Place(doc_id, parts[0] if len(parts) > 1 else None)


def normal_location(location: str) -> str:
    """Return where a list is as its spec is remembered; a user or password in it raises WrongInput."""
    if "://" not in location:
        return str(Path(location).expanduser().absolute())
    if parse_remote(location).user:
        raise WrongInput(f"awesome:{public_url(location)}: a spec may hold no user or password")
    return public_url(location)


class AwesomeListSource(RemoteSource):
    """The servers of a list, each entry a document of kind `mcp-server`; one that leaves the list is gone.

    `location` is a local path, or an http(s) URL of the Markdown itself; another scheme raises WrongInput.
    """

    exhaustive = True

    def __init__(self, location: str, context: CrawlContext) -> None:
        self._remote = "://" in location
        if self._remote and urlsplit(location).scheme not in ("http", "https"):
            shown = hide_credentials(location)
            raise WrongInput(f"awesome:{shown}: give a path, or an address with http:// or https://")
        super().__init__(f"awesome:{public_url(location) if self._remote else location}", context)
        self._location = location
        self._reached: dict[str, object] | None = None  # the list that was read to its end
        name = hashlib.sha256(self.spec.encode()).hexdigest()[:16]
        self._state = f"state/crawl/awesome-{name}.json"

    def version(self) -> str | None:
        """Return the SHA-256 of a local file; None for a URL, of which an ETag is kept instead."""
        return None if self._remote else hashlib.sha256(self._file()).hexdigest()

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget the list that was read before if any of its documents is about to change."""
        if doc_ids:
            self._root.delete(self._state)

    def checkpoint(self) -> None:
        """Remember the list that was read to its end."""
        if self._reached is not None:
            self._root.write_json(self._state, self._reached)

    def read(self) -> Iterator[Item]:
        """Yield a listing and a document for each entry, in the list's order, and the dropped entries.

        Reasons of SourceError: `missing` or `unreadable`: the file; `html`: a web page instead of Markdown;
        `no-entries`: it contains no entry; otherwise that of the HTTP client.
        """
        if not self._remote:
            yield from self._rows(self._file())
            return
        yield from drain(self._fetched)

    def _file(self) -> bytes:
        path = Path(self._location).expanduser()
        if not path.is_file():
            raise SourceError(self.spec, "missing", "there is no such file; check the path")
        try:
            return path.read_bytes()
        except OSError as error:
            raise SourceError(self.spec, "unreadable", error.strerror or str(error)) from error

    async def _fetched(self) -> AsyncGenerator[Item, None]:
        held = self._root.read_json(self._state) or {}
        etag = held.get("etag") if held.get("rules") == _RULES else None
        async with self._client(self._address()) as http:
            answer = await http.get(self._address(), etag=etag, max_bytes=_LARGEST)
        if answer.status == 304:
            yield Unchanged(tuple(sorted(self._present())))
            return
        if answer.headers.get("content-type", "").startswith("text/html"):
            detail = "this is a page for people; give the address of the Markdown itself"
            raise SourceError(self.spec, "html", detail)
        for row in self._rows(answer.body):
            yield row
        self._reached = {"rules": _RULES, "etag": answer.headers.get("etag")}

    def _address(self) -> str:
        """Return the URL to request: files on GitHub come from `github_raw_url`, which may be a mirror."""
        split = urlsplit(self._location)
        if split.hostname != _RAW_HOST:
            return self._location
        return f"{self._settings.github_raw_url.rstrip('/')}{split.path}"

    def _rows(self, body: bytes) -> Iterator[Item]:
        row = None
        for row in servers_of(body.decode("utf-8-sig", "replace"), self.spec):
            yield row
        if row is None:
            # An empty list would retire every document of the last reading.
            detail = "no list item in it begins with a link: this is no awesome list"
            raise SourceError(self.spec, "no-entries", detail)
