"""What a page is worth: the outcome of a query, and the measures of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.evaluate.measures.statistics import (
    bootstrap_interval,
    bootstrap_ratio_interval,
    clustered_interval,
)

# Nodes of a document up to which it belongs to a group; the paper's own line is at 100.
SIZES = (50, 100, 149, 299)
_BREADTHS = ("narrow", "medium", "broad")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one query got: measures of its context and of its document.

    Args:
        coverage: Share of its evidence in the context.
        tokens, nodes: Of the context; nodes that it holds whole.
        document_tokens, size: Of the body; nodes of the document.
        milliseconds: Time of the page, its query's encoding included.
        node_tokens: Of all nodes joined, the paper's whole document.
        breadth: As the query has it.
        context: The text, for a judge.
        verdict: Whether that judge finds that it suffices; None: the evidence decides.
        chunks: Of the context, for a method that picks chunks.
        held_out: Whether the packaged scorer was fitted on the document, and another one that never saw it
            took its place.
    """

    coverage: float
    tokens: int
    document_tokens: int
    nodes: int
    milliseconds: float
    node_tokens: int = 0
    query_id: str = ""
    doc_id: str = ""
    breadth: str | None = None
    size: int = 0
    context: str = ""
    verdict: bool | None = None
    chunks: int | None = None
    held_out: bool = False

    @property
    def units(self) -> int:
        """The number of units in the context, of the kind that the method picks: nodes or chunks."""
        return self.nodes if self.chunks is None else self.chunks

    @property
    def sufficient(self) -> bool:
        """Whether the context suffices: by the judge who read it, else by its evidence."""
        return self.coverage == 1.0 if self.verdict is None else self.verdict


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the measures of one method and budget with their intervals; there is at least one outcome.

    `sufficient` is the share of queries whose context covers all evidence, `coverage` the mean share of
    evidence covered, `token_reduction` is `1 - tokens of contexts / tokens of bodies`, both summed over
    queries (`token_reduction_nodes` against all nodes joined, as the paper has it), and `units` the mean
    number of units in a context, of the kind that the method picks: nodes or chunks (`nodes`: of the nodes
    that it holds whole, in either case). `held_out` queries are paged by a scorer that never saw the
    document, as the packaged one was fitted on it. `ci95` holds percentile bootstrap intervals over queries,
    `ci95_clustered` that of `sufficient` over documents; `median_ms` and `p95_ms` are of a query, its
    encoding included. `by_breadth` and `by_size` hold the first three for groups of queries, with the
    interval of `sufficient`.
    """
    values = {
        "sufficient": [float(outcome.sufficient) for outcome in outcomes],
        "coverage": [outcome.coverage for outcome in outcomes],
        "units": [float(outcome.units) for outcome in outcomes],
    }
    bodies = [max(outcome.document_tokens, 1) for outcome in outcomes]
    left_out = [body - outcome.tokens for body, outcome in zip(bodies, outcomes, strict=True)]
    milliseconds = [outcome.milliseconds for outcome in outcomes]
    doc_ids = [outcome.doc_id for outcome in outcomes]
    return {
        **_core(outcomes),
        "units": float(np.mean(values["units"])),
        "nodes": float(np.mean([outcome.nodes for outcome in outcomes])),
        "held_out": sum(outcome.held_out for outcome in outcomes),
        "token_reduction_nodes": _reduction(outcomes, [outcome.node_tokens for outcome in outcomes]),
        "ci95": {
            **{measure: list(bootstrap_interval(column)) for measure, column in values.items()},
            "token_reduction": list(bootstrap_ratio_interval(left_out, bodies)),
        },
        "ci95_clustered": {"sufficient": list(clustered_interval(values["sufficient"], doc_ids))},
        "median_ms": float(np.median(milliseconds)),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
        "by_breadth": _groups(sorted(outcomes, key=_breadth_order), lambda outcome: outcome.breadth or ""),
        "by_size": _groups(sorted(outcomes, key=lambda o: o.size), lambda outcome: size_group(outcome.size)),
    }


def _core(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "queries": len(outcomes),
        "sufficient": float(np.mean([outcome.sufficient for outcome in outcomes])),
        "coverage": float(np.mean([outcome.coverage for outcome in outcomes])),
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
    }


def _reduction(outcomes: Sequence[Outcome], whole: Sequence[int]) -> float:
    return 1 - sum(outcome.tokens for outcome in outcomes) / max(sum(whole), 1)


def _groups(outcomes: Sequence[Outcome], name: Callable[[Outcome], str]) -> dict[str, Any]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(name(outcome), []).append(outcome)
    return {key: {**_core(group), "ci95": _group_interval(group)} for key, group in groups.items() if key}


def _group_interval(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    return {"sufficient": list(bootstrap_interval([float(outcome.sufficient) for outcome in outcomes]))}


def _breadth_order(outcome: Outcome) -> tuple[int, str]:
    breadth = outcome.breadth or ""
    return (_BREADTHS.index(breadth) if breadth in _BREADTHS else len(_BREADTHS)), breadth


def size_group(nodes: int) -> str:
    """Return the name of the group of documents with so many nodes."""
    for low, high in zip((0, *SIZES), SIZES, strict=False):
        if nodes <= high:
            return f"{low + 1} to {high} nodes" if low else f"up to {high} nodes"
    return f"{SIZES[-1] + 1} nodes or more"
