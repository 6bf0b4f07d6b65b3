"""Rows of an awesome list as listings and documents of kind `mcp-server`."""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from storage.schemas import Dropped, Listing, RawDocument
from tasks.crawl.mcp.registry_rows import server_json
from tasks.crawl.source.github_url import parse_github_url
from tasks.crawl.source.identity import doc_key, hide_credentials, make_doc_id

_LINK = r"\[(?P<name>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<url>(?:[^()\s]|\([^()\s]*\))*)(?:\s+\"[^\"]*\")?\)"
_BULLET = r"^\s*(?:[-*+]|\d+[.)])\s"
_ITEM = re.compile(_BULLET)
_ENTRY = re.compile(
    rf"{_BULLET}\s*(?:<[^>]*>\s*)*(?P<mark>\*\*|__)?{_LINK}(?(mark)(?:\*\*|__)?)(?P<rest>.*)$"
)
_HEADING = re.compile(r"^(?P<level>#{1,6})\s+(?P<title>\S.*)$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_BADGE = re.compile(r"\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)|!\[[^\]]*\]\([^)]*\)")
_TAG = re.compile(r"<[^>]*>")
_LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BETWEEN = frozenset("/,|)-–—:")  # what people put between flags, and before a description
_SYMBOL = re.compile(r"[#*0-9]\uFE0F?\u20E3|\S\uFE0F?(?:\u200D\S\uFE0F?)*")  # keycaps, joined ones too
_VARIATION = "\ufe0f"


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One item of a list.

    Args:
        line: Where it stands, from 1.
        name: The text of its link.
        url: The link.
        flags: The symbols before its description, without variation selectors.
        description: One line; may be empty.
        sections: The headings above it, outermost first.
    """

    line: int
    name: str
    url: str
    flags: tuple[str, ...]
    description: str
    sections: tuple[str, ...]


def entries(text: str) -> Iterator[ListEntry]:
    """Yield the items of a list that begin with a link, but for links into the page itself.

    Between the link and the description stand flags, a dash, both or nothing; the link may be bold, and a
    logo may stand before it. Indented lines that follow belong to the description.
    """
    headings: dict[int, str] = {}
    fenced = False
    last: ListEntry | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        fenced ^= _FENCE.match(line) is not None
        if last is not None and not fenced and _continues(line):
            last = replace(last, description=f"{last.description} {line.strip()}".strip())
            continue
        if last is not None:
            yield last
        last = None
        if fenced:
            continue
        if heading := _HEADING.match(line):
            level = len(heading["level"])
            headings = {k: v for k, v in headings.items() if k < level} | {
                level: _title(heading["title"].rstrip(" \t\r#"))
            }
        elif (item := _ENTRY.match(line)) and not item["url"].startswith("#"):
            sections = tuple(headings[level] for level in sorted(headings))
            last = _entry(number, item["name"], item["url"], item["rest"], sections)
    if last is not None:
        yield last


def _continues(line: str) -> bool:
    return line[:1] in {" ", "\t"} and bool(line.strip()) and not _ITEM.match(line)


def _entry(line: int, name: str, url: str, rest: str, sections: tuple[str, ...]) -> ListEntry:
    flags, description = _flags(_BADGE.sub("", rest))
    return ListEntry(line, " ".join(name.split()), url, flags, description, sections)


def _flags(text: str) -> tuple[tuple[str, ...], str]:
    """Split the symbols that a text begins with, and what stands between them, from the rest of it."""
    found: list[str] = []
    position = 0
    while match := _SYMBOL.match(text, position := _next(text, position)):
        symbol = match[0].replace(_VARIATION, "")
        if unicodedata.category(symbol[-1]) not in ("So", "Me"):
            break
        found.append(symbol)
        position = match.end()
    return tuple(found), text[position:].strip()


def _next(text: str, position: int) -> int:
    between = (c.isspace() or c == _VARIATION or c in _BETWEEN for c in text[position:])
    return position + sum(itertools.takewhile(bool, between))


def _title(heading: str) -> str:
    """Return a heading's words, without anchors, badges, links and the symbols it begins with."""
    return _flags(_LINKED.sub(r"\1", _TAG.sub("", _BADGE.sub("", heading))))[1]


# What the flags of awesome-mcp-servers stand for, by its own legend.
_LEGEND = {
    "🎖": "official", "🐍": "python", "📇": "typescript", "🏎": "go", "🦀": "rust", "#⃣": "csharp",
    "☕": "java", "🌊": "cpp", "💎": "ruby", "☁": "cloud", "🏠": "local", "📟": "embedded", "🍎": "macos",
    "🪟": "windows", "🐧": "linux",
}  # fmt: skip
# Sections, case folded, whose entries are about servers but are none.
_ABOUT = {
    "clients", "community", "contributing", "frameworks", "legend", "resources", "tips & tricks",
    "tips and tricks", "tutorials", "utilities",
}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class _Place:
    """What a link names: an id, and for github.com the repository, the ref and the folder in it."""

    doc_id: str
    author: str | None = None
    repo: str | None = None
    ref: str | None = None
    folder: str | None = None


def servers_of(text: str, source: str) -> Iterator[Listing | RawDocument | Dropped]:
    """Yield a listing and a document for each server of a list, in its order, and why an entry is none.

    An entry is dropped as `no-url` where its link leads to no other page, as `not-a-server` in a section
    about other things, and as `duplicate_id` where an earlier one has its repository and folder.

    Args:
        text: The list, Markdown.
        source: The spec of the source.
    """
    first: dict[str, str] = {}
    for entry in entries(text):
        place, at = _place(entry.url), f"line {entry.line}, {entry.name}"
        if place is None:
            yield Dropped("", source, "no-url", f"{at}: {_short(entry.url)} is no address of a page")
            continue
        known = first.get(doc_key(place.doc_id))
        if about := [s for s in entry.sections if s.casefold() in _ABOUT]:
            # Without its id: a server that was moved here is gone from the list of servers.
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
    content = server_json({
        "name": entry.name, "description": entry.description, "url": url, "section": section,
        "flags": list(entry.flags),
    })  # fmt: skip
    yield Listing(
        source=source,
        source_id=place.doc_id,
        kind="mcp-server",
        name=entry.name or None,
        description=entry.description or None,
        author=place.author,
        url=url,
        category=section,
        tags=tags,
    )
    yield RawDocument(
        doc_id=place.doc_id,
        kind="mcp-server",
        source=source,
        content=content,
        size=len(content),
        raw_hash=hashlib.sha256(content).hexdigest(),
        repo=place.repo,
        ref=place.ref,
        path=place.folder,
        url=url,
        author=place.author,
        category=section,
        tags=tags,
    )


def _place(url: str) -> _Place | None:
    """Return what a link names, None where it is no http(s) address."""
    found = parse_github_url(url)
    if found is not None:
        # Which part of a longer path is the ref is not asked for: a branch here has no slash in its name.
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


def _short(text: str) -> str:
    return repr(hide_credentials(text)[:100])
