"""Measures of nodes: types against people's (accuracy, F1, calibration), edges against an LLM's answers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines
from storage.root import Root
from storage.schemas import NODE_TYPES, Node
from storage.state import nodes_table
from tasks.evaluate.measures.statistics import calibration, calibration_error
from tasks.parse.classify.llm import document_in, hybrid_curve
from tasks.parse.classify.protocol import FragmentInContext, Typed, read_fragments
from tasks.parse.edges.linker import KINDS, Linked, candidate_pairs
from tasks.parse.edges.rules import Pair, text_pairs

THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
Confusion = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Gold:
    """Fragments that people have typed, in order."""

    fragments: list[FragmentInContext]  # what a classifier is given; the types are no part of it
    documents: list[str | None]  # the document of each, where it is known
    node_types: list[str]  # what people said
    sure: list[bool]  # whether those who said it were sure
    doubted: list[bool]  # whether any of them thought that another type might do as well


def read_gold(path: Path) -> Gold:
    """Return the labelled fragments of a file of JSON lines.

    Lines are as `read_fragments` takes them, with `node_type`, and if known `doc_id` and `agreed_confidence`
    (`high` or `low`), or `confidence` if one person spoke alone.

    Raises:
        WrongInput: As `read_fragments`; a type is not one of the six; there is no line.
    """
    fragments = list(read_fragments(path))
    lines = list(read_lines(path, "{id, heading_path, block, previous, text, next, node_type}"))
    for where, record in lines:
        if record.get("node_type") not in NODE_TYPES:
            msg = f"{where}: `node_type` is {record.get('node_type')!r}, not one of {', '.join(NODE_TYPES)}"
            raise WrongInput(msg)
    if not lines:
        raise WrongInput(f"{path}: holds no fragment; give a file of labelled ones, a JSON object a line")
    records = [record for _, record in lines]
    return Gold(
        fragments,
        [document_in(record, f) for record, f in zip(records, fragments, strict=True)],
        [record["node_type"] for record in records],
        [record.get("agreed_confidence", record.get("confidence")) == "high" for record in records],
        ["low" in (record.get("confidence"), record.get("agreed_confidence")) for record in records],
    )


def confusion(labels: Sequence[str], answers: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return counts, `{what people said: {what was answered: n}}`, both in the order of `NODE_TYPES`."""
    pairs = Counter(zip(labels, answers, strict=True))
    return {label: {answer: pairs[label, answer] for answer in NODE_TYPES} for label in NODE_TYPES}


def accuracy(labels: Sequence[str], answers: Sequence[str]) -> float:
    """Return the share of answers that are what people said; 0 of none."""
    return sum(a == b for a, b in zip(labels, answers, strict=True)) / max(len(labels), 1)


def by_type(table: Confusion) -> dict[str, dict[str, float]]:
    """Return for each type that occurs how often people and answers name it, precision, recall and F1."""
    found = {}
    for name, row in table.items():
        said, answered, right = sum(row.values()), sum(other[name] for other in table.values()), row[name]
        if said or answered:
            found[name] = {
                "gold": said, "answered": answered, "precision": right / max(answered, 1),
                "recall": right / max(said, 1), "f1": 2 * right / (said + answered),
            }  # fmt: skip
    return found


def macro_f1(table: Confusion) -> float:
    """Return the plain mean of the F1 of the types that occur in labels or answers."""
    return fmean(row["f1"] for row in by_type(table).values())


def agreement(gold: Gold, answers: Sequence[Typed]) -> dict[str, Any]:
    """Return how answers agree with people.

    `fragments`, `accuracy`, `macro_f1`, `ece`, `sure` (the first three for rows of which people were sure,
    null if there are none), `types` (`by_type`), `confusion` and `calibration`.
    """
    given = [answer.node_type for answer in answers]
    right = [a == b for a, b in zip(gold.node_types, given, strict=True)]
    bins = calibration([answer.confidence for answer in answers], right)
    sure = [k for k, is_sure in enumerate(gold.sure) if is_sure]
    table = confusion(gold.node_types, given)
    return {
        **_figures(gold.node_types, given), "ece": calibration_error(bins),
        "sure": _figures([gold.node_types[k] for k in sure], [given[k] for k in sure]) if sure else None,
        "types": by_type(table), "confusion": table, "calibration": bins,
    }  # fmt: skip


def threshold_table(
    gold: Gold, local: Sequence[Typed], llm: Sequence[str] | None, assumed: float
) -> list[dict[str, Any]]:
    """Return, for each threshold, the share that goes to a language model, and the accuracy of all then.

    `llm` has the model's labels of all fragments; None: it has not been asked, and its accuracy is `assumed`.
    Rows have `threshold`, `sent` (share), `kept_accuracy` and `sent_accuracy` (of the local answers that
    stay, and of those that are replaced; null if there are none), and `accuracy`, measured or expected.
    """
    rows = []
    points = hybrid_curve(gold.node_types, local, llm or [t.node_type for t in local], THRESHOLDS)
    for point in points:
        right: dict[bool, list[bool]] = {True: [], False: []}
        for label, answer in zip(gold.node_types, local, strict=True):
            right[answer.confidence < point.threshold].append(label == answer.node_type)
        kept, sent = (fmean(right[k]) if right[k] else None for k in (False, True))
        expected = (1 - point.sent) * (kept or 0.0) + point.sent * assumed
        rows.append({
            "threshold": point.threshold, "sent": point.sent, "kept_accuracy": kept, "sent_accuracy": sent,
            "accuracy": expected if llm is None else point.accuracy,
        })  # fmt: skip
    return rows


