"""Claims to ids: an id belongs to the publisher that brought it first; another's document is kept apart."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
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
_HOSTED = ("git+", "github:", "skillsmp", "awesome:", "marketplace:", "skillssh:")
_FOLDER, _LOCAL = "folder ", "local/"
_KEPT = ("local/", "mcp/")  # begin ids of folders and of the registry's servers


def publisher(spec: str) -> str:
    """Return who publishes what a source brings: forges, a folder of this machine by its path, or itself."""
    if spec.startswith("dir:"):
        return f"{_FOLDER}{Path(spec[4:]).expanduser().resolve()}"
    if spec.startswith(("git+file:", "marketplace:file:")):
        address = spec.removeprefix("git+").removeprefix("marketplace:")
        path = Path(unquote(parse_remote(split_ref(address)[0]).path))
        return f"{_FOLDER}{(path.parent if path.name == '.git' else path).resolve()}"
    return _FORGE if spec.startswith((*_HOSTED, "mcp-registry")) else spec


class _Claim(NamedTuple):
    """A source's row of `seen`, by its place in the order of time: of several the least is the first."""

    order: int
    source: str
    raw_part: str
    doc_id: str


class _Brought(NamedTuple):
    """What a source says of a document: where it lies, and what its bytes are."""

    url: str | None
    raw_hash: str
    files: frozenset[tuple[str, str]]  # paths and digests


