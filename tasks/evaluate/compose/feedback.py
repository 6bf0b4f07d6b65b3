"""Feedback: what rounds with hints change of the plans, and whether the right number of steps is what counts.

After SkillWeaver's sections 7.6 and 7.8, its figure 2 and appendix G; and, after its appendix I, a simulation
of carrying plans out: each step succeeds by chance, with a rate for each category. Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.evaluate.compose.appendices import papers
from tasks.evaluate.compose.bench import MethodRun, compared, summary
from tasks.evaluate.compose.measures import PlannedStep, served_pairs

_CONDITIONED = ("catr@1", "catr@10", "srvr@1", "srvr@10")


def rounds_of(runs: Mapping[str, MethodRun], most: int = 3) -> list[dict[str, Any]]:
    """Return a row for each number of rounds that was measured, 0 to `most`.

    A row has `round`, `method`, the means of its measures, `jaccard` (mean Jaccard of that round's hints with
    those before; a request whose steps did not change keeps its hints, which is 1), and `changed`, the number
    of requests whose steps the round changed; both are null before the first round.
    """
    rows = []
    for number in range(most + 1):
        name = f"local-r{number}"
        if name in runs:
            rows.append({
                "round": number, "method": name, **summary(runs[name], intervals=False),
                **_hints([made.jaccards for made in runs[name].made], number),
            })  # fmt: skip
    return rows


def _hints(found: Sequence[tuple[float, ...]], number: int) -> dict[str, float | None]:
    if not number:
        return {"jaccard": None, "changed": None}
    reached = [of[number - 1] for of in found if len(of) >= number]
    return {"jaccard": (sum(reached) + len(found) - len(reached)) / len(found), "changed": len(reached)}


def feedback(after: MethodRun, before: MethodRun) -> dict[str, Any]:
    """Return what feedback did, from a run with it and one without.

    Returns:
        `tests` (`compared` by measure); `corrected`, `spoilt` and `right`, the requests whose number of
        steps feedback made right, made wrong, and on which both are right: each with `queries` and, by
        measure of categories and servers, `{before, after, p}` of a signed-rank test; and `counts`, every
        request on which the number changed, with the texts of both plans' steps.
    """
    pairs = list(zip(before.values, after.values, strict=True))
    chosen = {
        "corrected": [i for i, (b, a) in enumerate(pairs) if a["da"] > b["da"]],
        "spoilt": [i for i, (b, a) in enumerate(pairs) if a["da"] < b["da"]],
        "right": [i for i, (b, a) in enumerate(pairs) if a["da"] and b["da"]],
    }
    tests = {m: compared(after.column(m), before.column(m)) for m in after.measures()}
    subsets = {name: _subset(after, before, places) for name, places in chosen.items()}
    return {"tests": tests, **subsets, "counts": _counts(after, before)}


def when_right(run: MethodRun) -> dict[str, Any]:
    """Return the recalls of the requests whose number of steps is right, and how many these are."""
    ids = [r.query_id for r, values in zip(run.requests, run.values, strict=True) if values["da"]]
    found = summary(run.among(ids), intervals=False)
    return {key: found[key] for key in ("queries", *_CONDITIONED) if key in found}


def _subset(after: MethodRun, before: MethodRun, places: Sequence[int]) -> dict[str, Any]:
    ids = [after.requests[i].query_id for i in places]
    one, other = after.among(ids), before.among(ids)
    found: dict[str, Any] = {"queries": len(ids)}
    for measure in _CONDITIONED if ids else ():
        a, b = one.column(measure), other.column(measure)
        if a:
            p = compared(a, b)["wilcoxon"]["p"]
            found[measure] = {"before": float(np.mean(b)), "after": float(np.mean(a)), "p": p}
    return found


def _counts(after: MethodRun, before: MethodRun) -> list[dict[str, Any]]:
    found = []
    for request, a, b in zip(after.requests, after.made, before.made, strict=True):
        new, old = ([step.text for step in made.plan.steps] for made in (a, b))
        if len(new) != len(old):
            needed = len(request.needed.steps)
            found.append({
                "query_id": request.query_id, "needed": needed, "before": len(old), "after": len(new),
                "nearer": abs(len(new) - needed) < abs(len(old) - needed),
                "steps_before": old, "steps_after": new,
            })  # fmt: skip
    return found


# Colours that stay apart for the colour-blind (Okabe and Ito), and marks for who sees none.
_LINES = {"da": ("DA", "#0072B2", "o"), "catr@10": ("CatR@10", "#009E73", "s")}
# Of the paper: its measures of rounds, their colours and marks.
_PAPER = (("da", "DA", "#0072B2", "o"), ("jaccard", "Jaccard", "#D55E00", "^"))


def draw_rounds(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the rows of `rounds_of` as SkillWeaver's figure 2, into a file of the kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    places = [row["round"] for row in rows]
    for measure, (label, colour, mark) in _LINES.items():
        if all(measure in row for row in rows):
            axes.plot(places, [row[measure] for row in rows], color=colour, marker=mark, label=label)
    later = [row for row in rows if row["jaccard"] is not None]
    style: dict[str, Any] = {"color": "#D55E00", "marker": "^", "linestyle": "--"}
    axes.plot([r["round"] for r in later], [r["jaccard"] for r in later], label="Jaccard of hints", **style)
    faint: dict[str, Any] = {"linestyle": ":", "markerfacecolor": "none", "alpha": 0.7}
    for key, label, colour, mark in _PAPER:
        points = [(int(n), held[key]) for n, held in papers()["rounds"].items() if key in held]
        axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=f"paper: {label}", **faint)
    axes.set_xticks(places, [f"{n}" for n in places])
    axes.set_xlabel("rounds with hints")
    axes.set_ylim(0, 1.03)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=5)
    axes.set_title("Rounds of skill-aware decomposition; the paper's are of its own requests", fontsize=10)
    figure.savefig(path, dpi=150)


RATES = (0.80, 0.95)  # of success, a category's rate is drawn between them
QUERIES = 30
REPEATS = 1_000


def simulated(run: MethodRun, seed: int, *, queries: int = QUERIES) -> dict[str, Any]:
    """Return how often steps and whole plans succeed in a simulation.

    Args:
        run: Plans of requests; `queries` of them are drawn.
        seed: Draws the requests, the categories' rates, and what succeeds, `REPEATS` times.
        queries: How many requests at most.

    Returns:
        `queries`, `repeats`, `steps` (mean of a plan), `da`; `ses`, the share of steps that succeed, and
        `ccr`, that of requests of which all do, each `[mean, low, high]` over the repeats (95 % of them);
        `ses_right` and `ccr_right` the same where a step succeeds only if its first candidate serves a
        needed step, null where it is not known what serves. A gap never succeeds, and a plan without steps
        does not either.
    """
    random = np.random.default_rng(seed)
    order = sorted(range(len(run.requests)), key=lambda i: run.requests[i].query_id)
    drawn = sorted(random.permutation(order)[:queries].tolist())
    plans = [run.made[i].plan for i in drawn]
    names = sorted({_category(step) for plan in plans for step in plan.steps})
    rate = dict(zip(names, random.uniform(*RATES, size=len(names)), strict=True))
    rates = [0.0 if step.gap else rate[_category(step)] for plan in plans for step in plan.steps]
    owners = np.array([i for i, plan in enumerate(plans) for _ in plan.steps], dtype=np.int64)
    done = random.random((REPEATS, len(rates))) < np.array(rates)
    known = all(run.requests[i].needed.known_servers for i in drawn)
    right = np.concatenate([_right(run, i) for i in drawn]) if known else None
    return {
        "queries": len(drawn), "repeats": REPEATS, "steps": len(rates) / len(drawn),
        "da": float(np.mean([run.values[i]["da"] for i in drawn])),
        **_shares(done, owners, len(drawn), ""),
        **(_shares(done & right, owners, len(drawn), "_right") if right is not None
           else {"ses_right": None, "ccr_right": None}),
    }  # fmt: skip


def _category(step: PlannedStep) -> str:
    return min(step.categories[0], default="") if step.categories else ""


def _right(run: MethodRun, i: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    plan, good = run.made[i].plan, np.zeros(len(run.made[i].plan.steps), dtype=bool)
    good[[a for a, _, ok in served_pairs(plan, run.requests[i].needed, 1) if ok]] = True
    return good


def _shares(done: Any, owners: Any, plans: int, suffix: str) -> dict[str, list[float]]:  # noqa: ANN401
    failed = np.zeros((len(done), plans))
    for plan in range(plans):
        own = owners == plan
        failed[:, plan] = (~done[:, own]).any(axis=1) if own.any() else True
    steps = done.mean(axis=1) if done.shape[1] else np.zeros(len(done))
    return {f"ses{suffix}": _spread(steps), f"ccr{suffix}": _spread(1 - failed.mean(axis=1))}


def _spread(values: Any) -> list[float]:  # noqa: ANN401
    return [float(np.mean(values)), *(float(q) for q in np.quantile(values, (0.025, 0.975)))]
