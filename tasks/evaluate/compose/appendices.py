"""The appendices of the report on plans: paraphrases, conditions, significance, simulation, reranking.

What is not in a cell is said there: no endpoint, not measured, or that the paper does not state it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.evaluate.compose.methods import DEFAULT, METHODS, NEED_ENDPOINT, PAPERS, PAPERS_VANILLA, VANILLA
from tasks.evaluate.measures.tables import Block, Table, columns, papers

Found = Mapping[str, Any]
Rows = Mapping[str, Found]  # of `methods`, by name
NOT_STATED, NO_ENDPOINT = "not stated", "no endpoint"
MAIN_MEASURES = {
    "da": "DA",
    "da±1": "DA±1",
    "catr@1": "CatR@1",
    "catr@10": "CatR@10",
    "chain_cat": "Chain_cat",
}
INTERVAL = "[{low:.3f}, {high:.3f}]"
_SHOWN_COUNTS = 40  # requests on which feedback changed the number of steps; all stand in compose.json
_METHOD = {"Method": "`{method}`"}


def own(rows: Rows, method: str, measures: Iterable[str]) -> dict[str, str]:
    """Return our figures as texts; of a method that was not measured, why."""
    why = "not measured" if method in METHODS else NO_ENDPOINT
    return {m: share(rows[method].get(m)) if method in rows else why for m in measures}


def stated(figures: Mapping[str, float], measures: Iterable[str]) -> dict[str, str]:
    """Return figures of the paper as texts, or that it states none."""
    return {m: share(figures[m]) if m in figures else NOT_STATED for m in measures}


def share(value: float | None) -> str:
    """Return a share with three digits; nothing of None."""
    return "" if value is None else f"{value:.3f}"


def p_value(value: float) -> str:
    """Return a p-value with four digits, or a smaller one with its power of ten."""
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def _plain(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> Table:
    """Return a table of cells as they are."""
    form = {heading: f"{{c{place}}}" for place, heading in enumerate(headings)}
    return Table("", form, [{f"c{place}": text for place, text in enumerate(line)} for line in lines])


def paraphrases_section(_found: Found, rows: Rows) -> list[Block]:
    """Return how stable plans are under other words (section 7.4)."""
    form = {
        "": "{name}", "requests": "{queries}", "DA": "{original[da]:.3f}", "DA paraphrased": "{da:.3f}",
        "agreement": "{agreement:.3f}", "CatR@1": "{original[catr@1]:.3f}",
        "CatR@1 paraphrased": "{catr@1:.3f}",
    }  # fmt: skip
    lines = [{**said, "name": f"`{name}`"} for name, row in rows.items() if (said := row["paraphrase"])]
    note = "" if lines else "None of these requests has a paraphrase."
    lines += [
        {
            "name": f"paper: {label}", "original": {"da": da, "catr@1": cat}, "da": reworded,
            "agreement": agreement, "catr@1": reworded_cat,
        }
        for label, da, reworded, agreement, cat, reworded_cat in papers("compose")["paraphrases"]
    ]  # fmt: skip
    return [note, Table("", form, lines)]


def conditioned_section(found: Found, rows: Rows) -> list[Block]:
    """Return what is found where the number of steps is right, or told (section 7.6)."""
    form = {
        "Method": "{name}", "requests with the right number": "{queries}", "CatR@1": "{catr@1:.3f}",
        "CatR@1, all": "{all[catr@1]:.3f}", "CatR@10": "{catr@10:.3f}", "SrvR@1": "{srvr@1:.3f}",
        "SrvR@1, all": "{all[srvr@1]:.3f}",
    }  # fmt: skip
    lines = [{**part, "name": f"`{name}`", "all": rows[name]} for name, part in found["when_right"].items()]
    lines.append({"name": "paper: vanilla", "queries": NOT_STATED, **papers("compose")["when_right"]})
    shown = ("da", "catr@1", "catr@10", "srvr@1")
    oracle = [
        (f"`{name}`", *own(rows, name, shown).values())
        for name in ("gold-count", "gold-count-r0", "llm-gold-count", "paper-gold-count")
        if name in rows or name in NEED_ENDPOINT
    ]
    told = stated(papers("compose")["oracle"], shown[:3]).values()
    oracle.append(("paper: vanilla, told the number", *told, ""))
    return [
        Table("", form, lines),
        "Told the right number of steps, which its words may not allow:",
        _plain(("Method", "DA", "CatR@1", "CatR@10", "SrvR@1"), oracle),
    ]


def significance_section(found: Found, _rows: Rows) -> list[Block]:
    """Return whether what feedback changes is significant (appendix G), and by a language model if it was."""
    over = f"`{DEFAULT}` against `{VANILLA}`, over {found['queries']} requests."
    blocks = [over, *_significance(found["feedback"])]
    if found["feedback_llm"]:
        blocks += [f"`{PAPERS}` against `{PAPERS_VANILLA}`.", *_significance(found["feedback_llm"])]
    return blocks


def _significance(feedback: Found) -> list[Block]:
    lines = []
    for measure, one in feedback["tests"].items():
        held = papers("compose")["significance"].get(measure)
        told: dict[str, object] = dict.fromkeys("wnpc", NOT_STATED if measure in MAIN_MEASURES else "")
        if held:
            bounds = f"[{held[3][0]:.3f}, {held[3][1]:.3f}]" if held[3] else NOT_STATED
            told = dict(zip("wnpc", (held[0], held[1], f"{held[2]:.2g}", bounds), strict=True))
        said = {"p": p_value(one["p"]), "ranks": p_value(one["wilcoxon"]["p"])}
        lines.append({**one, "measure": measure, "paper": told, "said": said})
    form = {
        "Measure": "{measure}", "difference": "{difference:+.3f}", "95% CI": INTERVAL,
        "p (bootstrap)": "{said[p]}", "W": "{wilcoxon[w]:g}", "pairs that differ": "{wilcoxon[differing]}",
        "p (Wilcoxon)": "{said[ranks]}", "paper: W": "{paper[w]}", "paper: pairs": "{paper[n]}",
        "paper: p": "{paper[p]}", "paper: 95% CI": "{paper[c]}",
    }  # fmt: skip
    return [Table("", form, lines), *_subsets(feedback)]


def _subsets(feedback: Found) -> list[Block]:
    names = {
        "corrected": "feedback made it right",
        "spoilt": "feedback made it wrong",
        "right": "right in both",
    }
    lines: list[Sequence[object]] = []
    for key, name in names.items():
        part, held = feedback[key], papers("compose")["subsets"].get(key)
        for measure in ("catr@1", "srvr@1"):
            one, told = part.get(measure), ""
            if held and measure == "catr@1":
                told = f"{held[1]:.3f}, {held[2]:.3f}, {held[3]:g} ({held[0]})"
            shares = [share(one["before"]), share(one["after"]), p_value(one["p"])] if one else ["", "", ""]
            lines.append((name, part["queries"], measure, *shares, told))
    heads = (
        "Number of steps", "requests", "Measure", "before", "after", "p (Wilcoxon)",
        "paper: before, after, p",
    )  # fmt: skip
    counts = feedback["counts"]
    changed = {
        "Request": "{query_id}", "needed": "{needed}", "before": "{before}", "after": "{after}",
        "": "{nearer:?nearer}{farther:?not nearer}",
    }  # fmt: skip
    told_counts = [{**one, "farther": not one["nearer"]} for one in counts[:_SHOWN_COUNTS]]
    said = f"Feedback changed the number of steps of {len(counts)} requests; `compose.json` has their texts."
    return [_plain(heads, lines), said, Table("", changed, told_counts) if counts else ""]


def pilot_section(found: Found, _rows: Rows) -> list[Block]:
    """Return the simulation of carrying plans out (appendix I)."""
    one, held = found["simulation"], papers("compose")["pilot"]
    note = (
        "**A simulation: nothing was executed.** Each step succeeds by chance, with a rate of 80 to 95 %"
        f" drawn for each category by seed {found['seed']}; {one['repeats']:,} repeats, 95 % of which lie"
        " in the intervals. The paper's executors were mocks as well. In the last column a step succeeds"
        " only if what was chosen serves a needed step."
    )
    shares = {"ses": "steps that succeed (SES)", "ccr": "requests of which all do (CCR)"}
    lines = [
        ("requests", one["queries"], held["queries"], ""),
        ("steps of a plan", f"{one['steps']:.2f}", f"{held['steps']:.2f}", ""),
        ("DA", share(one["da"]), share(held["da"]), ""),
        *(
            (name, _spread(one[key]), share(held[key]), _spread(one[f"{key}_right"]))
            for key, name in shares.items()
        ),
    ]
    return [note, _plain(("", f"`{DEFAULT}`", "paper", "and rightly chosen"), lines)]


def _spread(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


def pool_section(found: Found, _rows: Rows) -> list[Block]:
    """Return the rows of each category, and how many need a key or a login (appendix H)."""
    pool, held = found["pool"], papers("compose")["pool"]
    sizes = {**pool["categories"], **dict.fromkeys(sorted(held["categories"].keys() - pool["categories"]), 0)}
    lines = [
        ("rows", pool["rows"], sum(held["categories"].values())),
        ("need a key or a login", f"{pool['keys']:.1%}", f"{held['keys']:.1%}"),
        *((name, size, held["categories"].get(name, "")) for name, size in sizes.items()),
    ]
    return ["By what names and descriptions say.", _plain(("", "ours", "paper"), lines)]


def failures_section(_found: Found, rows: Rows) -> list[Block]:
    """Return why plans fail, as shares of those that do (section 7.10 and appendix J)."""
    why = {
        "over": "too many steps",
        "under": "too few",
        "unfound": "one finds nothing",
        "misranked": "chooses wrongly",
    }
    form = columns(
        {"Method": "{name}"}, {"plans that fail": "{fail:.3f}"}, {t: f"{{{k}:.3f}}" for k, t in why.items()}
    )
    lines = []
    for name, row in rows.items():
        line: dict[str, Any] = {"name": f"`{name}`"}
        known = [value for key in why if (value := row.get(key)) is not None]
        if len(known) == len(why):  # else it is not known how many fail
            line["fail"] = fail = sum(known)
            line |= {key: row[key] / fail for key in why if fail}
        lines.append(line)
    lines.append({"name": "paper: vanilla", **papers("compose")["failures"]})
    note = (
        "Of plans with as many steps as are needed, one step finds nothing that serves it among ten, or all"
        " find it and one chooses something else. The paper read 50 plans of the first three kinds; of its"
        " third, .28 say too little and .22 use other words than the skills."
    )
    return [note, Table("", form, lines)]


def reranked_section(_found: Found, rows: Rows) -> list[Block]:
    """Return what reranking gains (appendix K)."""
    held = papers("compose")["reranked"]
    heads = ("Reranker", "CatR@1 before", "CatR@1 after", "SrvR@1 before", "SrvR@1 after", "p (bootstrap)")
    lines = [
        ("paper: listwise, 7B", share(held["before"]), share(held["after"]), "", "", f"{held['p']:g}"),
        *((f"by an LLM, {name}", *_reranked(rows, *pair)) for name, pair in _RERANKED.items()),
    ]
    note = (
        f"The paper's: {held['wins']} requests better, {held['losses']} worse, 222 the same; 95 % CI of the"
        f" gain {INTERVAL.format(**held)}; CatR@10, which bounds it, .716."
    )
    return [_plain(heads, lines), note]


_RERANKED = {
    "its steps and our candidates": ("llm-r1", "llm-rerank"),
    "the paper's candidates": (PAPERS, "paper-rerank"),
}


def _reranked(rows: Rows, before: str, after: str) -> tuple[str, ...]:
    one, other = (own(rows, name, ("catr@1", "srvr@1")) for name in (before, after))
    return one["catr@1"], other["catr@1"], one["srvr@1"], other["srvr@1"], ""


def confidence_section(found: Found, _rows: Rows) -> list[Block]:
    """Return whether confidence tells what is served, and what is chosen rightly."""
    form = columns(_METHOD, {
        "steps": "{steps}", "AUROC, served against not": "{auroc_served:.3f}",
        "gaps, served": "{gaps[with]:.3f}", "gaps, not served": "{gaps[without]:.3f}",
        "right choices": "{right}", "wrong choices": "{wrong}",
        "AUROC, right against wrong": "{auroc_right:.3f}",
    })  # fmt: skip
    lines = [{"method": name, **one} for name, one in found["without_gold"].items()]
    note = (
        f"Of each request one step, drawn by seed {found['seed']}, loses all that serves it. The paper has no"
        " such measure."
    )
    return [note, Table("", form, lines)] if lines else [
        "It is not known what serves the steps of these requests."
    ]  # fmt: skip
