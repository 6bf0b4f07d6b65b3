"""The gate: checks that a built version must pass before it is served."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import GateRefused
from storage.lance.served import Served, is_anew, read_served
from storage.lance.tables import INDEXED, INDUCED, KEYS, NODES, RUN, SKILLS, TableAt
from storage.root import Root
from storage.state import documents_table, parsed_table
from tasks.models.protocols import IndexEncoder, Vectors
from tasks.models.token_states import encoded, unpack
from tasks.retrieve.index.build import Built, model_identity, nodes_identity
from tasks.retrieve.index.stored_nodes import PLACED, misplaced
from tasks.retrieve.routing.postings import term_counts
from tasks.retrieve.routing.skill import TEMPLATE
from tasks.retrieve.routing.store import drop_routing, open_routing, prepare_routing

_UNIT = 1e-3  # the largest difference of a vector's length from 1
# The least cosine: quantised weights give a text another vector beside other texts of a batch.
_SAME = 0.95
# The least mean cosine over a text's token embeddings, which are stored in four bits per number.
_SAME_STATES = 0.9
_SAMPLE, _SEARCHED = 32, 5  # rows that are encoded again, and how many of them are searched for
_RAREST = 5  # words that a skill is searched for by
_SEED = 7
_FEW = 0.2  # the share of skills that changed up to which fewer rows are searched for


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
    """Check the built tables of the corpus: their rows, vectors, indices and searches, and what nodes hold.

    A sample of each table is encoded again and searched for: where few skills changed, some of them first.
    Nodes of it are compared with the text of their skills. The documents are those of `corpus`, or of `root`.
    """
    source = corpus or root
    expected = {SKILLS: documents_table(source).read(columns=["doc_id"]).height}
    if built.nodes is not None:
        expected[NODES] = int(parsed_table(source).read(columns=["n_nodes"])["n_nodes"].sum())
    tables = built.tables_at(root)
    changed = few_changed(root, tables)
    samples = {name: _sample(tables, name, changed) for name in expected}
    checks = _check_tables(tables, expected, samples, encoder, _SEARCHED if changed is None else 2)
    if sample := samples.get(NODES):
        nodes = tables[NODES]
        checks += [_check_placed(nodes, sample, tables[SKILLS]), _check_states(nodes, sample, encoder)]
    return checks


def few_changed(root: Root, tables: Mapping[str, TableAt]) -> list[str] | None:
    """Return the skills whose rows, or nodes, are not those that are served, sorted; None if they are many.

    All others are, by their digests, the rows that were served, which have passed the gate.
    """
    served = read_served(root)
    if served is None or is_anew(root):
        return None
    before = served.tables_at(root)
    for name in (SKILLS, NODES):
        if (now := tables.get(name)) is not None:
            last = before.get(name)
            if last is None or not now.schema.equals(last.schema, check_metadata=True):  # the encoder's too
                return None
    rows = ["doc_id", "digest", "nodes_digest"]
    held = tables[SKILLS].frame(rows)
    others = held.join(before[SKILLS].frame(rows), on=rows, how="anti", nulls_equal=True)
    return others["doc_id"].sort().to_list() if others.height <= _FEW * held.height else None


def _check_tables(
    tables: Mapping[str, TableAt], expected: Mapping[str, int], samples: Mapping[str, list[str]],
    encoder: IndexEncoder, searched: int,
) -> list[Check]:  # fmt: skip
    """Check tables as built: row counts, unique ids, vectors, indices, and searches.

    All rows are looked at. A sample of each is encoded again, and some of it `searched` for by their vectors,
    the first and the last among them. `expected` has each table's number of rows.
    """
    checks = []
    for name, rows in expected.items():
        made = (nodes_identity if name == NODES else model_identity)(encoder.card)
        checks += _check_table(tables[name], rows)
        checks.append(_equal(f"{name}.other_model", int(tables[name].model != made), 0))
        if sample := samples[name]:
            checks += _check_found(tables[name], sample, encoder, searched)
    return checks


def check_words(root: Root, candidate: Served, workers: int | None = 1) -> list[Check]:
    """Check that the routing index has a row a skill, and finds a sample of skills by their rarest words.

    The index is made here, by as many processes as `workers` (`prepare_routing`), and goes if it fails. It is
    that of `candidate`, the version built, under the name that it is to be published by. Raises
    `StorageError` if the table cannot be read, or a file cannot be written.
    """
    prepare_routing(root, candidate, workers)
    index, table = open_routing(root, candidate), candidate.skills_table(root)
    place = {doc_id: row for row, doc_id in enumerate(index.doc_ids)}
    columns = ["doc_id", "name", "description", "text", "body_start"]
    asked, found = 0, 0
    changed = few_changed(root, candidate.tables_at(root))
    for row in table.rows(columns, doc_id=_drawn(index.doc_ids, changed or ())).to_pylist():
        words = f"{row['name']}\n{row['description']}\n{row['text'][row['body_start'] :]}"
        rarest = index.lexical.weighed(words)[:_RAREST]
        if rarest or term_counts(words):  # signs alone are no words
            asked += 1
            at = place.get(row["doc_id"])
            found += at is not None and bool(index.lexical.added(rarest)[at] > 0)
    checks = [
        _equal("routing.rows", len(index.doc_ids), table.count()),
        _equal("routing.found_by_own_words", found, asked),
    ]
    if not all(check.passed for check in checks):
        drop_routing(root, candidate)
    return checks


def check_learned(
    root: Root, built: Built, expected: Mapping[str, int], *, encoder: IndexEncoder, max_shrink: float,
    few: int, kinds: Sequence[str] = (RUN,),
) -> list[Check]:  # fmt: skip
    """Check the table `induced` as built: as `check_index` checks tables, and its rows by kind.

    `expected` is how many rows of each kind there must be. `max_shrink` is the share of the rows of a kind
    that are served, 0 to 1, that may be lost. A loss of up to `few` rows always passes. `kinds` are the
    kinds of rows that are compared with those served.
    """
    if built.induced is None:
        return []
    tables, rows, served = built.tables_at(root), {INDUCED: sum(expected.values())}, read_served(root)
    sample = {INDUCED: _sample(tables, INDUCED, None)}
    table, checks = tables[INDUCED], _check_tables(tables, rows, sample, encoder, _SEARCHED)
    checks += [_equal(f"{INDUCED}.{kind}s", table.count(kind=[kind]), n) for kind, n in expected.items()]
    if served is not None and (last := served.table(root, INDUCED)) is not None:
        checks += [
            _shrunk(f"{INDUCED}.{kind}s_shrink", last.count(kind=[kind]), expected[kind], max_shrink, few)
            for kind in kinds
        ]
    return checks


def require_passed(checks: list[dict[str, Any]]) -> None:
    """Raise `GateRefused` if a check failed; the message names each such check, its value and its limit."""
    failed = [c for c in checks if not c["passed"]]
    if failed:
        said = "; ".join(f"{c['check']} is {c['value']:g}, {c['bound']} {c['limit']:g}" for c in failed)
        msg = f"the gate refused the new version, the old one stays served: {said}"
        raise GateRefused(msg, checks)


def _equal(check: str, value: float, limit: float) -> Check:
    return Check(check, passed=value == limit, value=value, limit=limit)


def _check_table(table: TableAt, expected: int) -> list[Check]:
    key, name = KEYS[table.name], table.name
    ids = table.rows([key]).column(key)
    # A table without rows has no index, and needs none.
    left = dict.fromkeys(INDEXED[name], len(ids)) | table.unindexed()
    return [
        _equal(f"{name}.rows", len(ids), expected),
        _equal(f"{name}.repeated_ids", len(ids) - len(ids.unique()), 0),
        _equal(f"{name}.bad_vectors", _bad_vectors(table), 0),
        _equal(f"{name}.unindexed_rows", max(left.values()), 0),
    ]


def _bad_vectors(table: TableAt) -> int:
    bad = 0
    for batch in table.batches(["vector"]):
        column = batch.column("vector")
        vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        # A NaN fails the comparison, so that vectors that are not finite count as bad too.
        bad += int((~(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT)).sum()) + column.null_count
    return bad


def _check_found(table: TableAt, sample: list[str], encoder: IndexEncoder, searched: int) -> list[Check]:
    """Encode a sample of rows again, and search for some, the first and the last too, by their own text."""
    name, key = table.name, KEYS[table.name]
    columns = [key, "vector", "text", *(["name", "description"] if name == SKILLS else [])]
    place = {row_id: at for at, row_id in enumerate(sample)}
    rows = sorted(table.rows(columns, **{key: sample}).to_pylist(), key=lambda row: place[row[key]])
    vectors = encoder.encode([TEMPLATE.format(**r) if name == SKILLS else str(r["text"]) for r in rows])
    pairs = [(_own(row["vector"], vector), vector) for row, vector in zip(rows, vectors, strict=True)]
    other = sum(not float(np.dot(own, vector)) >= _SAME for own, vector in pairs)
    # Rows with the same text tie, so a row need not come first: none may be nearer than the row itself.
    asked = [pairs[at] for at in np.linspace(0, len(pairs) - 1, min(searched, len(pairs)), dtype=int)]
    found = sum(_is_nearest(table, own, vector) for own, vector in asked)
    return [
        _equal(f"{name}.other_vectors", other, 0),
        _equal(f"{name}.found_by_own_text", found, len(asked)),
    ]


def _sample(tables: Mapping[str, TableAt], name: str, changed: Sequence[str] | None) -> list[str]:
    """Return the ids of some rows: of any skills, or first of some that changed and then of some others."""
    key, new = KEYS[name], set(changed or ())
    if changed is None:
        return _drawn(tables[name].rows([key]).column(key).to_pylist())
    skills = _drawn(tables[SKILLS].rows(["doc_id"]).column("doc_id").to_pylist(), changed)
    if name == SKILLS:
        return skills
    rows = tables[name].rows([key, "doc_id"], doc_id=skills)
    ids, doc_ids = (rows.column(column).to_pylist() for column in (key, "doc_id"))
    return _drawn(ids, sorted({i for i, doc_id in zip(ids, doc_ids, strict=True) if doc_id in new}))


def _drawn(ids: Sequence[str], first: Sequence[str] = ()) -> list[str]:
    """Return some ids: first half of them, or more where others are too few, of `first`; then others."""
    draw = random.Random(_SEED)  # noqa: S311 (a sample, no secret)
    others = sorted(set(ids).difference(first))
    some = draw.sample(first, min(max(_SAMPLE // 2, _SAMPLE - len(others)), len(first)))
    return some + draw.sample(others, min(_SAMPLE - len(some), len(others)))


def _check_placed(nodes: TableAt, sample: list[str], skills: TableAt) -> Check:
    """Check that nodes stand in the text that would be served with them: the tables are written apart."""
    rows = nodes.rows(PLACED, node_id=sample)
    return _equal(f"{NODES}.other_text", sum(1 for _ in misplaced(skills, rows.to_batches())), 0)


def _check_states(nodes: TableAt, sample: list[str], encoder: IndexEncoder) -> Check:
    rows = nodes.rows(["text", "states"], node_id=sample)
    held, made = rows.column("states").to_pylist(), encoded(encoder, rows.column("text").to_pylist())[1]
    return _equal(f"{NODES}.other_states", sum(not _alike(*two) for two in zip(held, made, strict=True)), 0)


def _alike(held: bytes | None, made: bytes) -> bool:
    if not held or len(held) != len(made):
        return held == made
    return float((unpack(held) * unpack(made)).sum(axis=1).mean()) >= _SAME_STATES


def _own(vector: list[float] | None, like: Vectors) -> Vectors:
    """Return a row's vector, zeros where it has none."""
    return np.zeros_like(like) if vector is None else np.asarray(vector, dtype=np.float32)


def _is_nearest(table: TableAt, own: Vectors, vector: Vectors) -> bool:
    best = 1 - table.nearest(vector, 1, []).column("_distance")[0].as_py()
    return bool(float(np.dot(own, vector)) >= best - _UNIT)


def check_shrink(root: Root, built: Built, *, max_shrink: float, few: int) -> list[Check]:
    """Compare the number of rows of the built tables with the served version; no check if nothing is served.

    At most the share `max_shrink` of the rows, 0 to 1, may be lost. A loss of up to `few` rows always passes.
    Raises `StorageError` if what is served cannot be opened.
    """
    served, checks = read_served(root), []
    for name, rows in ((SKILLS, built.skills_rows), (NODES, built.nodes_rows)):
        before = served.table(root, name) if served else None
        if before is not None and built.tables()[name] is not None:
            checks.append(_shrunk(f"{name}.shrink", before.count(), rows, max_shrink, few))
    return checks


def _shrunk(check: str, before: int, now: int, most: float, few: int) -> Check:
    share = max(0.0, (before - now) / before) if before - now > few else 0.0
    return Check(check, share <= most, round(share, 4), most, "may be at most")
