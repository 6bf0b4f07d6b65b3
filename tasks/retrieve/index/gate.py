"""The gate: checks that a built version must pass before it is served."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.errors import GateRefused
from storage.lance import INDUCED, KEYS, NODES, SKILLS, connect, model_of, open_at, quoted
from storage.root import Root
from storage.served import Served, read_served
from storage.state import documents_table, parsed_table
from tasks.models.protocols import IndexEncoder, Vectors
from tasks.models.token_states import encoded, unpack
from tasks.retrieve.index.build import INDEXED, Built
from tasks.retrieve.index.rows import model_identity, nodes_identity
from tasks.retrieve.index.stored_nodes import PLACED, misplaced
from tasks.retrieve.routing.postings import term_counts
from tasks.retrieve.routing.skill import TEMPLATE
from tasks.retrieve.routing.store import drop_routing, open_routing, prepare_routing
from tasks.retrieve.suggest.stored import RUN

if TYPE_CHECKING:  # its import takes longer than a query
    import lancedb

_UNIT = 1e-3  # the largest difference of a vector's length from 1
# The least cosine: quantised weights give a text another vector beside other texts of a batch.
_SAME = 0.95
# The least mean cosine over a text's token embeddings, which are stored in four bits per number.
_SAME_STATES = 0.9
_SAMPLE, _SEARCHED = 32, 5  # rows that are encoded again, and how many of them are searched for
_RAREST = 5  # words that a skill is searched for by
_SEED = 7


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the gate: the value found, its limit, and how they compare (`bound`)."""

    check: str
    passed: bool
    value: float
    limit: float
    bound: str = "must be"


def check_index(
    root: Root, built: Built, *, encoder: IndexEncoder, corpus: Root | None = None
) -> list[Check]:
    """Check the built versions: row counts, unique ids, vectors, token embeddings, indices, and searches.

    A seeded sample of rows is encoded again, and searched for by its vectors. A sample of nodes is compared
    with the text of their skills. The documents are those of `corpus`, or of `root` without one.
    """
    db, source = connect(root), corpus or root
    expected = {SKILLS: documents_table(source).read(columns=["doc_id"]).height}
    versions = {SKILLS: built.skills}
    if built.nodes is not None:
        versions[NODES] = built.nodes
        expected[NODES] = int(parsed_table(source).read(columns=["n_nodes"])["n_nodes"].sum())
    checks = []
    for name, version in versions.items():
        table = open_at(db, name, version)
        sample = _sample(table, KEYS[name])
        checks += _check_rows(name, table, sample, expected[name], encoder)
        if name == NODES and sample:
            checks.append(_check_placed(table, sample, open_at(db, SKILLS, built.skills)))
            checks.append(_check_states(table, sample, encoder))
    return checks


def check_words(root: Root, candidate: Served, workers: int | None = 1) -> list[Check]:
    """Check that the routing index has a row a skill, and finds a sample of skills by their rarest words.

    The index is made here, by as many processes as `workers` (`prepare_routing`), and goes if it fails. It is
    that of `candidate`, the version built, under the name that it is to be published by.

    Raises:
        StorageError: The table cannot be read, or a file cannot be written.
    """
    prepare_routing(root, candidate, workers)
    index, table = open_routing(root, candidate), open_at(connect(root), SKILLS, candidate.skills)
    place = {doc_id: row for row, doc_id in enumerate(index.doc_ids)}
    columns = ["doc_id", "name", "description", "text", "body_start"]
    sample = table.search().where(f"doc_id IN ({quoted(_sample(table, 'doc_id'))})").select(columns)
    asked, found = 0, 0
    for row in sample.to_arrow().to_pylist():
        words = f"{row['name']}\n{row['description']}\n{row['text'][row['body_start'] :]}"
        rarest = index.lexical.weighed(words)[:_RAREST]
        if rarest or term_counts(words):  # signs alone are no words
            asked += 1
            at = place.get(row["doc_id"])
            found += at is not None and bool(index.lexical.added(rarest)[at] > 0)
    checks = [
        _equal("routing.rows", len(index.doc_ids), table.count_rows()),
        _equal("routing.found_by_own_words", found, asked),
    ]
    if not all(check.passed for check in checks):
        drop_routing(root, candidate)
    return checks