class Claims:
    """The ids of one source's documents, by what it and the others have brought, gone or not.

    A folder of this machine whose name another one has is `local/<name>~<6 hex of its path's SHA-256>`, an id
    that another publisher brought `<id>~<6 hex of the source's>`. The owners `local` and `mcp` of a forge are
    written with its host. One repository that several sources reach has one id.

    What a row of a table says of its URL is no proof. It has the id of a forge's document that it names
    only while its bytes are the forge's as they are held; from then on it is kept apart for good, also where
    it came before the forge. A row that names no repository keeps an id that it brought first.

    `seen` has the rows of all sources.
    """

    def __init__(self, root: Root, spec: str, seen: pl.DataFrame) -> None:
        self._root, self._spec, self._publisher = root, spec, publisher(spec)
        digest = hashlib.sha256(self._publisher.removeprefix(_FOLDER).encode()).hexdigest()
        # Whoever guesses the first and brings an id with it before has that id; the last is not guessed.
        self._marks = [digest[:digits] for digits in (6, 16, 64)]
        whose = {other: publisher(other) for other in seen["source"].unique()}
        self._places = {other for other, name in whose.items() if _is_place(name)}
        self._is_place = _is_place(self._publisher)
        own = pl.col("source").is_in([other for other, name in whose.items() if name == self._publisher])
        begin = _LOCAL if self._is_place else ""
        near = seen.filter(pl.col("doc_id").str.to_lowercase().str.starts_with(begin))
        # Python's times are slow to make: an order stands for them.
        near = near.sort("first_seen_at", "source", "raw_part", "doc_id").with_row_index("order")
        self._rivals = self._first(near.filter(~own))
        # Where nobody else claims anything, nothing need be known.
        self._kin = self._first(near.filter(own)) if self._rivals else {}
        self._mine = set(seen.filter(source=spec)["doc_id"])
        self._folders = {_folder(doc_id) for doc_id in self._mine}
        self._given: dict[str, str] = {}
        self._seen, self._whose = near, whose
        self._parts: dict[str, dict[tuple[str, str], _Brought]] = {}

    @cached_property
    def _hosted(self) -> dict[str, list[_Claim]]:
        """What forges have brought, by the key of its id."""
        forges = [other for other, name in self._whose.items() if name == _FORGE]
        rows = self._seen.filter(pl.col("source").is_in(forges)).select(*_Claim._fields)
        found: dict[str, list[_Claim]] = {}
        for claim in map(_Claim._make, rows.iter_rows()):
            found.setdefault(doc_key(claim.doc_id), []).append(claim)
        return found

    def _first(self, rows: pl.DataFrame) -> dict[str, tuple[Any, ...]]:
        """Return the fields of the first claim to each id and, where they count, to each folder."""
        found: dict[str, tuple[Any, ...]] = {}
        for row in rows.select(_Claim._fields).reverse().iter_rows():
            key = doc_key(row[-1])
            found[key] = row  # the earliest comes last
            if key.startswith(_LOCAL) and (self._is_place or row[1] in self._places):
                found[_folder(key)] = row
        return found

    def own(self, doc_id: str, brought: _Brought | None = None) -> str:
        """Return the id of the document that the source calls `doc_id`, of which it may have brought more."""
        own = self._own(doc_id, brought)
        if own != doc_id:
            self._given[own] = doc_id
        return own

    def _own(self, doc_id: str, brought: _Brought | None) -> str:
        key = doc_key(doc_id)
        if key.startswith(_KEPT) and self._spec.startswith(_HOSTED) and not self._is_place:
            return f"github.com/{doc_id}"
        if self._is_place and key.startswith(_LOCAL):
            folder = _folder(doc_id)
            marked, held = self._marked(folder, self._folders)
            held = held or self._is_rivals(_folder(key), brought)
            return marked + doc_id[len(folder) :] if held else doc_id
        if doc_id in self._mine and doc_id.rpartition("~")[2] in self._marks:
            return doc_id
        marked, held = self._marked(doc_id, self._mine)
        if held or (brought is None and doc_id in self._mine):
            return marked if held else doc_id
        rival = self._is_rivals(key, brought)
        rival = rival or (key.startswith(_LOCAL) and self._is_rivals(_folder(key), brought))
        return marked if rival else doc_id

    def _marked(self, name: str, mine: Collection[str]) -> tuple[str, bool]:
        """Return the form of an id, or a folder, that keeps it apart, and whether it is there."""
        forms = [f"{name}~{mark}" for mark in self._marks]
        if held := [form for form in forms if form in mine]:
            return held[0], True
        return next((form for form in forms if not self._is_rivals(doc_key(form), None)), forms[-1]), False

    def _is_rivals(self, key: str, brought: _Brought | None) -> bool:
        rival, kin = self._rivals.get(key), self._kin.get(key)
        if rival is None:
            return False
        named = brought is not None and _names(brought.url, key)
        if brought and named and self._publisher != _FORGE and (hosted := self._hosted.get(key)):
            return not any(self._is_copy(brought, claim) for claim in hosted)
        if kin is not None and kin < rival:
            return False
        held = self._held(_Claim._make(rival)) if self._publisher == _FORGE else None
        return held is None or not _names(held.url, key)

    def _is_copy(self, brought: _Brought, claim: _Claim) -> bool:
        held = self._held(claim)
        return held is not None and brought.raw_hash == held.raw_hash and brought.files <= held.files

    def _held(self, claim: _Claim) -> _Brought | None:
        """Return what a raw part holds of a document; each part is read once."""
        if claim.raw_part not in self._parts:
            columns = ["doc_id", "source", *_Brought._fields]
            try:
                rows = read_frame(self._root, claim.raw_part, RAW_DOCUMENTS, columns)
            except StorageError:
                rows = pl.DataFrame(schema=columns)
            self._parts[claim.raw_part] = {
                (doc_id, source): _Brought(
                    url, raw_hash, frozenset((file["path"], file["sha256"]) for file in files or ())
                )
                for doc_id, source, url, raw_hash, files in rows.select(columns).iter_rows()
            }
        return self._parts[claim.raw_part].get((claim.doc_id, claim.source))

    def _snapshot(self, doc_id: str, raw_part: str) -> RawDocument | None:
        try:
            rows = read_frame(self._root, raw_part, RAW_DOCUMENTS)
        except StorageError:
            return None
        found = rows.filter(doc_id=doc_id, source=self._spec)
        return raw_document(found.row(-1, named=True)) if found.height else None

    def given(self, doc_ids: list[str]) -> list[str]:
        """Return the ids by which the source itself calls documents."""
        return [self._given.get(doc_id, doc_id) for doc_id in doc_ids]

    def owned(self, item: T) -> T:
        """Return an item of the source with ids of its own; what is kept apart has a finding."""
        if isinstance(item, RawDocument):
            files = frozenset((file.path, file.sha256) for file in item.files or ())
            own = self.own(item.doc_id, _Brought(item.url, item.raw_hash, files))
            repo = item.repo
            if own != item.doc_id and repo and own.endswith(rest := item.doc_id[len(repo) :]):
                repo = own[: len(own) - len(rest)]
            apart = f"{item.doc_id} belongs to what brought it first; this is the document of {self._spec}"
            found = [Finding("identity.apart", "warning", apart)] * (own.count("~") != item.doc_id.count("~"))
            return replace(item, doc_id=own, repo=repo, findings=(*item.findings, *found))
        if isinstance(item, Dropped):
            lost_to = item.lost_to and self.own(item.lost_to)
            return replace(item, doc_id=self.own(item.doc_id), lost_to=lost_to)
        if isinstance(item, Unchanged | Missed | Gone):
            return replace(item, doc_ids=tuple(map(self.own, item.doc_ids)))
        return item

    def others(self, doc_id: str) -> bool:
        """Tell whether another publisher has brought a document of this id, there or gone."""
        return doc_key(doc_id) in self._rivals

    def moved(self, rows: list[dict[str, Any]]) -> Iterator[tuple[str, RawDocument]]:
        """Yield, of rows of `seen` that an earlier version wrote under another's ids, id and document."""
        for row in rows:
            claim = _Claim(0, row["source"], row["raw_part"], row["doc_id"])
            doc_id = claim.doc_id
            held = self._held(claim) if self.others(doc_id) and not self._is_place else None
            if self.own(doc_id, held) != doc_id and (raw := self._snapshot(doc_id, claim.raw_part)):
                own = self.owned(raw)
                if own.doc_id != doc_id and own.doc_id not in self._mine:
                    self._mine.add(own.doc_id)
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
