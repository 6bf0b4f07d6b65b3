"""The report of plans: tables for Markdown, in the layout of SkillWeaver's, and for a terminal.

The paper's figures stand beside ours, from `data/papers_compose.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tasks.evaluate.compose.appendices import (
    INTERVAL,
    MAIN_MEASURES,
    NO_ENDPOINT,
    NOT_STATED,
    conditioned_section,
    confidence_section,
    failures_section,
    own,
    p_value,
    paraphrases_section,
    pilot_section,
    pool_section,
    reranked_section,
    significance_section,
    stated,
)
from tasks.evaluate.compose.methods import DEFAULT, HINTS, PAPERS, PAPERS_VANILLA, VANILLA
from tasks.evaluate.measures.tables import Block, Table, columns, markdown, means, papers, with_intervals

Found = Mapping[str, Any]
Rows = Mapping[str, Found]  # of `methods`, by name
_METHOD = {"Method": "`{method}`"}
_MEASURES = {
    "Number of steps": ("da", "da±1", "stepf1"),
    "Categories": ("catr@1", "catr@10", "positional_catr@1", "chain_cat", "chain_share"),
    "Servers": ("srvr@1", "srvr@10", "positional_srvr@1", "chain"),
    "Dependencies, and whole plans": ("edgef1", "graph", "plan"),
}
_TIMES = columns(_METHOD, {"steps": "{steps:.2f}", "median ms": "{median_ms:.0f}", "p95 ms": "{p95_ms:.0f}"})
_CATEGORIES = 11  # of table 8
PAIRS = ((VANILLA, DEFAULT), (PAPERS_VANILLA, PAPERS))  # of table 5 to 8, the latter by an LLM
NOTE = (
    "The paper's figures (SkillWeaver, arXiv 2606.18051) are of its own 300 requests and 2,209 servers, and"
    f' come from its sentences and captions: what none of them says is "{NOT_STATED}". Ours are of the'
    " requests and the index given. Chain_cat is both that all categories are right (`chain_cat`) and the"
    " mean share of right ones (`chain_share`), since the paper defines it in both ways."
    f' What needs a language model says "{NO_ENDPOINT}" where none was measured.'
)
_ADJUSTED = "p of a paired bootstrap and of Wilcoxon's signed-rank test, by Holm over the methods."
_AGAINST = columns(_METHOD, {
    "Measure": "{measure}", "difference": "{difference:+.3f}", "95% CI": INTERVAL, "p": "{p_said}",
    "Wilcoxon p": "{wilcoxon_said}", "wins": "{wins}", "losses": "{losses}",
})  # fmt: skip
_COMPARED = ("da", "da±1", "catr@1", "srvr@1", "stepf1", "chain", "edgef1", "graph", "plan")


def compose_markdown(found: Found) -> str:
    """Return the whole report as Markdown, from what the command returns."""
    rows = {row["method"]: row for row in found["methods"]}
    said = f"{found['queries']} requests over {found['served']:,} served rows."
    blocks: list[Block] = ["# Plans", said, NOTE, "## All measures", *_all(found["methods"])]
    for why in dict.fromkeys(found["skipped"].values()):
        names = [f"`{name}`" for name, said in found["skipped"].items() if said == why]
        blocks.append(f"Not measured: {', '.join(names)}: {why}.")
    if llm := found.get("llm"):
        why = ", ".join(f"{name} ({count})" for name, count in llm["fallbacks"].items()) or "none"
        blocks.append(f"The language model was {llm['model']}; answers that could not be used: {why}.")
    for title, section in _SECTIONS:
        blocks += [f"## {title}", *section(found, rows)]
    against = [
        {
            **one, "method": row["method"], "measure": measure, "p_said": p_value(one["p_adjusted"]),
            "wilcoxon_said": p_value(one["wilcoxon"]["p_adjusted"]),
        }
        for row in found["methods"]
        for measure, one in (row["against"] or {}).items()
        if measure in _COMPARED
    ]  # fmt: skip
    blocks += [f"## Every method against {found['baseline']}", _ADJUSTED, Table("", _AGAINST, against)]
    return markdown(blocks)


def _all(rows: Sequence[Found]) -> Iterator[Block]:
    for title, measures in _MEASURES.items():
        known = [measure for measure in measures if any(measure in row for row in rows)]
        if known:
            yield f"### {title}"
            yield Table("", columns(_METHOD, with_intervals(known, ".3f", ".3f")), rows)
    yield "### Steps of a plan, and time"
    yield Table("", _TIMES, rows)


def _table_2(found: Found, rows: Rows) -> list[Block]:
    paper, asked = papers("compose")["main"], (found.get("llm") or {}).get("model", "").casefold()
    lines = [
        {
            **one,
            "own": own(rows, one["method"], MAIN_MEASURES)
            if not asked or one.get("model", "") in asked
            else dict.fromkeys(MAIN_MEASURES, "another model"),
            "paper": stated(one["figures"], MAIN_MEASURES),
        }
        for one in paper
    ]
    named = {one["method"] for one in paper}
    empty = dict.fromkeys(MAIN_MEASURES, "")
    lines += [
        {"label": "", "method": name, "own": own(rows, name, MAIN_MEASURES), "paper": empty}
        for name in rows
        if name not in named
    ]
    form = columns(
        {"Paper's row": "{label}", "Our method": "`{method}`"},
        {name: f"{{own[{measure}]}}" for measure, name in MAIN_MEASURES.items()},
        {f"paper: {name}": f"{{paper[{measure}]}}" for measure, name in MAIN_MEASURES.items()},
    )
    return [Table("", form, lines)]


def _table_3(found: Found, rows: Rows) -> list[Block]:
    if not (rows[DEFAULT]["tokens"] or {}).get("all"):
        return ["No tokens were counted."]
    held = papers("compose")["tokens"]
    told = f"{2 * held['a skill']:,} to {5 * held['a skill']:,} (2 to 5 skills of {held['a skill']})"
    lines = [("all that is served", f"{rows[DEFAULT]['tokens']['all']:,.0f}", f"{held['all']:,}")]
    for name in (DEFAULT, "llm-r1") if "llm-r1" in rows else (DEFAULT,):
        tokens = rows[name]["tokens"]
        lines += [
            (f"the skills that `{name}` chooses, mean of a request", f"{tokens['chosen']:,.1f}", told),
            ("reduction", f"{1 - tokens['chosen'] / tokens['all']:.2%}", "over 99 %"),
        ]
    lines.append(("15 hints for the decomposer", "0 (`local` reads no text)", f"about {held['hints']:,}"))
    note = (
        f"Counted over {found['served']:,} rows, each chosen one once a request; the paper assumes 400 each."
    )
    form = columns("Context", "tokens", "paper")
    return [note, Table("", form, [dict(zip(form, line, strict=True)) for line in lines])]


def _table_4(found: Found, _rows: Rows) -> list[Block]:
    note = (
        "Figure 2 is `compose.png`. Jaccard is that of a round's hints with those before; a request whose"
        " steps did not change keeps its hints, which is 1. Of rounds 2 and 3 the paper says that DA gains"
        " nothing more."
    )
    form = columns(
        {"Round": "{round}"}, _METHOD, means(("da", "catr@1", "catr@10", "stepf1", "jaccard")),
        {
            "requests changed": "{changed}", "paper: DA": "{paper[da]}", "paper: CatR@1": "{paper[catr@1]}",
            "paper: Jaccard": "{paper[jaccard]}",
        },
    )  # fmt: skip
    held = papers("compose")["rounds"]
    lines = [
        {**row, "paper": stated(held[str(row["round"])], ("da", "catr@1", "jaccard"))}
        for row in found["rounds"]
    ]
    return [note, Table("", form, lines)]


def _table_5(found: Found, _rows: Rows) -> list[Block]:
    form = {
        "Taken": "{label}", "rows": "{rows}", "requests that need them": "{queries}",
        "lose all of a step": "{unserved}", "Method": "`{method}`", "DA with": "{with[da]:.3f}",
        "DA without": "{without[da]:.3f}", "difference": "{da[difference]:+.3f}",
        "95% CI": "[{da[low]:.3f}, {da[high]:.3f}]",
    }  # fmt: skip
    paper = papers("compose")["transfer"]
    gains = [
        {
            "label": label, "queries": queries, "gain": f"{gain:+.1%}",
            **{after: _gain(found, kind, before, after) for before, after in PAIRS},
        }
        for kind, (label, queries, gain) in zip(("categories", "share"), paper, strict=True)
    ]  # fmt: skip
    heads = {
        "Paper's pool": "{label}", "requests": "{queries}",
        "paper: DA of SAD, relative to vanilla": "{gain}",
        **{f"ours, `{before}` to `{after}`": f"{{{after}}}" for before, after in PAIRS},
    }  # fmt: skip
    told = f"The paper's DA themselves: {NOT_STATED}."
    return [Table("", form, found["transfer"]), Table("", heads, gains), told]


def _gain(found: Found, kind: str, before: str, after: str) -> str:
    chosen = [one for one in found["transfer"] if one["kind"] == kind and one["da"]]
    da = {one["method"]: one["without"]["da"] for one in chosen}
    return f"{da[after] / da[before] - 1:+.1%}" if da.get(before) and after in da else "not measured"


def _with_llm(rows: Rows, told: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return what the paper says by our local method, and beside each by that of an LLM, where measured."""
    asked = dict(zip(PAIRS[0], PAIRS[1], strict=True))
    return [(n, held) for name, held in told.items() for n in (name, asked[name]) if n in rows]


