"""Outcomes of paging: what one query got, and the measures of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from tasks.evaluate.measures.runs import grouped, latency, long_table, summarise
from tasks.evaluate.measures.statistics import bootstrap_ratio_interval, clustered_interval
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS

# A method, and a budget as `page` takes it; None: the method's own limit.
Setting = tuple[str, float | None]
# Nodes of a document up to which it belongs to a group; the paper's own line is at 100.
SIZES = (50, 100, 149, 299)
_BREADTHS = ("narrow", "medium", "broad")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one query got: measures of its context and of its document."""

    coverage: float | None  # share of its evidence in the context; None: the query has none
    tokens: int  # of the context
    document_tokens: int  # of the body
    nodes: int  # that the context holds whole
    milliseconds: float  # of the page, its query's encoding included
    node_tokens: int = 0  # of all nodes joined, the paper's whole document
    query_id: str = ""
    doc_id: str = ""
    breadth: str | None = None
    size: int = 0  # nodes of the document
    context: str = ""  # for a judge
    verdict: bool | None = None  # whether that judge finds that it suffices; None: the evidence decides
    chunks: int | None = None  # of the context, for a method that picks chunks
    held_out: bool = False  # whether a scorer that never saw the document took the packaged one's place

    @property
    def units(self) -> int:
        """The number of units in the context, of the kind that the method picks: nodes or chunks."""
        return self.nodes if self.chunks is None else self.chunks

    @property
    def sufficient(self) -> bool | None:
        """Whether the context suffices: by the judge who read it, else by its evidence, else unknown."""
        return by_evidence(self) if self.verdict is None else self.verdict


def by_evidence(outcome: Outcome) -> bool | None:
    """Return whether a context holds all evidence; None: there is none."""
    return None if outcome.coverage is None else outcome.coverage == 1.0


def rows_of(measured: Mapping[Setting, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Return a row for each method and budget, as `summarise_outcomes` has it."""
    return [{"method": m, "budget": b, **summarise_outcomes(found)} for (m, b), found in measured.items()]


def summarise_outcomes(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the measures of one method and budget with their intervals; there is at least one outcome.

    `sufficient` is the share of queries whose context covers all evidence, `coverage` the mean share of
    evidence covered (null where no query has any), `token_reduction` is `1 - tokens of contexts / tokens of
    bodies`, both summed over queries (`token_reduction_nodes` against all nodes joined, as the paper has
    it), and `units` the mean number of units in a context, of the kind that the method picks: nodes or chunks
    (`nodes`: of the nodes that it holds whole, in either case). `held_out` queries are paged by a scorer that
    never saw the document, as the packaged one was fitted on it. `ci95` holds percentile bootstrap intervals
    over queries, `ci95_clustered` that of `sufficient` over documents; `median_ms` and `p95_ms` are of a
    query, its encoding included. `by_breadth`, `by_size` and `by_budget` hold the first three for groups of
    queries, with the interval of `sufficient`.
    """
    found = _means(outcomes, "sufficient", "coverage", "units")
    bodies = [max(outcome.document_tokens, 1) for outcome in outcomes]
    left_out = [body - outcome.tokens for body, outcome in zip(bodies, outcomes, strict=True)]
    found["ci95"]["token_reduction"] = list(bootstrap_ratio_interval(left_out, bodies))
    known = [outcome for outcome in outcomes if outcome.sufficient is not None]
    sufficient = [float(bool(outcome.sufficient)) for outcome in known]
    by_breadth, by_size = sorted(outcomes, key=_breadth_order), sorted(outcomes, key=lambda o: o.size)
    return {
        "queries": len(outcomes),
        **found,
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
        "token_reduction_nodes": _reduction(outcomes, [outcome.node_tokens for outcome in outcomes]),
        "nodes": sum(outcome.nodes for outcome in outcomes) / len(outcomes),
        "held_out": sum(outcome.held_out for outcome in outcomes),
        "ci95_clustered": {
            "sufficient": list(clustered_interval(sufficient, [o.doc_id for o in known])) if known else None
        },
        **latency([outcome.milliseconds for outcome in outcomes]),
        "by_breadth": {n: _group(part) for n, part in grouped(by_breadth, lambda o: o.breadth).items()},
        "by_size": {n: _group(part) for n, part in grouped(by_size, lambda o: size_group(o.size)).items()},
        "by_budget": {n: _group(part) for n, part in grouped(by_size, budget_group).items()},
    }


def _means(outcomes: Sequence[Outcome], *measures: str) -> dict[str, Any]:
    """Return means and intervals as `summarise`, each of the queries where it is known; null if of none."""
    columns = {m: [v for o in outcomes if (v := getattr(o, m)) is not None] for m in measures}
    found = summarise({m: [float(v) for v in values] for m, values in columns.items() if values})
    return {**dict.fromkeys(measures), **found}


def _reduction(outcomes: Sequence[Outcome], whole: Sequence[int]) -> float:
    return 1 - sum(outcome.tokens for outcome in outcomes) / max(sum(whole), 1)


def _group(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "queries": len(outcomes),
        "token_reduction": _reduction(outcomes, [outcome.document_tokens for outcome in outcomes]),
        "coverage": _means(outcomes, "coverage")["coverage"],
        **_means(outcomes, "sufficient"),
    }


def _breadth_order(outcome: Outcome) -> tuple[int, str]:
    breadth = outcome.breadth or ""
    return (_BREADTHS.index(breadth) if breadth in _BREADTHS else len(_BREADTHS)), breadth


def size_group(nodes: int) -> str:
    """Return the name of the group of documents with so many nodes."""
    for low, high in zip((0, *SIZES), SIZES, strict=False):
        if nodes <= high:
            return f"{low + 1} to {high} nodes" if low else f"up to {high} nodes"
    return f"{SIZES[-1] + 1} nodes or more"


def budget_group(outcome: Outcome) -> str:
    """Return the name of the group of documents that get as many nodes by SkillPager's equation 4."""
    large = OPEN_SETTINGS.large
    return f"up to {large} nodes" if outcome.size <= large else f"over {large} nodes"


_MEASURED = (
    "coverage", "tokens", "document_tokens", "nodes", "node_tokens", "milliseconds", "size", "chunks",
)  # fmt: skip


def run_table(measured: Mapping[Setting, Sequence[Outcome]]) -> pl.DataFrame:
    """Return the long table of outcomes, `sufficient` by evidence and `verdict` by the judge, if one read it.

    Contexts are left out: they would be most of the file.
    """
    rows = [
        {"method": method, "budget": budget, **asdict(outcome), "sufficient": by_evidence(outcome)}
        for (method, budget), outcomes in measured.items()
        for outcome in outcomes
    ]
    schema = {
        "budget": pl.Float64, "breadth": pl.String, "chunks": pl.Int64, "coverage": pl.Float64,
        "sufficient": pl.Boolean, "verdict": pl.Boolean,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
    return long_table("paging", frame.drop("context"), ["sufficient", "verdict", *_MEASURED])
