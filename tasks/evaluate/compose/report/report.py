"""The report on plans as Markdown, in the layout of SkillWeaver's tables, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tasks.evaluate.compose import paper
from tasks.evaluate.compose.methods import DEFAULT, HINTS, VANILLA
from tasks.evaluate.compose.report.appendices import (
    conditioned_section,
    confidence_section,
    paraphrases_section,
    pilot_section,
    reranked_section,
    significance_section,
)
from tasks.evaluate.compose.report.cells import (
    MAIN_MEASURES,
    Found,
    interval,
    own,
    p_value,
    share,
    stated,
    with_interval,
)
from tasks.evaluate.measures.tables import table

_MEASURES = {
    "Number of steps": ("da", "da±1", "stepf1"),
    "Categories": ("catr@1", "catr@10", "positional_catr@1", "chain_cat", "chain_share"),
    "Servers": ("srvr@1", "srvr@10", "positional_srvr@1", "chain"),
    "Dependencies, and whole plans": ("edgef1", "graph", "plan"),
}
_CATEGORIES = 11  # of table 8
NOTE = (
    "The paper's figures (SkillWeaver, arXiv 2606.18051) are of its own 300 requests and 2,209 servers, and"
    f' come from its sentences and captions: what none of them says is "{paper.NOT_STATED}". Ours are of the'
    " requests and the index given. Chain_cat is both that all categories are right (`chain_cat`) and the"
    " mean share of right ones (`chain_share`), since the paper defines it in both ways."
    f' What needs a language model says "{paper.NO_ENDPOINT}" where none was measured.'
)


def compose_markdown(found: Found) -> str:
    """Return the whole report as Markdown, from what the command returns."""
    rows = {row["method"]: row for row in found["methods"]}
    said = f"{found['queries']} requests over {found['served']:,} served rows."
    parts = ["# Plans", said, NOTE, "## All measures", *_all(rows.values())]
    for why in dict.fromkeys(found["skipped"].values()):
        names = [f"`{name}`" for name, said in found["skipped"].items() if said == why]
        parts.append(f"Not measured: {', '.join(names)}: {why}.")
    if llm := found.get("llm"):
        why = ", ".join(f"{name} ({count})" for name, count in llm["fallbacks"].items()) or "none"
        parts.append(f"The language model was {llm['model']}; answers that could not be used: {why}.")
    for title, section in _SECTIONS:
        parts += [f"## {title}", *section(found, rows)]
    parts += [f"## Every method against {found['baseline']}", _ADJUSTED, _against(rows.values())]
    return "\n\n".join(part for part in parts if part) + "\n"


_ADJUSTED = "p of a paired bootstrap and of Wilcoxon's signed-rank test, by Holm over the methods."


def _all(rows: Collection[Found]) -> Iterator[str]:
    for title, measures in _MEASURES.items():
        known = [measure for measure in measures if any(measure in row for row in rows)]
        lines = [[f"`{row['method']}`", *(with_interval(row, measure) for measure in known)] for row in rows]
        if known:
            yield f"### {title}"
            yield table(("Method", *known), lines)
    times = [
        [f"`{row['method']}`", f"{row['steps']:.2f}", f"{row['median_ms']:.0f}", f"{row['p95_ms']:.0f}"]
        for row in rows
    ]
    yield "### Steps of a plan, and time"
    yield table(("Method", "steps", "median ms", "p95 ms"), times)


def _against(rows: Iterable[Found]) -> str:
    columns = ("Method", "Measure", "difference", "95% CI", "p", "Wilcoxon p", "wins", "losses")
    chosen = ("da", "da±1", "catr@1", "srvr@1", "stepf1", "chain", "edgef1", "graph", "plan")
    lines = [
        [
            f"`{row['method']}`", m, f"{one['difference']:+.3f}", interval(one["low"], one["high"]),
            p_value(one["p_adjusted"]), p_value(one["wilcoxon"]["p_adjusted"]), one["wins"], one["losses"],
        ]
        for row in rows
        for m, one in (row["against"] or {}).items()
        if m in chosen
    ]  # fmt: skip
    return table(columns, lines)


def _table_2(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    names = list(MAIN_MEASURES.values())
    columns = ("Paper's row", "Our method", *names, *(f"paper: {name}" for name in names))
    lines = [
        [
            one.label, f"`{one.method}`", *(own(rows, one.method, m) for m in MAIN_MEASURES),
            *(stated(one.figures, m) for m in MAIN_MEASURES),
        ]
        for one in paper.MAIN
    ]  # fmt: skip
    named = {one.method for one in paper.MAIN}
    others = [
        ["", f"`{name}`", *(share(row.get(m)) for m in MAIN_MEASURES), *("" for _ in MAIN_MEASURES)]
        for name, row in rows.items()
        if name not in named
    ]
    return [table(columns, [*lines, *others])]


def _table_3(found: Found, rows: Mapping[str, Found]) -> list[str]:
    tokens = rows[DEFAULT]["tokens"]
    if tokens is None or not tokens["all"]:
        return ["No tokens were counted."]
    held = paper.TOKENS
    told = f"{2 * held['a skill']:,} to {5 * held['a skill']:,} (2 to 5 skills of {held['a skill']})"
    lines = [
        ["all that is served", f"{tokens['all']:,.0f}", f"{held['all']:,}"],
        ["the skills chosen, mean of a request", f"{tokens['chosen']:,.1f}", told],
        ["reduction", f"{1 - tokens['chosen'] / tokens['all']:.2%}", "over 99 %"],
        ["15 hints for the decomposer", "0 (no text of them is read)", f"about {held['hints']:,}"],
    ]  # fmt: skip
    note = (
        f"Counted over {found['served']:,} rows, each chosen one once a request; the paper assumes 400 each."
    )
    return [note, table(("Context", "tokens", "paper"), lines)]


def _table_4(found: Found, _rows: Mapping[str, Found]) -> list[str]:
    shown = ("da", "catr@1", "catr@10", "stepf1", "jaccard")
    columns = (
        "Round",
        *shown,
        "requests changed",
        *(f"paper: {name}" for name in ("DA", "CatR@1", "Jaccard")),
    )
    lines = [
        [
            row["round"], *(share(row.get(m)) for m in shown),
            "" if row["changed"] is None else row["changed"],
            *(stated(paper.ROUNDS[row["round"]], m) for m in ("da", "catr@1", "jaccard")),
        ]
        for row in found["rounds"]
    ]  # fmt: skip
    note = (
        "Figure 2 is `compose.png`. Jaccard is that of a round's hints with those before; a request whose"
        " steps did not change keeps its hints, which is 1. Of rounds 2 and 3 the paper says that DA gains"
        " nothing more."
    )
    return [note, table(columns, lines)]


def _table_5(found: Found, _rows: Mapping[str, Found]) -> list[str]:
    columns = (
        "Taken", "rows", "requests that need them", "lose all of a step", "Method", "DA with", "DA without",
        "difference", "95% CI",
    )  # fmt: skip
    lines = [
        [
            one["label"], one["rows"], one["queries"], "" if one["unserved"] is None else one["unserved"],
            f"`{one['method']}`",
            *([share(one["with"]["da"]), share(one["without"]["da"]), f"{one['da']['difference']:+.3f}",
               interval(one["da"]["low"], one["da"]["high"])] if one["da"] else ["", "", "", ""]),
        ]
        for one in found["transfer"]
    ]  # fmt: skip
    gains = [
        [label, queries, f"{gain:+.1%}", _gain(found, kind)]
        for kind, (label, queries, gain) in zip(("categories", "share"), paper.TRANSFER, strict=True)
    ]
    heads = ("Paper's pool", "requests", "paper: DA of SAD, relative to vanilla", "ours, round 1 to round 0")
    return [table(columns, lines), table(heads, gains), f"The paper's DA themselves: {paper.NOT_STATED}."]


def _gain(found: Found, kind: str) -> str:
    chosen = [one for one in found["transfer"] if one["kind"] == kind and one["da"]]
    da = {one["method"]: one["without"]["da"] for one in chosen}
    return f"{da[DEFAULT] / da[VANILLA] - 1:+.1%}" if da.get(VANILLA) and DEFAULT in da else "not measured"


def _table_6(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    columns = (
        "Method", "DA", "DA±1", "steps of easy ones", "needed", "paper: DA", "paper: DA±1", "paper: steps",
        "paper: needed",
    )  # fmt: skip
    lines = []
    for name, held in paper.HUMAN.items():
        row = rows[name]
        easy = row["by_difficulty"].get("easy")
        counted = [f"{easy['steps']:.2f}", f"{easy['needed']:.2f}"] if easy else ["", ""]
        told = [paper.HUMAN_STEPS.get(name, paper.NOT_STATED), "2.0"]
        lines.append([
            f"`{name}`", share(row["da"]), share(row["da±1"]), *counted,
            share(held["da"]), share(held["da±1"]), *told,
        ])  # fmt: skip
    note = (
        "The paper's are of 200 requests in natural words that need 2.65 steps each, ours of those given,"
        f" which need {rows[DEFAULT]['needed']:.2f}: compare them on such a file alone."
    )
    return [note, table(columns, lines)]


def _table_7(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    columns = ("Difficulty", "Method", "requests", "DA", "CatR@1", "SrvR@1", "steps", "needed", "paper: DA")
    lines = [
        [
            group, f"`{name}`", part["queries"], *(share(part.get(m)) for m in ("da", "catr@1", "srvr@1")),
            f"{part['steps']:.2f}", f"{part['needed']:.2f}", share(held[group]) if group in held else "",
        ]
        for name, held in paper.DIFFICULTY.items()
        for group, part in rows[name]["by_difficulty"].items()
    ]  # fmt: skip
    return [table(columns, lines)]


def _table_8(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    before, after = rows[VANILLA]["by_category"], rows[DEFAULT]["by_category"]
    largest = sorted(after, key=lambda name: (-after[name]["queries"], name))[:_CATEGORIES]
    order = sorted(largest, key=lambda name: before[name]["da"] - after[name]["da"])
    columns = (
        "Category",
        "requests",
        f"DA `{VANILLA}`",
        f"DA `{DEFAULT}`",
        "ΔDA",
        "CatR@1",
        "SrvR@1",
        "paper",
    )
    lines = [
        [
            name, after[name]["queries"], share(before[name]["da"]), share(after[name]["da"]),
            f"{after[name]['da'] - before[name]['da']:+.3f}", share(after[name].get("catr@1")),
            share(after[name].get("srvr@1")), paper.NOT_STATED,
        ]
        for name in order
    ]  # fmt: skip
    return [f"The {_CATEGORIES} that most requests need, by ΔDA.", table(columns, lines)]


def _table_9(_found: Found, rows: Mapping[str, Found]) -> list[str]:
    columns = ("H", "Method", "DA", "CatR@1", "CatR@10", "StepF1", "paper: DA", "paper: CatR@1")
    named = {hints: DEFAULT if hints == 15 else f"hints-{hints}" for hints in HINTS}
    asked = {hints: "llm-r1" if hints == 15 else f"llm-hints-{hints}" for hints in HINTS}
    lines = [
        [
            hints, f"`{name}`", *(own(rows, name, m) for m in ("da", "catr@1", "catr@10", "stepf1")),
            *(stated(paper.HINT_COUNTS[hints], m) for m in ("da", "catr@1")),
        ]
        for hints, name in [*named.items(), *asked.items()]
    ]  # fmt: skip
    return [table(columns, lines)]


_SECTIONS: tuple[tuple[str, Callable[[Found, Mapping[str, Found]], list[str]]], ...] = (
    ("Table 2: main results", _table_2),
    ("Table 3: context", _table_3),
    ("Table 4 and figure 2: rounds", _table_4),
    ("Table 5: transfer", _table_5),
    ("Table 6: human style", _table_6),
    ("Table 7: difficulty", _table_7),
    ("Table 8: categories", _table_8),
    ("Table 9: number of hints", _table_9),
    ("Section 7.4: paraphrases", paraphrases_section),
    ("Section 7.6: the right number of steps", conditioned_section),
    ("Appendix G: significance of feedback", significance_section),
    ("Appendix I: a simulated pilot", pilot_section),
    ("Appendix K: reranking", reranked_section),
    ("Confidence", confidence_section),
)
