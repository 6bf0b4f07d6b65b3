"""The appendices of the report on plans: paraphrases, conditions, significance, simulation, reranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.evaluate.compose import paper
from tasks.evaluate.compose.methods import DEFAULT, NEED_ENDPOINT, VANILLA
from tasks.evaluate.compose.report.cells import (
    MAIN_MEASURES,
    Found,
    interval,
    own,
    p_value,
    share,
    spread,
    stated,
)
from tasks.evaluate.measures.tables import table

_SHOWN_COUNTS = 40  # requests on which feedback changed the number of steps; all stand in compose.json
NO_RERANKER = "no-reranker"


def paraphrases_section(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    """Return how stable plans are under other words (section 7.4)."""
    columns = ("", "requests", "DA", "DA paraphrased", "agreement", "CatR@1", "CatR@1 paraphrased")
    lines: list[Sequence[object]] = [
        [
            f"`{name}`", said["queries"], share(said["original"]["da"]), share(said["da"]),
            share(said["agreement"]), share(said["original"].get("catr@1")), share(said.get("catr@1")),
        ]
        for name, said in ((name, row["paraphrase"]) for name, row in rows.items())
        if said
    ]  # fmt: skip
    note = "" if lines else "None of these requests has a paraphrase."
    told = [[f"paper: {label}", "", *map(share, figures)] for label, *figures in paper.PARAPHRASES]
    return [note, table(columns, [*lines, *told])]


def conditioned_section(found: Found, rows: Mapping[str, Found]) -> list[str]:
    """Return what is found where the number of steps is right, or told (section 7.6)."""
    columns = (
        "Method",
        "requests with the right number",
        "CatR@1",
        "CatR@1, all",
        "CatR@10",
        "SrvR@1",
        "SrvR@1, all",
    )
    lines = [
        [
            f"`{name}`", part["queries"], share(part.get("catr@1")), share(rows[name].get("catr@1")),
            share(part.get("catr@10")), share(part.get("srvr@1")), share(rows[name].get("srvr@1")),
        ]
        for name, part in found["when_right"].items()
    ]  # fmt: skip
    told = ["paper: vanilla", paper.NOT_STATED, "0.412", "0.342", "0.816", "", ""]
    shown = ("da", "catr@1", "catr@10", "srvr@1")
    oracle = [
        [f"`{name}`", *(own(rows, name, m) for m in shown)]
        for name in ("gold-count", "gold-count-r0", "llm-gold-count")
        if name in rows or name in NEED_ENDPOINT
    ]
    oracle.append(["paper: vanilla, told the number", *(stated(paper.ORACLE, m) for m in shown[:3]), ""])
    return [
        table(columns, [*lines, told]),
        "Told the right number of steps, which its words may not allow:",
        table(("Method", "DA", "CatR@1", "CatR@10", "SrvR@1"), oracle),
    ]


def significance_section(found: Found, _rows: Mapping[str, Found]) -> list[str]:
    """Return whether what feedback changes is significant (appendix G)."""
    tests = found["feedback"]["tests"]
    columns = ("Measure", "difference", "95% CI", "p (bootstrap)", "W", "pairs that differ", "p (Wilcoxon)",
               "paper: W", "paper: pairs", "paper: p", "paper: 95% CI")  # fmt: skip
    lines = []
    for measure, one in tests.items():
        ranks, held = one["wilcoxon"], paper.SIGNIFICANCE.get(measure)
        told: list[object] = [paper.NOT_STATED] * 4 if measure in MAIN_MEASURES else [""] * 4
        if held:
            told = [held[0], held[1], f"{held[2]:.2g}", interval(*held[3]) if held[3] else paper.NOT_STATED]
        lines.append([
            measure, f"{one['difference']:+.3f}", interval(one["low"], one["high"]), p_value(one["p"]),
            f"{ranks['w']:g}", ranks["differing"], p_value(ranks["p"]), *told,
        ])  # fmt: skip
    return [
        f"`{DEFAULT}` against `{VANILLA}`, over {found['queries']} requests.",
        table(columns, lines),
        *_subsets(found),
    ]


def _subsets(found: Found) -> list[str]:
    names = {
        "corrected": "feedback made it right",
        "spoilt": "feedback made it wrong",
        "right": "right in both",
    }
    columns = (
        "Number of steps",
        "requests",
        "Measure",
        "before",
        "after",
        "p (Wilcoxon)",
        "paper: before, after, p",
    )
    lines: list[Sequence[object]] = []
    for key, name in names.items():
        part, held = found["feedback"][key], paper.SUBSETS.get(key)
        for measure in ("catr@1", "srvr@1"):
            one = part.get(measure)
            told = (
                f"{held[1]:.3f}, {held[2]:.3f}, {held[3]:g} ({held[0]})"
                if held and measure == "catr@1"
                else ""
            )
            shares = [share(one["before"]), share(one["after"]), p_value(one["p"])] if one else ["", "", ""]
            lines.append([name, part["queries"], measure, *shares, told])
    counts = found["feedback"]["counts"]
    changed = [
        [
            one["query_id"],
            one["needed"],
            one["before"],
            one["after"],
            "nearer" if one["nearer"] else "not nearer",
        ]
        for one in counts[:_SHOWN_COUNTS]
    ]
    said = f"Feedback changed the number of steps of {len(counts)} requests; `compose.json` has their texts."
    return [
        table(columns, lines), said,
        table(("Request", "needed", "before", "after", ""), changed) if changed else "",
    ]  # fmt: skip


def pilot_section(found: Found, _rows: Mapping[str, Found]) -> list[str]:
    """Return the simulation of carrying plans out (appendix I)."""
    one, held = found["simulation"], paper.PILOT
    note = (
        "**A simulation: nothing was executed.** Each step succeeds by chance, with a rate of 80 to 95 %"
        f" drawn for each category by seed {found['seed']}; {one['repeats']:,} repeats, 95 % of which lie"
        " in the intervals. The paper's executors were mocks as well. In the last column a step succeeds"
        " only if what was chosen serves a needed step."
    )
    lines = [
        ["requests", one["queries"], held["queries"], ""],
        ["steps of a plan", f"{one['steps']:.2f}", f"{held['steps']:.2f}", ""],
        ["DA", share(one["da"]), share(held["da"]), ""],
        ["steps that succeed (SES)", spread(one["ses"]), share(held["ses"]), spread(one["ses_right"])],
        [
            "requests of which all do (CCR)",
            spread(one["ccr"]),
            share(held["ccr"]),
            spread(one["ccr_right"]),
        ],
    ]
    return [note, table(("", f"`{DEFAULT}`", "paper", "and rightly chosen"), lines)]


def reranked_section(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    """Return what reranking gains (appendix K)."""
    held = paper.RERANKED
    columns = ("Reranker", "CatR@1 before", "CatR@1 after", "SrvR@1 before", "SrvR@1 after", "p (bootstrap)")
    lines = [["paper: listwise, 7B", share(held["before"]), share(held["after"]), "", "", f"{held['p']:g}"]]
    if NO_RERANKER in rows:
        before, after = rows[NO_RERANKER], rows[DEFAULT]
        shares = [share(row.get(m)) for m in ("catr@1", "srvr@1") for row in (before, after)]
        lines.append([f"local: `{NO_RERANKER}` to `{DEFAULT}`", *shares, ""])
    listwise = [own(rows, "llm-rerank", m) for m in ("catr@1", "srvr@1")]
    lines.append(["listwise by a language model", "", listwise[0], "", listwise[1], ""])
    note = (
        f"The paper's: {held['wins']} requests better, {held['losses']} worse, 222 the same; 95 % CI of the"
        f" gain {interval(held['low'], held['high'])}; CatR@10, which bounds it, .716."
    )
    return [table(columns, lines), note]


def confidence_section(found: Found, _rows: Mapping[str, Found]) -> list[str]:
    """Return whether confidence tells what is served, and what is chosen rightly."""
    columns = (
        "Method", "steps", "AUROC, served against not", "gaps, served", "gaps, not served", "right choices",
        "wrong choices", "AUROC, right against wrong",
    )  # fmt: skip
    lines = [
        [
            f"`{name}`", one["steps"], share(one["auroc_served"]), share(one["gaps"]["with"]),
            share(one["gaps"]["without"]), one["right"], one["wrong"], share(one["auroc_right"]),
        ]
        for name, one in found["without_gold"].items()
    ]  # fmt: skip
    note = (
        f"Of each request one step, drawn by seed {found['seed']}, loses all that serves it. The paper has no"
        " such measure."
    )
    return (
        [note, table(columns, lines)]
        if lines
        else ["It is not known what serves the steps of these requests."]
    )
