"""Measures of the rules' edges against a language model's answers about the same documents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import Node
from storage.state import nodes_table
from tasks.parse.edges.linker import Linked
from tasks.parse.edges.rules import Pair, text_pairs
from tasks.parse.edges.windows import KINDS, candidate_pairs

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

    Args:
        documents: The nodes of each document.
        linked: The answer about the same documents; documents on which it left a window out do not count.
        model: The name under which the model's pairs stand.

    Returns:
        `documents` (that count), and by `rules` and `candidates`, for each of `condition` and `reference`:
        `llm` and `found` (pairs), `precision`, `recall` and `f1`, each in [0, 1]. The candidates are those
        that hybrid asks about: their recall is the most that hybrid can reach.
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