def _figures(labels: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
    f1 = macro_f1(confusion(labels, answers))
    return {"fragments": len(labels), "accuracy": accuracy(labels, answers), "macro_f1": f1}


MOST_DOCUMENTS = 400  # parsed skills of which nodes are drawn


class SampledNode(NamedTuple):
    """A node to be labelled, as a line of a file, and the stratum that it was drawn from."""

    line: dict[str, Any]
    stratum: tuple[str, str, str]


def balanced_nodes(documents: Mapping[str, Sequence[Node]], count: int) -> list[SampledNode]:
    """Return nodes drawn by a hash of their ids, one of each type, source and size of skill before a second.

    A source is the owner of a skill, a size whether it has at most 50, 100 or more nodes (SkillPager, 5.1.1).
    """
    strata: dict[tuple[str, str, str], list[SampledNode]] = {}
    for doc_id, nodes in documents.items():
        size = next((f"up to {most}" for most in (50, 100) if len(nodes) <= most), "over 100")
        for node, previous, after in zip(nodes, [None, *nodes], [*nodes[1:], None], strict=False):
            line = {
                "id": node.node_id, "doc_id": doc_id, "heading_path": list(node.heading_path),
                "block": node.block, "previous": previous and previous.text, "text": node.text,
                "next": after and after.text, "node_type": "",
            }  # fmt: skip
            stratum = node.node_type, doc_id.partition("/")[0], size
            strata.setdefault(stratum, []).append(SampledNode(line, stratum))

    def drawn(one: SampledNode) -> bytes:
        return hashlib.sha256(str(one.line["id"]).encode()).digest()

    ranked = [sorted(own, key=drawn) for own in strata.values()]
    by_type: dict[str, list[tuple[int, bytes, SampledNode]]] = {}
    for own in ranked:
        for turn, one in enumerate(own):
            by_type.setdefault(one.stratum[0], []).append((turn, drawn(one), one))
    in_turn = zip_longest(*(sorted(own, key=lambda row: row[:2]) for _, own in sorted(by_type.items())))
    return [row[2] for turn in in_turn for row in turn if row is not None][:count]


Documents = Mapping[str, Sequence[Node]]


def sampled_documents(root: Root, count: int) -> dict[str, list[Node]]:
    """Return the nodes, in order, of at most `count` parsed documents, drawn by a hash of their ids.

    Raises:
        WrongInput: The root holds no parsed document.
    """
    table = nodes_table(root)
    ids = table.read(columns=["doc_id"])["doc_id"].unique().to_list()
    if not ids:
        raise WrongInput(f"{root.uri} holds no parsed skill: run `skillery run --root {root.uri}` first")
    drawn = sorted(ids, key=lambda d: hashlib.sha256(d.encode()).digest())[:count]
    found: dict[str, list[Node]] = {doc_id: [] for doc_id in sorted(drawn)}
    rows = table.read().filter(pl.col("doc_id").is_in(drawn)).sort("doc_id", "ordinal")
    for row in rows.iter_rows(named=True):
        found[row["doc_id"]].append(Node(**{**row, "heading_path": tuple(row["heading_path"])}))
    return found


def edge_agreement(documents: Documents, linked: Linked, model: str) -> dict[str, Any]:
    """Return how far the rules agree with what a model answered, whose pairs are taken as the truth.

    Documents of which the model left a part unanswered do not count: `documents` is the number of the others.
    `rules` and `candidates` have for each of `condition` and `reference`: `llm` and `found` (pairs),
    `precision`, `recall` and `f1`, each in [0, 1]. The candidates are those that hybrid asks about: their
    recall is the most that hybrid can reach.
    """
    whole = {d for d, pairs in linked.pairs.items() if all(by == model for *_, by in pairs)}
    truth = {(d, *pair[:3]) for d in whole for pair in linked.pairs[d]}

    def against(pairs_of: Callable[[Sequence[Node]], Sequence[Pair]]) -> dict[str, dict[str, float]]:
        given = {(d, *pair) for d in whole for pair in pairs_of(documents[d])}
        return {kind: _scores(_of(given, kind), _of(truth, kind)) for kind in KINDS}

    return {"documents": len(whole), "rules": against(text_pairs), "candidates": against(candidate_pairs)}


_Placed = set[tuple[str, int, int, str]]


def _of(pairs: _Placed, kind: str) -> _Placed:
    return {pair for pair in pairs if pair[3] == kind}


def _scores(found: _Placed, truth: _Placed) -> dict[str, float]:
    right = len(found & truth)
    return {
        "llm": len(truth), "found": len(found), "precision": right / max(len(found), 1),
        "recall": right / max(len(truth), 1), "f1": 2 * right / max(len(found) + len(truth), 1),
    }  # fmt: skip
