"""Claims to ids: an id belongs to the publisher that brought it first; another's document is kept apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import polars as pl

from storage.errors import StorageError, WrongInput
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, Dropped, Finding, RawDocument
from tasks.crawl.git.source import split_ref
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.base import Gone, Item, Missed, Unchanged
from tasks.crawl.source.identity import SAMPLE, doc_key, parse_remote, repository_name

T = TypeVar("T", bound=Item)
_FORGE = "forge"  # publishes what lies on forges: there an id names the repository itself
_HOSTED = ("git+", "github:", "skillsmp", "awesome:")
_FOLDER, _LOCAL = "folder ", "local/"
_KEPT = ("local/", "mcp/")  # begin ids of folders and of the registry's servers


def publisher(spec: str) -> str:
    """Return who publishes what a source brings: forges, a folder of this machine by its path, or itself."""
    if spec.startswith("dir:"):
        return f"{_FOLDER}{Path(spec[4:]).expanduser().resolve()}"
    if spec.startswith("git+file:"):
        path = Path(unquote(parse_remote(split_ref(spec[4:])[0]).path))
        return f"{_FOLDER}{(path.parent if path.name == '.git' else path).resolve()}"
    return _FORGE if spec.startswith((*_HOSTED, "mcp-registry")) else spec


class _Claim(NamedTuple):
    """A source's row of `seen`; of several the least is the first."""

    first_seen_at: datetime
    source: str
    raw_part: str
    doc_id: str


