"""Row vectors: candidates by the cosine to name and description, or with the body (SkillWeaver, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.errors import WrongInput
from storage.lance.served import Licences, require_licences
from tasks.models.protocols import Vectors
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.search import Filters
from tasks.retrieve.served_index import ServedIndex

BODY = 2_000  # characters of the body that are encoded with name and description
_COLUMNS = ["doc_id", "kind", "name", "description", "text", "body_start", "category", "licence", "vector"]
_AT_ONCE = 256  # texts encoded in one call, so that Ctrl-C is heard between two
NO_BODIES = "a method with bodies needs skills; all that is served are servers"


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row that was found: its id in lower case, its category, and its score."""

    doc_id: str
    category: str | None
    score: float


class RowVectors:
    """Ranks the rows of one version by cosine alone; what it needs is read at the first question."""

    def __init__(self, index: ServedIndex) -> None:
        self._index = index
        self._rows: pl.DataFrame | None = None
        self._vectors: dict[bool, Vectors] = {}

    def find(self, texts: Sequence[str], k: int, filters: Filters, *, body: bool) -> list[list[FoundRow]]:
        """Return the `k` nearest rows of each text, best first, those of equal score in the order of ids.

        Args:
            texts: What is asked.
            k: How many rows a text.
            filters: Of these only `without` is read.
            body: With the first `BODY` characters of each body.

        Raises:
            WrongInput: Bodies are wanted, and no row has one.
        """
        with self._index.version() as now:
            return self._found(now, texts, k, filters, body=body)

    def _found(
        self, now: OpenVersion, texts: Sequence[str], k: int, filters: Filters, *, body: bool
    ) -> list[list[FoundRow]]:
        if not texts:
            return []
        rows, vectors = self._held(now, body=body)
        ids = rows["key"]
        cosines = now.encoder.encode(texts) @ vectors.T
        cosines[:, ids.is_in(list(filters.without)).to_numpy()] = -np.inf
        found = []
        for scores in cosines:
            best = np.argsort(-scores, kind="stable")[:k].tolist()
            kept = [row for row in best if np.isfinite(scores[row])]
            found.append([FoundRow(ids[row], rows["category"][row], float(scores[row])) for row in kept])
        return found

    def _held(self, now: OpenVersion, *, body: bool) -> tuple[pl.DataFrame, Vectors]:
        if self._rows is None:
            self._rows = _read(now, require_licences(now.root))
        if body not in self._vectors:
            self._vectors[body] = _with_bodies(now, self._rows) if body else _vectors(self._rows)
        return self._rows, self._vectors[body]


def _read(now: OpenVersion, licences: Licences) -> pl.DataFrame:
    """Return the rows whose licence is not denied, sorted by id."""
    held = now.skills.frame(_COLUMNS)
    shown = [licence for licence in held["licence"].unique() if licences.class_of(licence) != "deny"]
    rows = held.filter(pl.col("licence").is_in(shown, nulls_equal=True))
    return rows.with_columns(key=pl.col("doc_id").str.to_lowercase()).sort("key")


def _vectors(rows: pl.DataFrame) -> Vectors:
    return np.asarray(rows["vector"].to_numpy(), dtype=np.float32)


def _with_bodies(now: OpenVersion, rows: pl.DataFrame) -> Vectors:
    if not (rows["kind"] == "skill").any():
        raise WrongInput(NO_BODIES)
    texts = [
        f"{name}\n{description}\n{text[start : start + BODY]}"
        for name, description, text, start in rows.select(*_COLUMNS[2:6]).iter_rows()
    ]
    parts = [now.encoder.encode(texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]
    return np.concatenate(parts)
