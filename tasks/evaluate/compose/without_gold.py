"""Without gold: does a plan's confidence fall when what serves a step is taken away, or is chosen wrongly?

Of each request one step, drawn by a seed, loses all that serves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from storage.errors import WrongInput
from tasks.evaluate.compose.bench import MethodRun, run_method
from tasks.evaluate.compose.measures import Needed, Planned, served_pairs
from tasks.evaluate.compose.methods import Asking, PlanMethod
from tasks.evaluate.compose.requests import KnownRequest
from tasks.evaluate.measures.statistics import auroc


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
    asking: Asking,
    method: PlanMethod,
    run: MethodRun,
    seed: int,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return what a method's confidence tells of steps whose servers are gone, and of wrong choices.

    Args:
        asking: As the run with everything was asked.
        method: The method.
        run: Of the method with everything; the servers of each step are known.
        seed: Draws the step of each request.
        step: Called after each request.

    Returns:
        `requests`, those that have steps; `auroc_served`, between the confidence of the drawn steps with
        their servers and without, and `steps`, those that are paired in both runs; `auroc_right`, between
        right and wrong first candidates in the run with everything, `right` and `wrong`, their numbers;
        `gaps`, the shares of the drawn steps that are gaps `with` and `without` their servers. A figure of
        nothing is null.
    """
    chosen = [request for request in run.requests if request.needed.steps]
    whole = run.among(request.query_id for request in chosen)
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