def _table_6(_found: Found, rows: Rows) -> list[Block]:
    form = columns(_METHOD, {
        "DA": "{da:.3f}", "DA±1": "{da±1:.3f}", "steps of easy ones": "{by_difficulty[easy][steps]:.2f}",
        "needed": "{by_difficulty[easy][needed]:.2f}", "paper: DA": "{paper[da]:.3f}",
        "paper: DA±1": "{paper[da±1]:.3f}", "paper: steps": f"{{told:|{NOT_STATED}}}", "paper: needed": "2.0",
    })  # fmt: skip
    paper, told = papers("compose")["human"], dict(papers("compose")["human_steps"])
    told |= {PAPERS_VANILLA: told[VANILLA]}
    lines = [{**rows[name], "paper": held, "told": told.get(name)} for name, held in _with_llm(rows, paper)]
    note = (
        "The paper's are of 200 requests in natural words that need 2.65 steps each, ours of those given,"
        f" which need {rows[DEFAULT]['needed']:.2f}: compare them on such a file alone."
    )
    return [note, Table("", form, lines)]


def _table_7(_found: Found, rows: Rows) -> list[Block]:
    form = columns({"Difficulty": "{group}"}, _METHOD, {
        "requests": "{queries}", "DA": "{da:.3f}", "CatR@1": "{catr@1:.3f}", "SrvR@1": "{srvr@1:.3f}",
        "steps": "{steps:.2f}", "needed": "{needed:.2f}", "paper: DA": "{paper:.3f}",
    })  # fmt: skip
    lines = [
        {**part, "group": group, "method": name, "paper": held.get(group)}
        for name, held in _with_llm(rows, papers("compose")["difficulty"])
        for group, part in rows[name]["by_difficulty"].items()
    ]
    return [Table("", form, lines)]


