"""An open version: the tables of a publication, its encoder, and what is computed from them.

Threads may share it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

import polars as pl

from storage.errors import StorageError
from storage.lance.served import Served
from storage.lance.tables import NODES, TableAt
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import Node, content_hash
from storage.state import documents_table, seen_table
from tasks.crawl.source.identity import owner_part
from tasks.models.adapted_encoder import is_base
from tasks.models.encoder import OnnxEncoder
from tasks.parse import LOCAL, STAGE_VERSION
from tasks.retrieve.paging.kept_encodings import FOLDER, KeptEncodings
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.routing.coarse import EXACT_ROWS
from tasks.retrieve.routing.fit import FitModel, packaged_fit
from tasks.retrieve.routing.reranker import NONE
from tasks.retrieve.routing.router import Ranked, plain_name
from tasks.retrieve.routing.search import PROVENANCE, Searcher
from tasks.retrieve.routing.store import RoutingIndex, open_routing, routing_rows
from tasks.retrieve.routing.tuned import Tuned, read_tuned

log = logging.getLogger(__name__)

# An agent asks about the same skill again and again, so prepared documents are kept: at most this number, and
# this many bytes of token embeddings, of which a long document has a hundred times as many as most.
_RECENT = 32
_RECENT_BYTES = 256_000_000
Results: TypeAlias = list[tuple[dict[str, Any], Ranked]]
_TEXT = ("text", "body_start")
_COLUMNS = (*_TEXT, "doc_id", "n_tokens", "nodes_digest", *PROVENANCE)
_SMALL = 4_000_000  # bytes of a file of the corpus, of which one body is read sooner than LanceDB is imported


@dataclass(frozen=True)
class OpenVersion:
    """One publication: its tables, opened when they are first read, its encoder, documents requested last."""

    root: Root
    served: Served
    encoder: OnnxEncoder
    rerank: str = NONE
    threads: int | None = None
    exact_rows: int = EXACT_ROWS
    recent: OrderedDict[str, PagedDocument] = field(default_factory=OrderedDict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    first_seen: dict[str, datetime] = field(default_factory=dict)
    seen_parts: set[int] = field(default_factory=set)

    @functools.cached_property
    def skills(self) -> TableAt:
        """The table of skills."""
        return self.served.skills_table(self.root)

    @functools.cached_property
    def nodes(self) -> TableAt | None:
        """The table of nodes, None where no vectors of nodes are served."""
        return self.served.table(self.root, NODES)

    @property
    def _by_rows(self) -> bool:
        """Whether a page does without LanceDB: it reads no nodes there, and the rows lie on this machine."""
        return self.served.nodes is None and self.root.uri == str(self.root.folder)

    @functools.cached_property
    def _rows(self) -> pl.DataFrame:
        opened = "routing" in self.__dict__
        return self.routing.rows if opened else routing_rows(self.root, self.served)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {doc_id.casefold(): place for place, doc_id in enumerate(self._rows["doc_id"])}

    def row(self, doc_id: str) -> dict[str, Any] | None:
        """Return what answers say of a skill, by its id in any letter case; None if it is not served.

        Raises `StorageError` if neither the routing index nor the table can be read.
        """
        if not self._by_rows:
            return self._held_row(doc_id.casefold())
        exact = self._rows.filter(pl.col("doc_id") == doc_id)
        if exact.height:
            return exact.row(0, named=True)
        place = self._places.get(doc_id.casefold())
        return None if place is None else self._rows.row(place, named=True)

    @functools.cached_property
    def _held_row(self) -> Callable[[str], dict[str, Any] | None]:
        # Those requested last are kept, as documents are: a page of them asks no bucket.
        return functools.lru_cache(_RECENT)(lambda key: self.skills.first(_COLUMNS, doc_key=[key]))

    def names(self) -> dict[str, str | None]:
        """Return the name of each skill by its id; raises as `row` does."""
        columns = ["doc_id", "name"]
        if self._by_rows:
            return dict(self._rows.select(columns).iter_rows())
        return dict(self.skills.frame(columns).iter_rows())

    def body(self, row: dict[str, Any]) -> str:
        """Return the body of the skill of a row that `row` returned.

        Raises `StorageError` if the table of skills cannot be read, or lacks the skill.
        """
        if "text" not in row and not self.skills.is_open and (body := self._in_corpus(row)) is not None:
            return body
        held = row if "text" in row else self.skills.first(_TEXT, doc_id=[row["doc_id"]])
        if held is None:
            msg = f"{self.served.version} has no text of {row['doc_id']}"
            raise StorageError(f"{msg}: run `skillery doctor --root {self.root.uri}`")
        return str(held["text"][held["body_start"] :])

    def _in_corpus(self, row: dict[str, Any]) -> str | None:
        """Return the body of a row's skill out of the corpus: LanceDB's import takes longer than a page.

        None if the corpus is newer or older than the version, or not whole, or that partition of it is large.
        """
        doc_id = row["doc_id"]
        try:
            found = documents_table(self.root).read_sealed(doc_id, ["doc_id", "body"], _SMALL)
        except StorageError:
            return None
        if found is None:
            return None

        def is_served(body: str) -> bool:
            return bool(content_hash(row["name"], row["description"], body) == row["content_hash"])

        return next(filter(is_served, found.filter(pl.col("doc_id") == doc_id)["body"]), None)

    @property
    def _pages(self) -> KeptEncodings:
        return KeptEncodings(self.root.folder / FOLDER, self.encoder)

    def parsed(self, doc_id: str, body: str, *, grouped: bool) -> list[Node]:
        """Return the nodes of a document, kept ones if there are; `grouped` is as `segment` has it."""

        def parse() -> list[Node]:
            from tasks.parse.classify.local import LocalClassifier  # noqa: PLC0415 (most queries parse nothing)
            from tasks.parse.document import parse_document  # noqa: PLC0415

            types = LocalClassifier()
            return parse_document(doc_id, body, classifier=types, tokenizer=self.encoder, grouped=grouped)

        return self._pages.nodes([STAGE_VERSION, LOCAL, grouped, doc_id, body], parse)

    def encoded(self, document: PagedDocument) -> PagedDocument:
        """Return a document with the encodings of its nodes, kept ones if there are; by words it has none."""
        if document.vectors is not None or document.by_words:
            return document
        vectors, states = self._pages.encoded([node.text for node in document.nodes])
        return replace(document, vectors=vectors, states=states)

    def searcher(self) -> Searcher:
        """Return the searcher of this version, which the first call makes.

        Raises `StorageError` if the table cannot be read.
        """
        with self.lock:
            return self._searcher

    @property
    def fit(self) -> FitModel | None:
        """What tells how likely a skill serves, None of an encoder that it was not fitted on."""
        packaged = packaged_fit(self._reads) if is_base(self.encoder.card) else None
        return self.tuned.fit(packaged) if packaged and self.tuned else packaged

    @functools.cached_property
    def tuned(self) -> Tuned | None:
        """What the root's own requests taught of the way of reading that is used; else the log says why."""
        try:
            found = read_tuned(self.root)
        except StorageError as error:
            log.warning("searching with the packaged numbers: %s", error)
            return None
        return found if found and found.rerank == self._reads else None

    @property
    def _reads(self) -> str:
        """How far skills are read; an index of before has no tokens to read."""
        # Who indexes with another encoder has reasons, such as languages that this reader does not know.
        known = is_base(self.encoder.card) and self.routing.tokens is not None
        return self.rerank if known else NONE

    @functools.cached_property
    def routing(self) -> RoutingIndex:
        """The routing index, opened when it is first read."""
        return open_routing(self.root, self.served)

    @functools.cached_property
    def _searcher(self) -> Searcher:
        reach, how = self.tuned and self.tuned.reach, (self._reads, self.threads)
        return Searcher(self.skills, self.routing, self.encoder, self.fit, *how, reach, self.exact_rows)

    def led_by_first(self, results: Results) -> Results:
        """Return results, each led by that of its near-identical skills which has been known for longest.

        An owner's own skill that fits best leads, and so does one that the query names alone.
        """
        contested = [f for _, f in results if {owner_part(i) for i in f.folded} - {owner_part(f.doc_id)}]
        since = self._known_since({i for found in contested for i in (found.doc_id, *found.folded)})
        return [self._led(row, found, since) for row, found in results]

    def _led(
        self, row: dict[str, Any], found: Ranked, since: Mapping[str, datetime]
    ) -> tuple[dict[str, Any], Ranked]:
        ids = [found.doc_id, *found.folded]
        known = [i for i in ids if i in since]
        first = min(known, key=since.__getitem__, default=found.doc_id)
        if owner_part(first) == owner_part(found.doc_id):
            return row, found
        led = self.searcher().row_of(first)
        if found.parts.get("named") and plain_name(led["name"]) != plain_name(row["name"]):
            return row, found
        return led, replace(found, doc_id=first, folded=tuple(i for i in ids if i != first))

    def _known_since(self, ids: Iterable[str]) -> Mapping[str, datetime]:
        """Return when skills, these among them, were first seen; what was read once stays as it was then."""
        if lacking := {partition_of(i) for i in ids} - self.seen_parts:
            rows = seen_table(self.root).read(lacking, ["doc_id", "first_seen_at"])
            self.first_seen.update(rows.sort("first_seen_at", descending=True).iter_rows())  # the first wins
            self.seen_parts.update(lacking)
        return self.first_seen

    def kept(self, doc_id: str) -> PagedDocument | None:
        """Return a kept document, None if it is not kept; it becomes the one requested last."""
        with self.lock:
            if doc_id in self.recent:
                self.recent.move_to_end(doc_id)
            return self.recent.get(doc_id)

    def keep(self, document: PagedDocument) -> None:
        """Keep a prepared document, and drop those requested longest ago if there are too many."""
        with self.lock:
            self.recent[document.doc_id] = document
            size = sum(kept.ready.states.rows.nbytes for kept in self.recent.values() if kept.ready)
            # The document just requested stays, however large it is.
            while len(self.recent) > _RECENT or (len(self.recent) > 1 and size > _RECENT_BYTES):
                _, gone = self.recent.popitem(last=False)
                size -= gone.ready.states.rows.nbytes if gone.ready else 0
