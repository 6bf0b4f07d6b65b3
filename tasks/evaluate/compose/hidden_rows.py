"""Hidden rows: plans when rows that requests need are taken out of what can be found.

`transfer` tells what happens to the number of steps (SkillWeaver, section 7.9). `without_gold` tells whether
a plan's confidence falls when what serves a step is gone, or is chosen wrongly: of each request one step,
drawn by a seed, loses all that serves it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import WrongInput
from tasks.evaluate.compose.bench import MethodRun, compared, run_method, summary
from tasks.evaluate.compose.measures import Needed, Planned, served_pairs
from tasks.evaluate.compose.methods import Asking, PlanMethod
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tasks.evaluate.measures.statistics import auroc
from tasks.retrieve.served_index import ServedIndex

_SHARE = 0.2  # of rows that a report leaves out
_KEYS = re.compile(
    r"\b(?:(?:api|access)[ -]?(?:key|token)s?|oauth\w*|credentials?|authenticat\w+|(?:log|sign)[ -]?in)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Rows that are taken out of what can be found, as ids in lower case, and what is said of them."""

    label: str
    ids: frozenset[str]
    categories: frozenset[str] = frozenset()


def rows_by_id(index: ServedIndex, categories: CategorySet) -> dict[str, frozenset[str]]:
    """Return the categories that count of each served row, by its id in lower case, in the order of ids."""
    with index.version() as now:
        table = now.skills.rows(["doc_id", "category"])
    held = zip(table.column("doc_id").to_pylist(), table.column("category").to_pylist(), strict=True)
    return dict(sorted((doc_id.lower(), categories.of(category)) for doc_id, category in held))


def pool_of(index: ServedIndex, categories: CategorySet) -> dict[str, Any]:
    """Return what is served: `rows`, those of each of `categories`, and the share that needs `keys`.

    A row needs a key or a login if its name or description speaks of one (SkillWeaver, appendix H).
    """
    with index.version() as now:
        rows = now.skills.rows(["name", "description", "category"]).to_pylist()
    sizes = Counter(name for row in rows for name in categories.of(row["category"]))
    asking = sum(bool(_KEYS.search(f"{row['name']} {row['description']}")) for row in rows)
    return {"rows": len(rows), "keys": asking / max(len(rows), 1), "categories": dict(sizes.most_common())}


def without_categories(rows: Mapping[str, frozenset[str]], wanted: Sequence[str]) -> TakenRows:
    """Return the rows of some categories, whatever the letter case in which these are given.

    Raises:
        WrongInput: No row is of one of them.
    """
    known = {name.casefold(): name for found in rows.values() for name in found}
    for name in wanted:
        if name.casefold() not in known:
            there = ", ".join(sorted(known.values()))
            raise WrongInput(f"--without-category {name!r}: nothing served is of it; there are {there}")
    chosen = frozenset(known[name.casefold()] for name in wanted)
    ids = frozenset(doc_id for doc_id, found in rows.items() if found & chosen)
    return TakenRows(f"without {', '.join(sorted(chosen))}", ids, chosen)


def left_out_share(rows: Mapping[str, frozenset[str]], share: float, seed: int) -> TakenRows:
    """Return a share of all rows, drawn by a seed.

    Raises:
        WrongInput: The share is not above 0 and below 1.
    """
    if not 0 < share < 1:
        raise WrongInput(f"--leave-out is {share:g}: give a share above 0 and below 1")
    ids = sorted(rows)
    drawn = np.random.default_rng(seed).permutation(len(ids))[: round(share * len(ids))]
    return TakenRows(f"without {share:.0%} of rows, seed {seed}", frozenset(ids[i] for i in drawn))


def most_needed(requests: Sequence[KnownRequest], rows: Mapping[str, frozenset[str]], n: int) -> list[str]:
    """Return the `n` categories that most requests need, of those that are served; equals by name."""
    served = {name for found in rows.values() for name in found}
    needed = Counter(
        name for r in requests for name in {c for step in r.needed.steps for c in step.categories} & served
    )
    return sorted(needed, key=lambda name: (-needed[name], name))[:n]


def taken_rows(
    requests: Sequence[KnownRequest], rows: Mapping[str, frozenset[str]], wanted: Sequence[str],
    share: float | None, seed: int, *, whole: bool,
) -> list[TakenRows]:  # fmt: skip
    """Return the rows of categories, and a share, if wanted; of a `whole` report by default as the paper.

    That is two categories, those that most requests need, and a fifth of the rows (section 7.9).
    """
    if whole:
        wanted, share = wanted or most_needed(requests, rows, 2), _SHARE if share is None else share
    found = [without_categories(rows, wanted)] if wanted else []
    return found + ([left_out_share(rows, share, seed)] if share is not None else [])


def needing(requests: Sequence[KnownRequest], taken: TakenRows) -> list[KnownRequest]:
    """Return the requests that need what was taken: a step loses one of its `servers`.

    Where these are not known, a step of a category that was taken counts, and of drawn rows every request.
    """

    def needs(request: KnownRequest) -> bool:
        if request.main:
            return any(main & taken.ids for main in request.main)
        return not taken.categories or any(s.categories & taken.categories for s in request.needed.steps)

    return [*filter(needs, requests)]


