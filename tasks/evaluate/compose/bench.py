"""The bench of compose: methods measured on requests whose steps, servers and dependencies are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.served import require_licences
from tasks.evaluate.compose.measures import Needed, NeededStep, Planned, PlannedStep, measured
from tasks.evaluate.measures.statistics import bootstrap_interval, holm_bonferroni, paired_bootstrap
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.compose.decompose.draft import DraftStep
from tasks.retrieve.compose.dependencies import ordered
from tasks.retrieve.routing.search import Filters
from tasks.retrieve.served_index import ServedIndex

CANDIDATES = 10
_CUTS = (
    re.compile(r"(?<=[.!?])\s+|[;:]\s+"),
    re.compile(r",\s+(?:and\s+)?(?:(?:then|next|finally)\s+)?|\s+and\s+(?:(?:then|afterwards|finally)\s+)?"),
)


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request whose steps are known: what it says, what each step is for, and what it needs."""

    query_id: str
    query: str
    difficulty: str
    descriptions: tuple[str, ...]
    needed: Needed


def read_requests(path: Path) -> list[KnownRequest]:
    """Return the requests of a file of JSON lines `{query_id, query, difficulty, steps, edges}`.

    A step has `description`, `servers`, and if known `also` and `categories`; an edge is a pair of places
    from 1 on.

    Raises:
        WrongInput: The file cannot be read, holds none, or a line has another form; names file and line.
    """
    found = [_request(where, row) for where, row in read_lines(path, "{query_id, query, steps, edges}")]
    if not found:
        msg = f"{path}: holds no request; give JSON lines {{query_id, query, steps, edges}}"
        raise WrongInput(msg)
    return found


def _request(where: str, row: dict[str, Any]) -> KnownRequest:
    try:
        steps = tuple(
            NeededStep(
                frozenset(name.lower() for name in (*step["servers"], *step.get("also", ()))),
                frozenset(step.get("categories", ())),
            )
            for step in row["steps"]
        )
        edges = frozenset((int(a) - 1, int(b) - 1) for a, b in row.get("edges", ()))
        told = tuple(str(step["description"]) for step in row["steps"])
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{where}: a step has no `servers` or `description`, or an edge is no pair ({error!r})"
        raise WrongInput(msg) from error
    query_id, query = text_field(row, "query_id", where), text_field(row, "query", where)
    return KnownRequest(query_id, query, str(row.get("difficulty", "")), told, Needed(steps, edges))


Plan = Callable[[ServedIndex, KnownRequest], Planned]


def _local(rounds: int) -> Plan:
    def plan(index: ServedIndex, request: KnownRequest) -> Planned:
        found = compose(index, request.query, ComposeOptions(k=CANDIDATES, rounds=rounds))
        steps = tuple(
            PlannedStep(
                tuple(c["doc_id"].lower() for c in step["candidates"]),
                tuple(frozenset({c["category"]}) for c in step["candidates"]),
            )
            for step in found["steps"]
        )
        return Planned(steps, frozenset((e["from"] - 1, e["to"] - 1) for e in found["edges"]))

    return plan


def _given(texts_of: Callable[[KnownRequest], Sequence[str]], *, chain: bool) -> Plan:
    def plan(index: ServedIndex, request: KnownRequest) -> Planned:
        texts = texts_of(request)
        steps = tuple(_ranked(index, text) for text in texts)
        if chain:
            return Planned(steps, frozenset(pairwise(range(len(steps)))))
        drafts = [DraftStep(text, ((k, k),)) for k, text in enumerate(texts)]
        found = ordered(request.query, drafts).dependencies
        return Planned(steps, frozenset((d.before, d.after) for d in found))

    return plan


def _ranked(index: ServedIndex, text: str) -> PlannedStep:
    _, found = index.read(
        lambda now: now.searcher().search(
            text, k=CANDIDATES, filters=Filters(), licences=require_licences(now.root)
        )
    )
    ids = tuple(row["doc_id"].lower() for row, _ in found)
    return PlannedStep(ids, tuple(frozenset({row["category"]}) for row, _ in found))


def at_commas(query: str) -> list[str]:
    """Return a request cut at sentences, commas and `and`, without pieces of one word."""
    pieces = [piece for sentence in _CUTS[0].split(query) for piece in _CUTS[1].split(sentence)]
    return [piece for piece in pieces if len(piece.split()) > 1]


METHODS: dict[str, Plan] = {
    **{f"local-r{rounds}": _local(rounds) for rounds in (1, 0, 2, 3)},
    "whole": _given(lambda request: [request.query], chain=True),
    "commas": _given(lambda request: at_commas(request.query), chain=True),
    "gold-steps": _given(lambda request: request.descriptions, chain=False),
}


def require_methods(names: Iterable[str]) -> None:
    """Raise `WrongInput` if a method is not known."""
    if unknown := [name for name in names if name not in METHODS]:
        msg = f"--method {unknown[0]!r} is not known: choose one of {', '.join(METHODS)}"
        raise WrongInput(msg)


def compose_bench(
    index: ServedIndex, requests: Sequence[KnownRequest], methods: Sequence[str], baseline: str
) -> dict[str, Any]:
    """Measure methods on requests.

    Returns:
        `queries`, and `methods`: for each `method`, `queries`, the means of `measured`, `ci95` of each,
        `median_ms` and `p95_ms`, and `against` (the baseline: `{measure: {difference, p}}`, p of a paired
        bootstrap, adjusted by Holm over the measures; null for itself).

    Raises:
        WrongInput: A method is not known.
    """
    require_methods([*methods, baseline])
    runs: dict[str, list[dict[str, float]]] = {}
    times: dict[str, list[float]] = {}
    for name in dict.fromkeys([*methods, *([baseline] if baseline not in methods else [])]):
        runs[name], times[name] = [], []
        for request in requests:
            started = perf_counter()
            plan = METHODS[name](index, request)
            times[name].append(1000 * (perf_counter() - started))
            runs[name].append(measured(plan, request.needed))
    rows = []
    for name, values in runs.items():
        columns = {measure: [value[measure] for value in values] for measure in values[0]}
        rows.append({
            "method": name, "queries": len(values),
            **{measure: float(np.mean(column)) for measure, column in columns.items()},
            "ci95": {measure: list(bootstrap_interval(column)) for measure, column in columns.items()},
            "median_ms": median(times[name]), "p95_ms": float(np.percentile(times[name], 95)),
            "against": None if name == baseline else _against(columns, runs[baseline]),
        })  # fmt: skip
    return {"queries": len(requests), "methods": rows}


def _against(
    columns: dict[str, list[float]], baseline: Sequence[dict[str, float]]
) -> dict[str, dict[str, float]]:
    found = {m: paired_bootstrap(column, [row[m] for row in baseline]) for m, column in columns.items()}
    adjusted = holm_bonferroni([p for *_, p in found.values()])
    return {
        measure: {"difference": difference, "p": p}
        for (measure, (difference, *_)), p in zip(found.items(), adjusted, strict=True)
    }
