"""Which documents several rows of a list lead to: by other refs, by other names of their repository."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from storage.crawl_state import listed_table
from storage.root import Root

_PLACE = ["repository", "ref", "rest"]


class Claims:
    """What a source's rows led to when it was first asked, and what they have lost since.

    Args:
        root: Where the rows lie.
        spec: The spec of the source.
    """

    def __init__(self, root: Root, spec: str) -> None:
        self._root, self._spec = root, spec

    def lost(self, row: Mapping[str, Any]) -> bool:
        """Note that a row of LISTED no longer leads to its document; tell whether no other row does."""
        others = self._shared.get(row["doc_id"], set())
        others.discard(tuple(row[name] for name in _PLACE))
        return not others

    @cached_property
    def _shared(self) -> dict[str, set[tuple[str, ...]]]:
        rows = listed_table(self._root).read(columns=["source", *_PLACE, "doc_id", "outcome"])
        found = rows.filter(pl.col("source") == self._spec, pl.col("outcome") == "ok")
        shared: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for doc_id, *place in found.filter(pl.len().over("doc_id") > 1).select("doc_id", *_PLACE).iter_rows():
            shared[doc_id].add(tuple(place))
        return dict(shared)
