"""The bench of compose: methods measured on requests whose steps are known, and what hints change.

The latter is after SkillWeaver (sections 7.6 and 7.8, figure 2, appendix G). Appendix I is a simulation of
carrying plans out: each step succeeds by chance, with a rate for each category. Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl

from tasks.evaluate.compose.measures import PlannedStep, measured, served_pairs
from tasks.evaluate.compose.methods import Asking, MadePlan, PlanMethod
from tasks.evaluate.compose.requests import KnownRequest
from tasks.evaluate.measures.runs import latency, long_table, summarise
from tasks.evaluate.measures.statistics import holm_bonferroni, paired_bootstrap, wilcoxon
from tasks.evaluate.measures.tables import papers


@dataclass(frozen=True, slots=True)
class MethodRun:
    """One method's plans of requests, in their order, with the measures and milliseconds of each."""

    requests: Sequence[KnownRequest]
    made: Sequence[MadePlan]
    values: Sequence[dict[str, float]]
    times: Sequence[float]

    def column(self, measure: str) -> list[float]:
        """Return a measure on each request on which it is known, in their order."""
        return [value[measure] for value in self.values if measure in value]

    def measures(self) -> list[str]:
        """Return the measures that are known of some request."""
        return list(dict.fromkeys(name for value in self.values for name in value))

    def among(self, chosen: Collection[str]) -> MethodRun:
        """Return the run on requests of some ids."""
        kept = [i for i, request in enumerate(self.requests) if request.query_id in chosen]
        parts = (self.requests, self.made, self.values, self.times)
        return MethodRun(*([part[i] for i in kept] for part in parts))  # type: ignore[arg-type]


def run_method(
    asking: Asking, method: PlanMethod, requests: Sequence[KnownRequest],
    step: Callable[[], None] = lambda: None, without: Mapping[str, frozenset[str]] | None = None,
) -> MethodRun:  # fmt: skip
    """Ask a method about each request, after one request that is not timed; `step` is called after each.

    `without` holds, by `query_id`, the ids that a request must not find.
    """
    if requests:
        method(asking, requests[0])
    made, times = [], []
    for request in requests:
        hidden = asking.without(without[request.query_id]) if without else asking
        started = perf_counter()
        made.append(method(hidden, request))
        times.append(1000 * (perf_counter() - started))
        step()
    values = [measured(plan.plan, r.needed) for plan, r in zip(made, requests, strict=True)]
    return MethodRun(requests, made, values, times)


def run_table(runs: Mapping[str, MethodRun]) -> pl.DataFrame:
    """Return the long table of runs by method."""
    rows = [
        {"method": name, "query_id": request.query_id, **values}
        for name, run in runs.items()
        for request, values in zip(run.requests, run.values, strict=True)
    ]
    measures = list(dict.fromkeys(measure for run in runs.values() for measure in run.measures()))
    return long_table("compose", pl.DataFrame(rows, infer_schema_length=None), measures)


def summarise_methods(
    runs: Mapping[str, MethodRun], reworded: Mapping[str, MethodRun], baseline: str
) -> list[dict[str, Any]]:
    """Return a row for each method that was measured; `reworded` are the runs on paraphrases.

    A row has `method`, the measures' means, `ci95` (percentile bootstrap over requests, 10,000 resamples),
    `median_ms`, `p95_ms`, `by_difficulty`, `by_tag`, `by_category` (of the steps needed), `tokens` (means of
    the chosen and of all that is served, or null), `paraphrase` (`paraphrase_row`, null without any) and
    `against` (null for the baseline): by measure `compared` with the baseline, `p_adjusted` of both tests by
    Holm over the methods.
    """
    contests = against(runs, baseline)
    return [
        {
            "method": name, **summary(run), **latency(run.times),
            **{f"by_{group}": groups(run, of) for group, of in _GROUPS.items()}, "tokens": _tokens(run),
            "paraphrase": paraphrase_row(run, reworded[name]) if name in reworded else None,
            "against": contests.get(name),
        }
        for name, run in runs.items()
    ]  # fmt: skip


def summary(run: MethodRun, *, intervals: bool = True) -> dict[str, Any]:
    """Return how many requests there are, the means of their measures, and if wanted their `ci95`.

    `needed` is the mean number of steps that they need.
    """
    columns = {measure: run.column(measure) for measure in run.measures()}
    sizes = [len(request.needed.steps) for request in run.requests]
    counted = {"queries": len(sizes), "needed": float(np.mean(sizes)) if sizes else 0.0}
    if intervals:
        return {**counted, **summarise(columns)}
    return {**counted, **{measure: float(np.mean(column)) for measure, column in columns.items()}}


_GROUPS: dict[str, Callable[[KnownRequest], Iterable[str]]] = {
    "difficulty": lambda request: [request.difficulty or "unknown"],
    "tag": lambda request: request.tags or ["none"],
    "category": lambda request: {name for step in request.needed.steps for name in step.categories},
}
_RANK = {"single": 0, "easy": 1, "medium": 2, "hard": 3}  # difficulties are shown in this order