def check_learned(
    root: Root,
    built: Built,
    expected: Mapping[str, int],
    *,
    encoder: IndexEncoder,
    max_shrink: float,
    few: int,
    kinds: Sequence[str] = (RUN,),
) -> list[Check]:
    """Check the table `induced` as built: as `check_index` does, and its rows by kind.

    Args:
        root: The root of the tables.
        built: What was built.
        expected: How many rows of each kind there must be.
        encoder: Encodes a sample again.
        max_shrink: The share of the rows of a kind that are served, 0 to 1, that may be lost.
        few: A loss of up to so many rows always passes.
        kinds: The kinds of rows that are compared with those served.
    """
    if built.induced is None:
        return []
    table, served = open_at(connect(root), INDUCED, built.induced), read_served(root)
    checks = _check_rows(INDUCED, table, _sample(table, KEYS[INDUCED]), sum(expected.values()), encoder)
    for kind, count in expected.items():
        checks.append(_equal(f"{INDUCED}.{kind}s", _count(table, kind), count))
    if served is not None and served.induced is not None:
        last = open_at(connect(root), INDUCED, served.induced)
        for kind in kinds:
            check = f"{INDUCED}.{kind}s_shrink"
            checks.append(_shrunk(check, _count(last, kind), expected[kind], max_shrink, few))
    return checks


def _count(table: lancedb.table.Table, kind: str) -> int:
    return int(table.count_rows(f"kind = '{kind}'"))


def _check_rows(
    name: str, table: lancedb.table.Table, sample: list[str], expected: int, encoder: IndexEncoder
) -> list[Check]:
    key = KEYS[name]
    checks = [*_check_table(name, table, key, expected), _check_model(name, table, encoder)]
    return [*checks, *_check_found(name, table, key, sample, encoder)] if sample else checks


def require_passed(checks: list[dict[str, Any]]) -> None:
    """Raise `GateRefused` if a check failed; the message names each such check, its value and its limit."""
    failed = [c for c in checks if not c["passed"]]
    if failed:
        said = "; ".join(f"{c['check']} is {c['value']:g}, {c['bound']} {c['limit']:g}" for c in failed)
        msg = f"the gate refused the new version, the old one stays served: {said}"
        raise GateRefused(msg, checks)


def _equal(check: str, value: float, limit: float) -> Check:
    return Check(check, passed=value == limit, value=value, limit=limit)


def _check_table(name: str, table: lancedb.table.Table, key: str, expected: int) -> list[Check]:
    ids = table.search().select([key]).to_arrow().column(key)
    # A table without rows has no index, and needs none.
    left = dict.fromkeys(INDEXED[name], len(ids))
    for index in table.list_indices():
        left[index.columns[0]] = int(index.num_unindexed_rows or 0)
    return [
        _equal(f"{name}.rows", len(ids), expected),
        _equal(f"{name}.repeated_ids", len(ids) - len(ids.unique()), 0),
        _equal(f"{name}.bad_vectors", _bad_vectors(table), 0),
        _equal(f"{name}.unindexed_rows", max(left.values()), 0),
    ]


def _bad_vectors(table: lancedb.table.Table) -> int:
    """Count vectors that are missing or not of unit length."""
    bad = 0
    # In batches, because all of them may be gigabytes.
    for batch in table.search().select(["vector"]).to_batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        # A NaN fails the comparison, so that vectors that are not finite count as bad too.
        bad += int((~(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT)).sum()) + column.null_count
    return bad


def _check_model(name: str, table: lancedb.table.Table, encoder: IndexEncoder) -> Check:
    identity = nodes_identity if name == NODES else model_identity
    return _equal(f"{name}.other_model", int(model_of(table) != identity(encoder.card)), 0)


