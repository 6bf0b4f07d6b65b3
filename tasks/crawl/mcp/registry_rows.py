"""Turns rows of the MCP registry into listings and documents of kind `mcp-server`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from storage.errors import WrongInput
from storage.schemas import Dropped, Listing, RawDocument
from tasks.crawl.source.fields import text_of, time_of
from tasks.crawl.source.identity import hide_credentials, repository_name
from tasks.crawl.source.protocol import Gone

_OFFICIAL = "io.modelcontextprotocol.registry/official"
# A namespace and a name, each of letters, digits, dots, hyphens and underscores; none is only dots.
_PART = r"(?=[^/]*[A-Za-z0-9])(?!\.\.)[A-Za-z0-9._-]+"
_NAME = re.compile(rf"{_PART}(?:/{_PART})+")
_LONGEST_NAME = 200


def items_of(entry: object, source: str) -> Iterator[Listing | RawDocument | Gone | Dropped]:
    """Yield the listing and the document of an entry, or that it is gone or dropped.

    Entries have the form `{server: {name, description, repository, ...}, _meta: {...}}`.
    """
    server = entry.get("server") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(server, Mapping):
        yield Dropped("", source, "malformed", "the entry is no object with a server in it")
        return
    name = server.get("name")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or ".." in name or not _NAME.fullmatch(name):
        detail = f"{str(name)[:_LONGEST_NAME]!r} is no name of the form namespace/name"
        yield Dropped("", source, "malformed", detail.encode("utf-8", "replace").decode())
        return
    doc_id, official = f"mcp/{name}", _object(_object(entry.get("_meta")).get(_OFFICIAL))
    if official.get("isLatest") is False:
        detail = f"version {text_of(server.get('version'))} is not the latest"
        yield Dropped(doc_id, source, "older-version", detail, lost_to=doc_id)
    elif official.get("status") == "deleted":
        yield Gone((doc_id,), "retired", "the registry has marked it as deleted")
    else:
        listing = _listing(name, server, official, source)
        yield listing
        content = {**server, "name": name, "description": listing.description or ""}
        path = text_of(_object(server.get("repository")).get("subfolder"))
        yield server_document(doc_id, listing, content, repo=_repository(listing.url), path=path)


def _listing(name: str, server: Mapping[str, Any], official: Mapping[str, Any], source: str) -> Listing:
    repository = _object(server.get("repository"))
    url = text_of(repository.get("url"))
    return Listing(
        source,
        source_id=name,
        kind="mcp-server",
        name=name,
        description=text_of(server.get("description")),
        author=name.partition("/")[0],
        url=hide_credentials(url) if url else None,
        repo_id=text_of(repository.get("id")),
        updated_at=time_of(official.get("updatedAt")) or time_of(official.get("publishedAt")),
    )


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


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
