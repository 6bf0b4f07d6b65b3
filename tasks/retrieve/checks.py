"""The gate: checks that a built version must pass before it is served."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import lancedb
import numpy as np

from storage.errors import GateRefused
from storage.lance import NODES, SKILLS, connect, open_at, quoted
from storage.root import Root
from storage.state import documents_table, parsed_table
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.index import INDEXED, Built
from tasks.retrieve.rows import TEMPLATE

_UNIT = 1e-3  # how far a vector's length may be from 1
_SAMPLE = 5
_SEED = 7


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the gate: what was found, and what was asked (`bound`: `must be`, or `may be at most`)."""

    check: str
    passed: bool
    value: float
    limit: float
    bound: str = "must be"


def check_index(root: Root, built: Built, *, encoder: Encoder) -> list[Check]:
    """Check the built versions: row counts, unique ids, vectors, indices, and known rows found by their text.

    Args:
        root: Where corpus and tables lie.
        built: The versions to check.
        encoder: The one the tables were made with.
    """
    db = connect(root)
    expected = {SKILLS: documents_table(root).read(columns=["doc_id"]).height}
    versions = {SKILLS: built.skills}
    if built.nodes is not None:
        versions[NODES] = built.nodes
        expected[NODES] = int(parsed_table(root).read(columns=["n_nodes"])["n_nodes"].sum())
    checks = []
    for name, version in versions.items():
        table = open_at(db, name, version)
        key = "doc_id" if name == SKILLS else "node_id"
        checks += _check_table(name, table, key, expected[name])
        if table.count_rows():
            checks.append(_check_found(name, table, key, encoder))
    return checks


def require_passed(checks: list[dict[str, Any]]) -> None:
    """Let a version through whose checks all passed.

    Raises:
        GateRefused: One did not; the message names each such check, what it found and what was asked.
    """
    failed = [c for c in checks if not c["passed"]]
    if failed:
        said = "; ".join(f"{c['check']} is {c['value']:g}, {c['bound']} {c['limit']:g}" for c in failed)
        msg = f"the gate refused the new version, the old one stays served: {said}"
        raise GateRefused(msg)


def _equal(check: str, value: float, limit: float) -> Check:
    return Check(check, passed=value == limit, value=value, limit=limit)


def _check_table(name: str, table: lancedb.table.Table, key: str, expected: int) -> list[Check]:
    ids = table.search().select([key]).to_arrow().column(key)
    # All indices of a table with no rows are missing, and nothing lacks them.
    left = {column: len(ids) for columns in INDEXED[name] for column in columns}
    for index in table.list_indices():
        left[index.columns[0]] = int(index.num_unindexed_rows or 0)
    return [
        _equal(f"{name}.rows", len(ids), expected),
        _equal(f"{name}.repeated_ids", len(ids) - len(ids.unique()), 0),
        _equal(f"{name}.bad_vectors", _bad_vectors(table), 0),
        _equal(f"{name}.unindexed_rows", max(left.values()), 0),
    ]


def _bad_vectors(table: lancedb.table.Table) -> int:
    """Count vectors that are missing or not of unit length, in batches: all of them may be gigabytes."""
    bad = 0
    for batch in table.search().select(["vector"]).to_batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        # A NaN fails the comparison, so that what is not finite counts as bad too.
        bad += int((~(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT)).sum()) + column.null_count
    return bad


def _check_found(name: str, table: lancedb.table.Table, key: str, encoder: Encoder) -> Check:
    """Look for a seeded sample of rows by their own text: none may lie nearer than the row itself.

    Rows that repeat a sentence tie with one another, so that the row need not be the first listed.
    """
    ids = sorted(table.search().select([key]).to_arrow().column(key).to_pylist())
    sample = random.Random(_SEED).sample(ids, min(_SAMPLE, len(ids)))  # noqa: S311 (a sample, no secret)
    columns = [key, "vector", *(["text"] if name == NODES else ["name", "description"])]
    rows = table.search().where(f"{key} IN ({quoted(sample)})").select(columns).to_arrow().to_pylist()
    vectors = encoder.encode([_text(row) for row in rows])
    found = sum(_is_nearest(table, row["vector"], vector) for row, vector in zip(rows, vectors, strict=True))
    return _equal(f"{name}.found_by_own_text", found, len(sample))


def _text(row: dict[str, Any]) -> str:
    return str(row["text"]) if "text" in row else TEMPLATE.format(**row)


def _is_nearest(table: lancedb.table.Table, own: list[float], vector: Vectors) -> bool:
    query: Any = table.search(vector)
    hits = query.distance_type("dot").limit(1).select(["_distance"]).to_arrow().to_pylist()
    best = 1 - hits[0]["_distance"]  # LanceDB's dot distance is 1 - cosine for unit vectors
    return bool(float(np.dot(np.asarray(own, dtype=np.float32), vector)) >= best - _UNIT)