def groups(run: MethodRun, of: Callable[[KnownRequest], Iterable[str]]) -> dict[str, dict[str, Any]]:
    """Return a summary of each group's requests; a request may be in several."""
    members: dict[str, list[str]] = {}
    for request in run.requests:
        for group in of(request):
            members.setdefault(group, []).append(request.query_id)
    order = sorted(members, key=lambda name: (_RANK.get(name, len(_RANK)), -len(members[name]), name))
    return {group: summary(run.among(members[group]), intervals=False) for group in order}


def paraphrase_row(run: MethodRun, reworded: MethodRun) -> dict[str, Any]:
    """Return a summary of paraphrases, `original` of the same requests, `agreement`, and DA's difference.

    `agreement` is the share of requests on which DA is the same (SkillWeaver, section 7.4).
    """
    same = run.among([request.query_id for request in reworded.requests])
    a, b = reworded.column("da"), same.column("da")
    difference, low, high, p = paired_bootstrap(a, b)
    return {
        **summary(reworded),
        "original": summary(same, intervals=False),
        "agreement": float(np.mean([x == y for x, y in zip(a, b, strict=True)])),
        "difference": {"da": difference, "low": low, "high": high, "p": p},
    }


def against(runs: Mapping[str, MethodRun], baseline: str) -> dict[str, dict[str, Any]]:
    """Return `compared` of each other method with the baseline, by method and measure."""
    found: dict[str, dict[str, Any]] = {name: {} for name in runs if name != baseline}
    for measure in runs[baseline].measures():
        theirs = runs[baseline].column(measure)
        for name, own in found.items():
            own[measure] = compared(runs[name].column(measure), theirs)
        tests = [own[measure] for own in found.values()]
        for family in (tests, [test["wilcoxon"] for test in tests]):
            for test, p in zip(family, holm_bonferroni([test["p"] for test in family]), strict=True):
                test["p_adjusted"] = p
    return found


def compared(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Return how `a` differs from `b` by a paired bootstrap, and by Wilcoxon's signed-rank test."""
    difference, low, high, p = paired_bootstrap(a, b)
    w, differing, p_ranks = wilcoxon(a, b)
    signs = [(x > y) - (x < y) for x, y in zip(a, b, strict=True)]
    return {
        "difference": difference, "low": low, "high": high, "p": p,
        "wilcoxon": {"w": w, "differing": differing, "p": p_ranks},
        "wins": signs.count(1), "losses": signs.count(-1),
    }  # fmt: skip


def _tokens(run: MethodRun) -> dict[str, float] | None:
    counted = [made.tokens for made in run.made if made.tokens is not None]
    if not counted:
        return None
    return {"chosen": float(np.mean([chosen for chosen, _ in counted])), "all": float(counted[0][1])}


_CONDITIONED = ("catr@1", "catr@10", "srvr@1", "srvr@10")


# The methods of SkillWeaver's table 4 by their rounds: ours, and with a language model its own.
ROUNDS = (tuple(f"local-r{number}" for number in range(4)), ("paper-r0", "paper", "paper-r2", "paper-r3"))


def rounds_of(runs: Mapping[str, MethodRun], names: Sequence[str] = ROUNDS[0]) -> list[dict[str, Any]]:
    """Return a row for each of the methods `names`, of 0, 1, ... rounds, that was measured.

    A row has `round`, `method`, the means of its measures, `jaccard` (mean Jaccard of that round's hints with
    those before; a request whose steps did not change keeps its hints, which is 1), and `changed`, the number
    of requests whose steps the round changed; both are null before the first round.
    """
    rows = []
    for number, name in enumerate(names):
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

    That is `tests` (`compared` by measure); `corrected`, `spoilt` and `right`, the requests whose number of
    steps feedback made right, made wrong, and on which both are right: each with `queries` and, by measure of
    categories and servers, `{before, after, p}` of a signed-rank test; and `counts`, every request on which
    the number changed, with the texts of both plans' steps.
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
        points = [(int(n), held[key]) for n, held in papers("compose")["rounds"].items() if key in held]
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


def simulated(run: MethodRun, seed: int) -> dict[str, Any]:
    """Return how often steps and whole plans succeed in a simulation of `QUERIES` requests at most.

    The seed draws the requests, the categories' rates, and what succeeds, `REPEATS` times. A gap never
    succeeds, and a plan without steps does not either.

    Returns:
        `queries`, `repeats`, `steps` (mean of a plan), `da`; `ses`, the share of steps that succeed, and
        `ccr`, that of requests of which all do, each `[mean, low, high]` over the repeats (95 % of them);
        `ses_right` and `ccr_right` the same where a step succeeds only if its first candidate serves a needed
        step, null where it is not known what serves.
    """
    random = np.random.default_rng(seed)
    order = sorted(range(len(run.requests)), key=lambda i: run.requests[i].query_id)
    drawn = sorted(random.permutation(order)[:QUERIES].tolist())
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