def _check_found(
    name: str, table: lancedb.table.Table, key: str, sample: list[str], encoder: IndexEncoder
) -> list[Check]:
    """Encode a sample of rows again, and search for some of them by their own text."""
    columns = [key, "vector", "text", *(["name", "description"] if name == SKILLS else [])]
    rows = table.search().where(f"{key} IN ({quoted(sample)})").select(columns).to_arrow().to_pylist()
    vectors = encoder.encode([_text(name, row) for row in rows])
    pairs = [(_own(row["vector"], vector), vector) for row, vector in zip(rows, vectors, strict=True)]
    other = sum(not float(np.dot(own, vector)) >= _SAME for own, vector in pairs)
    # Rows with the same text tie, so a row need not come first: none may be nearer than the row itself.
    found = sum(_is_nearest(table, own, vector) for own, vector in pairs[:_SEARCHED])
    return [
        _equal(f"{name}.other_vectors", other, 0),
        _equal(f"{name}.found_by_own_text", found, len(pairs[:_SEARCHED])),
    ]


def _sample(table: lancedb.table.Table, key: str) -> list[str]:
    ids = sorted(table.search().select([key]).to_arrow().column(key).to_pylist())
    return random.Random(_SEED).sample(ids, min(_SAMPLE, len(ids)))  # noqa: S311 (a sample, no secret)


def _check_placed(nodes: lancedb.table.Table, sample: list[str], skills: lancedb.table.Table) -> Check:
    """Check that nodes stand in the text that would be served with them: the tables are written apart."""
    rows = nodes.search().where(f"node_id IN ({quoted(sample)})").select(PLACED).to_arrow()
    return _equal(f"{NODES}.other_text", sum(1 for _ in misplaced(skills, rows.to_batches())), 0)


def _check_states(nodes: lancedb.table.Table, sample: list[str], encoder: IndexEncoder) -> Check:
    """Check that the token embeddings are those that the encoder computes from the nodes' texts."""
    rows = nodes.search().where(f"node_id IN ({quoted(sample)})").select(["text", "states"]).to_arrow()
    held, made = rows.column("states").to_pylist(), encoded(encoder, rows.column("text").to_pylist())[1]
    return _equal(f"{NODES}.other_states", sum(not _alike(*two) for two in zip(held, made, strict=True)), 0)


def _alike(held: bytes | None, made: bytes) -> bool:
    if not held or len(held) != len(made):
        return held == made
    return float((unpack(held) * unpack(made)).sum(axis=1).mean()) >= _SAME_STATES


def _own(vector: list[float] | None, like: Vectors) -> Vectors:
    """Return a row's vector, zeros where it has none."""
    return np.zeros_like(like) if vector is None else np.asarray(vector, dtype=np.float32)


def _text(name: str, row: dict[str, Any]) -> str:
    return TEMPLATE.format(**row) if name == SKILLS else str(row["text"])


def _is_nearest(table: lancedb.table.Table, own: Vectors, vector: Vectors) -> bool:
    query: Any = table.search(vector)
    hits = query.distance_type("dot").limit(1).select(["_distance"]).to_arrow().to_pylist()
    best = 1 - hits[0]["_distance"]  # LanceDB's dot distance is 1 - cosine for unit vectors
    return bool(float(np.dot(own, vector)) >= best - _UNIT)


def check_shrink(root: Root, built: Built, *, max_shrink: float, few: int) -> list[Check]:
    """Compare the number of rows of the built tables with the served version; no check if nothing is served.

    At most the share `max_shrink` of the rows, 0 to 1, may be lost. A loss of up to `few` rows always passes.

    Raises:
        StorageError: What is served cannot be opened.
    """
    served = read_served(root)
    if served is None:
        return []
    db, checks = connect(root), []
    rows_of = {SKILLS: built.skills_rows, NODES: built.nodes_rows}
    for name, before in served.tables().items():
        if name in rows_of and built.tables()[name] is not None:
            held, rows = open_at(db, name, before).count_rows(), rows_of[name]
            checks.append(_shrunk(f"{name}.shrink", held, rows, max_shrink, few))
    return checks


def _shrunk(check: str, before: int, now: int, most: float, few: int) -> Check:
    share = max(0.0, (before - now) / before) if before - now > few else 0.0
    return Check(check, share <= most, round(share, 4), most, "may be at most")