class Claims:
    """The ids of one source's documents, by what it and the others have brought, gone or not.

    A folder of this machine whose name another one has is `local/<name>~<6 hex of its path's SHA-256>`, an id
    that another publisher brought `<id>~<6 hex of the source's>`. The owners `local` and `mcp` of a forge are
    written with its host. One repository that several sources reach has one id.

    Args:
        root: The root.
        spec: The source.
        seen: The rows of `seen`, of all sources.
    """

    def __init__(self, root: Root, spec: str, seen: pl.DataFrame) -> None:
        self._root, self._spec, self._publisher = root, spec, publisher(spec)
        self._mark = hashlib.sha256(self._publisher.removeprefix(_FOLDER).encode()).hexdigest()[:6]
        whose = {other: publisher(other) for other in seen["source"].unique()}
        self._places = {other for other, name in whose.items() if _is_place(name)}
        self._is_place = _is_place(self._publisher)
        own = pl.col("source").is_in([other for other, name in whose.items() if name == self._publisher])
        begin = _LOCAL if self._is_place else ""
        near = seen.filter(pl.col("doc_id").str.to_lowercase().str.starts_with(begin))
        self._rivals = self._first(near.filter(~own))
        # Where nobody else claims anything, nothing need be known.
        self._kin = self._first(near.filter(own)) if self._rivals else {}
        self._mine = set(seen.filter(source=spec)["doc_id"])
        self._given: dict[str, str] = {}

    def _first(self, rows: pl.DataFrame) -> dict[str, _Claim]:
        """Return the first claim to each id and, where folders count, to each `local/<name>`."""
        found: dict[str, _Claim] = {}
        for claim in map(_Claim._make, rows.select(*_Claim._fields).iter_rows()):
            key = doc_key(claim.doc_id)
            whole = key.startswith(_LOCAL) and (self._is_place or claim.source in self._places)
            for name in (key, *([_folder(key)] if whole else [])):
                found[name] = min(claim, found.get(name, claim))
        return found

    def own(self, doc_id: str, url: str | None = None) -> str:
        """Return the id of the document that the source calls `doc_id`; `url` is where it says it lies."""
        own = self._own(doc_id, url)
        if own != doc_id:
            self._given[own] = doc_id
        return own

    def _own(self, doc_id: str, url: str | None) -> str:
        key = doc_key(doc_id)
        if key.startswith(_KEPT) and self._spec.startswith(_HOSTED) and not self._is_place:
            return f"github.com/{doc_id}"
        if self._is_place and key.startswith(_LOCAL):
            folder = _folder(doc_id)
            marked = f"{folder}~{self._mark}"
            held = any(doc_key(f"{mine}/").startswith(doc_key(f"{marked}/")) for mine in self._mine)
            return marked + doc_id[len(folder) :] if held or self._is_rivals(_folder(key), url) else doc_id
        if doc_id in self._mine and doc_id.endswith(f"~{self._mark}"):
            return doc_id
        marked = f"{doc_id}~{self._mark}"
        rival = self._is_rivals(key, url) or (key.startswith(_LOCAL) and self._is_rivals(_folder(key), url))
        return marked if marked in self._mine or rival else doc_id

    def _is_rivals(self, key: str, url: str | None) -> bool:
        """Tell whether an id, or a folder, belongs to another publisher."""
        rival, kin = self._rivals.get(key), self._kin.get(key)
        if rival is None or (kin is not None and kin < rival):
            return False
        if publisher(rival.source) == _FORGE:
            return not _names(url, key)
        return not (self._publisher == _FORGE and _names(self._url(rival), key))

    def _url(self, claim: _Claim) -> str | None:
        found = self._snapshot(claim.doc_id, claim.source, claim.raw_part)
        return None if found is None else found.url

    def _snapshot(self, doc_id: str, source: str, raw_part: str) -> RawDocument | None:
        try:
            rows = read_frame(self._root, raw_part, RAW_DOCUMENTS)
        except StorageError:
            return None
        found = rows.filter(doc_id=doc_id, source=source)
        return raw_document(found.row(-1, named=True)) if found.height else None

    def given(self, doc_ids: list[str]) -> list[str]:
        """Return the ids by which the source itself calls documents."""
        return [self._given.get(doc_id, doc_id) for doc_id in doc_ids]

    def owned(self, item: T) -> T:
        """Return an item of the source with ids of its own; what is kept apart has a finding."""
        if isinstance(item, RawDocument):
            own = self.own(item.doc_id, item.url)
            repo = item.repo
            if own != item.doc_id and repo and own.endswith(rest := item.doc_id[len(repo) :]):
                repo = own[: len(own) - len(rest)]
            apart = f"{item.doc_id} belongs to what brought it first; this is the document of {self._spec}"
            found = (
                [Finding("identity.apart", "warning", apart)]
                if own.find("~") != item.doc_id.find("~")
                else []
            )
            return replace(item, doc_id=own, repo=repo, findings=(*item.findings, *found))
        if isinstance(item, Dropped):
            return replace(
                item, doc_id=self.own(item.doc_id), lost_to=item.lost_to and self.own(item.lost_to)
            )
        if isinstance(item, Unchanged | Missed | Gone):
            return replace(item, doc_ids=tuple(map(self.own, item.doc_ids)))
        return item

    def moved(self, rows: list[dict[str, object]]) -> Iterator[tuple[str, RawDocument]]:
        """Yield, of rows of `seen` that an earlier version wrote under another's ids, id and document."""
        for row in rows:
            doc_id, part = str(row["doc_id"]), str(row["raw_part"])
            if self.own(doc_id) != doc_id and (raw := self._snapshot(doc_id, self._spec, part)):
                own = self.owned(raw)
                if own.doc_id != doc_id and own.doc_id not in self._mine:
                    yield doc_id, own


def _is_place(name: str) -> bool:
    return name == SAMPLE or name.startswith(_FOLDER)


def _folder(doc_id: str) -> str:
    return "/".join(doc_id.split("/")[:2])


def _names(url: str | None, key: str) -> bool:
    """Tell whether a URL leads into the repository that an id begins with."""
    parts = key.split("/")
    count = 3 if "." in parts[0] else 2
    try:
        return url is not None and doc_key(repository_name(url)).split("/")[:count] == parts[:count]
    except WrongInput:
        return False