def _table_8(_found: Found, rows: Rows) -> list[Block]:
    note = f"The {_CATEGORIES} that most requests need, by ΔDA."
    return [note, *(_by_category(rows, *pair) for pair in PAIRS if rows.keys() >= {*pair})]


def _by_category(rows: Rows, vanilla: str, aware: str) -> Table:
    before, after = rows[vanilla]["by_category"], rows[aware]["by_category"]
    largest = sorted(after, key=lambda name: (-after[name]["queries"], name))[:_CATEGORIES]
    form = {
        "Category": "{name}", "requests": "{queries}", f"DA `{vanilla}`": "{before:.3f}",
        f"DA `{aware}`": "{da:.3f}", "ΔDA": "{more:+.3f}", "CatR@1": "{catr@1:.3f}",
        "SrvR@1": "{srvr@1:.3f}", "paper": NOT_STATED,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [
        {
            **after[name], "name": name, "before": before[name]["da"],
            "more": after[name]["da"] - before[name]["da"],
        }
        for name in largest
    ]  # fmt: skip
    return Table("", form, sorted(lines, key=lambda line: -line["more"]))


def _table_9(_found: Found, rows: Rows) -> list[Block]:
    named = {hints: DEFAULT if hints == 15 else f"hints-{hints}" for hints in HINTS}
    asked = {hints: "paper" if hints == 15 else f"paper-hints-{hints}" for hints in HINTS}
    form = columns({"H": "{hints}"}, _METHOD, {
        "DA": "{own[da]}", "CatR@1": "{own[catr@1]}", "CatR@10": "{own[catr@10]}", "StepF1": "{own[stepf1]}",
        "paper: DA": "{paper[da]}", "paper: CatR@1": "{paper[catr@1]}",
    })  # fmt: skip
    lines = [
        {
            "hints": hints, "method": name, "own": own(rows, name, ("da", "catr@1", "catr@10", "stepf1")),
            "paper": stated(papers("compose")["hints"][str(hints)], ("da", "catr@1")),
        }
        for hints, name in [*named.items(), *asked.items()]
    ]  # fmt: skip
    return [Table("", form, lines)]


_SECTIONS: tuple[tuple[str, Callable[[Found, Rows], list[Block]]], ...] = (
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
    ("Appendix H: what is served", pool_section),
    ("Appendix I: a simulated pilot", pilot_section),
    ("Section 7.10 and appendix J: why plans fail", failures_section),
    ("Appendix K: reranking", reranked_section),
    ("Confidence", confidence_section),
)

# Tables of few columns, because a terminal has 80.
_TERMINAL = (
    ("number of steps", {"da": "DA", "da±1": "DA±1", "stepf1": "StepF1"}),
    (
        "what serves them",
        {"catr@1": "CatR@1", "catr@10": "CatR@10", "srvr@1": "SrvR@1", "srvr@10": "SrvR@10"},
    ),
    ("whole plans", {"chain": "chain", "edgef1": "EdgeF1", "graph": "graph", "plan": "plan"}),
)
_CONTESTS = ("da", "catr@1", "srvr@1", "stepf1", "chain", "edgef1", "plan")
_GROUPED = ("da", "catr@1", "srvr@1", "stepf1", "plan")
_REWORDED = ("da", "srvr@1", "stepf1", "plan")


def terminal_blocks(found: Found) -> Iterator[Block]:
    """Yield the measures of methods that plan, with 95 % intervals, and how they differ from the baseline."""
    rows, whole = found["methods"], "report" in found  # its files hold the rest
    for title, measures in _TERMINAL:
        known = {key: name for key, name in measures.items() if any(key in row for row in rows)}
        first, last = ({"steps": "{steps:.1f}"}, {"ms": "{median_ms:.0f}"}) if "da" in known else ({}, {})
        intervals = with_intervals(known, ".3z", ".2z", (" ", "-", ""))
        form = columns("method", first, intervals, last)
        yield Table(
            f"{title}, {found['queries']} requests, 95 % intervals", form, list(rows) if known else []
        )
    if not whole:
        yield _contests(found)
        yield from (_groups(group, rows) for group in ("difficulty", "tag"))
    yield _paraphrases([row for row in rows if not whole or row["method"] in (DEFAULT, VANILLA)])
    form = {
        "method": "{method}", "steps": "{steps}", "AUROC served": "{auroc_served:.3z}",
        "gaps": "{gaps[with]:.3z|} {gaps[without]:.3z|}", "right:wrong": "{right}:{wrong}",
        "AUROC right": "{auroc_right:.3z}",
    }  # fmt: skip
    sure = [{"method": name, **one} for name, one in found["without_gold"].items()]
    yield Table("confidence, with and without what serves a step; of right and wrong choices", form, sure)
    for label in dict.fromkeys(one["label"] for one in found["transfer"]):
        yield from _transfer(label, [one for one in found["transfer"] if one["label"] == label])
    for why in dict.fromkeys(found["skipped"].values()):
        names = ", ".join(name for name, said in found["skipped"].items() if said == why)
        yield f"not measured: {names}"
        yield f"  {why}"
    yield from (f"written: {file}" for file in found.get("report", ()))


def _contests(found: Found) -> Table:
    def said(p: float) -> str:
        return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0") if f"{p:.3f}" != "1.000" else "1"

    form = {
        "method": "{method}", "measure": "{measure}", "differs": "{difference:+.3z}",
        "95 %": "{low:+.2z} {high:+.2z}", "p": "{said}", "Wilcoxon": "{ranks}", "won:lost": "{wins}:{losses}",
    }  # fmt: skip
    lines = [
        {
            **one, "method": row["method"], "measure": measure, "said": said(one["p_adjusted"]),
            "ranks": said(one["wilcoxon"]["p_adjusted"]),
        }
        for row in found["methods"]
        for measure, one in (row["against"] or {}).items()
        if measure in _CONTESTS
    ]  # fmt: skip
    return Table(f"against {found['baseline']}; p of bootstrap and Wilcoxon, by Holm", form, lines)


def _groups(name: str, rows: Iterable[Found]) -> Table:
    lines = [
        {**part, "method": row["method"], "group": group}
        for row in rows
        for group, part in row[f"by_{name}"].items()
    ]
    form = columns("method", {name: "{group}", "n": "{queries}"}, means(_GROUPED, ".3z"))
    return Table(f"by {name}", form, lines if len({line["group"] for line in lines}) > 1 else [])


def _paraphrases(rows: Iterable[Found]) -> Table:
    lines = [
        {**part, "method": row["method"], "form": form}
        for row in rows
        if (said := row["paraphrase"])
        for form, part in (("original", said["original"]), ("paraphrase", said))
    ]
    form = columns("method", {"words": "{form}", "n": "{queries}"}, means(_REWORDED, ".3z"))
    return Table("paraphrases beside their originals", {**form, "agree": "{agreement:.3z}"}, lines)


def _transfer(label: str, found: Sequence[Found]) -> Iterator[Block]:
    first = found[0]
    unknown = ", as far as is known: their servers are not"
    lost = unknown if first["unserved"] is None else f", {first['unserved']} lose all that serves a step"
    yield f"{label}: {first['rows']} rows"
    yield f"{first['queries']} requests need some of them{lost}"
    form = {
        "method": "{method}", "DA with": "{with[da]:.3z}", "DA without": "{without[da]:.3z}",
        "differs": "{da[difference]:+.3z}",
    }  # fmt: skip
    yield Table("the number of steps of these", form, [one for one in found if one["da"]])
