"""An open version: the tables of one publication, its encoder, and documents prepared for paging."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import lancedb

from storage.root import Root
from storage.served import Served
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.routing.search import Searcher
from tasks.retrieve.routing.store import open_routing

# An agent asks the same skill again and again, so documents are kept prepared: at most this many, with at
# most this many bytes of token states. A long document has a hundred times the states of most others.
_RECENT = 32
_RECENT_BYTES = 256_000_000


@dataclass(frozen=True)
class OpenVersion:
    """Both tables at one publication's versions, its encoder, and recent documents; threads may share it."""

    root: Root
    served: Served
    skills: lancedb.table.Table
    nodes: lancedb.table.Table | None
    encoder: OnnxEncoder
    recent: OrderedDict[str, PagedDocument] = field(default_factory=OrderedDict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def searcher(self) -> Searcher:
        """Return the searcher over its skills, made at the first call.

        Raises:
            StorageError: The table cannot be read.
        """
        with self.lock:
            return self._searcher

    @functools.cached_property
    def _searcher(self) -> Searcher:
        return Searcher(self.skills, open_routing(self.root, self.served), self.encoder)

    def kept(self, doc_id: str) -> PagedDocument | None:
        """Return a document if it is kept, and mark it as the most recently used."""
        with self.lock:
            if doc_id in self.recent:
                self.recent.move_to_end(doc_id)
            return self.recent.get(doc_id)

    def keep(self, document: PagedDocument) -> None:
        """Keep a document, and drop the least recently used ones beyond the limits."""
        with self.lock:
            self.recent[document.doc_id] = document
            while len(self.recent) > _RECENT or (len(self.recent) > 1 and self._states() > _RECENT_BYTES):
                self.recent.popitem(last=False)

    def _states(self) -> int:
        return sum(kept.ready.states.rows.nbytes for kept in self.recent.values() if kept.ready)