def transfer(
    asking: Asking, method: PlanMethod, run: MethodRun, taken: TakenRows,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:  # fmt: skip
    """Return what a method's plans lose when rows are taken out of what can be found.

    That is `label`, `kind` (`categories` or `share`), `rows` taken, `queries` that need them, and `unserved`,
    those of which a step loses all that serves it (null where that is not known); of these queries `with`,
    `without` (summaries) and `da` (`compared`, the plans without the rows against those with them). All are
    null where no query needs the rows.
    """
    chosen = needing(run.requests, taken)
    kind = "categories" if taken.categories else "share"
    found: dict[str, Any] = {
        "label": taken.label, "kind": kind, "rows": len(taken.ids), "queries": len(chosen),
    }  # fmt: skip
    if not chosen:
        return {**found, "unserved": None, "with": None, "without": None, "da": None}
    hidden = {request.query_id: taken.ids for request in chosen}
    bare, whole = run_method(asking, method, chosen, step, hidden), run.among(hidden)
    return {
        **found,
        "unserved": sum(_loses_all(request, taken) for request in chosen) if chosen[0].main else None,
        "with": summary(whole),
        "without": summary(bare),
        "da": compared(bare.column("da"), whole.column("da")),
    }


def _loses_all(request: KnownRequest, taken: TakenRows) -> bool:
    return any(step.servers is not None and step.servers <= taken.ids for step in request.needed.steps)


def require_servers(requests: Sequence[KnownRequest], option: str) -> None:
    """Raise `WrongInput` if the servers of a step are not known."""
    if unknown := [request.query_id for request in requests if not request.needed.known_servers]:
        msg = (
            f"{option}: query {unknown[0]!r} does not say which servers serve its steps: leave the option out"
        )
        raise WrongInput(msg)


def drawn_step(request: KnownRequest, seed: int) -> int:
    """Return the place of one step of a request; it depends on the request's id and the seed alone."""
    digest = hashlib.sha256(f"{seed}/{request.query_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % len(request.needed.steps)


def hidden_servers(request: KnownRequest, seed: int) -> frozenset[str]:
    """Return the ids that serve the drawn step of a request, `also` among them."""
    return request.needed.steps[drawn_step(request, seed)].servers or frozenset()


def without_gold(
    asking: Asking, method: PlanMethod, run: MethodRun, seed: int, step: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return what a method's confidence tells of steps whose servers are gone, and of wrong choices.

    `run` is the method's with everything; the servers of each step are known. The seed draws the step of each
    request; `step` is called after each.

    Returns:
        `requests`, those that have steps; `auroc_served`, between the confidence of the drawn steps with
        their servers and without, and `steps`, those that are paired in both runs; `auroc_right`, between
        right and wrong first candidates in the run with everything, `right` and `wrong`, their numbers;
        `gaps`, the shares of the drawn steps that are gaps `with` and `without` their servers. A figure of
        nothing is null.
    """
    chosen = [request for request in run.requests if request.needed.steps]
    whole = run.among([request.query_id for request in chosen])
    hidden = {request.query_id: hidden_servers(request, seed) for request in chosen}
    bare = run_method(asking, method, chosen, step, hidden)
    served, gone = [], []
    for request, a, b in zip(chosen, whole.made, bare.made, strict=True):
        place = drawn_step(request, seed)
        one = _pair(a.plan, request.needed, place)
        other = _pair(b.plan, request.needed, place, None if one is None else a.plan.steps[one].text)
        if one is not None and other is not None:
            served.append(a.plan.steps[one])
            gone.append(b.plan.steps[other])
    right, wrong = _choices(whole)
    return {
        "requests": len(chosen), "steps": len(served),
        "auroc_served": auroc([s.sure for s in served], [s.sure for s in gone]),
        "auroc_right": auroc(right, wrong), "right": len(right), "wrong": len(wrong),
        "gaps": {
            "with": sum(s.gap for s in served) / len(served) if served else None,
            "without": sum(s.gap for s in gone) / len(gone) if gone else None,
        },
    }  # fmt: skip


def _pair(plan: Planned, needed: Needed, place: int, text: str | None = None) -> int | None:
    """Return the planned step that is paired with a needed one; first the one of a text, if one has it."""
    # Without its servers a step has no hit, and another one that misses could be taken for it.
    same = [number for number, step in enumerate(plan.steps) if step.text == text]
    pairs = {b: a for a, b, _ in served_pairs(plan, needed, 10)}
    return pairs.get(place) if not same or pairs.get(place) in same else same[0]


def _choices(run: MethodRun) -> tuple[list[float], list[float]]:
    """Return the confidence of right and of wrong first candidates; a step paired with none is wrong."""
    right, wrong = list[float](), list[float]()
    for request, made in zip(run.requests, run.made, strict=True):
        good = {a for a, _, ok in served_pairs(made.plan, request.needed, 1) if ok}
        for number, step in enumerate(made.plan.steps):
            (right if number in good else wrong).append(step.sure)
    return right, wrong
