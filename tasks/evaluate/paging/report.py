"""The report of paging on one bench: every method, curves over budgets, contests, groups of queries."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import polars as pl

from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.measures.runs import paired_tests
from tasks.evaluate.measures.statistics import clustered_interval
from tasks.evaluate.measures.tables import Block, Table, columns, interval, markdown, papers, with_intervals
from tasks.evaluate.paging.bench import PagingBench, measure
from tasks.evaluate.paging.outcomes import Outcome, Setting, rows_of, run_table
from tasks.retrieve.baselines.skillpager import OPEN_SETTINGS, OpenSettings, settings_of
from tasks.retrieve.baselines.skillpager import Setting as MethodSetting
from tasks.retrieve.page import DEFAULT_METHOD, METHODS

BUDGETS = (0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8)
# The methods of which the picture draws a curve over token budgets.
CURVES = (DEFAULT_METHOD, "skillpager", "chunks", "greedy-graph", "top-k-dependency", "mmr-one-hop")
# The methods of section 5.3.3: the paper's own, other sizes of a large document, and k for all sizes.
SIZED = ("skillpager", "large-80", "large-120", "k-20", "k-60")
# The budgets at which groups of queries, and probes, are looked at.
GROUP_BUDGETS = (None, 0.35, 0.5)
OWN_LIMITS: tuple[Setting, ...] = tuple((method, None) for method in METHODS)
Rows = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class PagingReport:
    """What was measured."""

    rows: list[dict[str, Any]]  # of `rows_of`, judged by evidence
    run: pl.DataFrame  # the long table of all queries and settings, by evidence
    contests: list[dict[str, Any]]  # the default against each published method; by evidence
    # The outcomes at each method's own limit, with contexts if the bench keeps them.
    measured: dict[Setting, list[Outcome]]
    # Rows on probes of long documents; none where no corpus was given.
    probes: list[dict[str, Any]] = field(default_factory=list)
    # Documents of this bench that the packaged scorer was fitted on: held-out scorers page them.
    fitted: int = 0
    skillpager: OpenSettings = OPEN_SETTINGS
    # Rows at each method's own limit with what a language model says under `llm`; none without one.
    judged: list[dict[str, Any]] = field(default_factory=list)
    # Who judged, and how judges agree, as `flows.commands.judge` has it.
    judge: dict[str, Any] = field(default_factory=lambda: {"spoke": "evidence"})

    def row(self, method: str, budget: float | None = None) -> dict[str, Any]:
        """Return the row of a method and budget that was measured, judged by evidence."""
        return next(r for r in self.rows if r["method"] == method and r["budget"] == budget)

    def spoken_row(self, method: str) -> dict[str, Any] | None:
        """Return the row of a method at its own limit by the judge who speaks; None: it judged none of it."""
        if self.judge["spoke"] != "llm":
            return self.row(method)
        return next((r for r in self.judged if r["method"] == method), None)

    def take_verdicts(self, judged: Mapping[Setting, Sequence[Outcome]]) -> None:
        """Take what a judge said of each query into the run."""
        said = run_table(judged).filter(pl.col("measure") == "verdict")
        self.run = pl.concat([self.run, said])

    def all_rows(self) -> list[dict[str, Any]]:
        """Return a row for each method and budget, each with its `judge`."""
        if self.judge["spoke"] == "evidence":
            return [{**row, "judge": "evidence"} for row in self.rows]
        spoken = "evidence" if self.judge["spoke"] == "both" else self.judge["model"]
        curves = [{**row, "judge": "evidence"} for row in self.rows if row["budget"] is not None]
        return [{**row, "judge": spoken} for row in self.judged] + curves


def report_steps(queries: Sequence[EvidenceQuery]) -> int:
    """Return how often `report_paging` calls its `step`."""
    settings, rivals = report_settings()
    own = len(OWN_LIMITS)
    return own * len(queries) + (len(settings) - own + len(rivals)) * sum(bool(q.evidence) for q in queries)


def report_settings() -> tuple[list[Setting], list[str]]:
    """Return the settings that a report measures, and the published methods it compares the default with."""
    ours = {DEFAULT_METHOD, "full", "nodes", "mmr"}
    named = [row["method"] for rows in papers("paging").values() for row in rows if row["method"] not in ours]
    return [*OWN_LIMITS, *((m, b) for m in CURVES for b in BUDGETS)], list(dict.fromkeys(named))


def report_paging(bench: PagingBench, step: Callable[[], None]) -> PagingReport:
    """Measure every method at its own limit, curves over budgets, and each method against the default.

    Curves and comparisons are judged by evidence, so only queries that have any are in them. `step` is called
    after each page, `report_steps` times.
    """
    settings, rivals = report_settings()
    measured = measure(bench, OWN_LIMITS, step)
    known = replace(bench, queries=[query for query in bench.queries if query.evidence])
    contests = []
    if known.queries:
        measured |= measure(known, settings[len(OWN_LIMITS) :], step)
        for rival in rivals:
            theirs = [outcome for outcome in measured[rival, None] if outcome.coverage is not None]
            budgets = [float(max(outcome.tokens, 2)) for outcome in theirs]
            contests.append((rival, theirs, known.measured(DEFAULT_METHOD, budgets, step=step)))
    return PagingReport(
        rows_of(measured), run_table(measured), _contests(contests),
        {setting: measured[setting] for setting in OWN_LIMITS}, fitted=len(bench.scorers),
        skillpager=bench.skillpager,
    )  # fmt: skip


def probe_settings() -> list[Setting]:
    """Return the settings that a report measures on probes."""
    return [(method, budget) for method in CURVES for budget in GROUP_BUDGETS]


def report_probes(report: PagingReport, bench: PagingBench, step: Callable[[], None]) -> None:
    """Add to a report how the methods with curves fare on probes, which are in no other figure."""
    measured = measure(bench, probe_settings(), step)
    report.probes = rows_of(measured)
    report.run = pl.concat([report.run, run_table(measured)])


def _contests(measured: Sequence[tuple[str, list[Outcome], list[Outcome]]]) -> list[dict[str, Any]]:
    """Return each method against the default at that method's own tokens, query by query.

    `difference` is the default's sufficiency less the method's, with its 95 % interval over queries, and
    over documents (`low_clustered`, `high_clustered`); `p_adjusted` by Holm and Bonferroni over all contests;
    `default_tokens` and `method_tokens` are means; `held_out` are the queries as `summarise_outcomes` counts
    them.
    """
    values = [
        [[float(outcome.coverage == 1.0) for outcome in side] for side in (ours, theirs)]
        for _, theirs, ours in measured
    ]
    found = []
    tests = paired_tests([(ours, theirs) for ours, theirs in values])
    for (rival, theirs, ours), (a, b), test in zip(measured, values, tests, strict=True):
        differences = [x - y for x, y in zip(a, b, strict=True)]
        low, high = clustered_interval(differences, [outcome.doc_id for outcome in ours])
        found.append({
            "method": rival, "sufficient": sum(b) / len(b), "default_sufficient": sum(a) / len(a),
            "difference": test.difference, "low": test.low, "high": test.high, "p": test.p,
            "low_clustered": low, "high_clustered": high, "p_adjusted": test.p_adjusted,
            "method_tokens": sum(outcome.tokens for outcome in theirs) / len(theirs),
            "default_tokens": sum(outcome.tokens for outcome in ours) / len(ours),
            "held_out": sum(outcome.held_out for outcome in ours),
        })  # fmt: skip
    return found


EVIDENCE = (
    "Judged by evidence: a context suffices when it holds every item of evidence, which is stricter than the"
    " paper's judge, a language model. The paper's figures are of its own skills and queries."
)
UNITS = "Units are nodes; of the method that picks chunks, chunks."
PROBES = (
    "A probe is made of a section's own words, without a language model: its heading and the rarest words of"
    " a sentence ask for it, and three of its passages are the evidence. That is easier than what people ask,"
    " so compare methods and sizes here, not these figures with those above."
)
_CONTESTS_NOTE = (
    "Each request is paged again under the tokens that the method took for it. Paired bootstrap over"
    " queries, 10,000 resamples, seed 42; p two-sided, by Holm and Bonferroni over all rows; by evidence."
)
_SETTINGS_NOTE = (
    "`k` None: 20 up to 100 nodes of the document, else 60, for chunks too. At a budget of tokens neither"
    " `k` nor `stop_below` nor `least_gain` ends a method, and a walk that has nowhere to go enters anew:"
    " each fills the budget, so that curves compare."
)
_LATENCY_NOTE = "One page, its query's encoding included, documents prepared before."
_MARKED = "{method}{held_out:? †}"
_LIMIT = "{budget:g|own limit}"
_SUFFICIENT = {"Suff. (%)": "{sufficient:.2p}", "95% CI": interval("sufficient", ".2p")}
_CLUSTERED = {"95% CI by document": interval("sufficient", ".2p", key="ci95_clustered")}
_SHARES = {"Coverage (%)": "{coverage:.2p}", "Token red. (%)": "{token_reduction:.2p}"}
_PAPER = columns(
    {"Method": "{label}{held_out:? †}"}, _SUFFICIENT, _CLUSTERED,
    {
        "Avg. units": "{units:.2f}", "Token red. (%)": "{token_reduction:.2p}",
        "Red. against nodes (%)": "{token_reduction_nodes:.2p}", "paper: Suff.": "{paper[sufficient]:.2f}",
        "paper: 95% CI": "[{paper[interval][0]:.2f}, {paper[interval][1]:.2f}]",
        "paper: nodes": "{paper[nodes]:.2f}", "paper: token red.": "{paper[reduction]:.2f}",
    },
)  # fmt: skip
_CURVES = columns({"Method": _MARKED, "Budget": _LIMIT}, _SUFFICIENT, _CLUSTERED, _SHARES)
_CONTESTS = {
    "Method": "{method}", "Suff. (%)": "{sufficient:.2p}",
    f"{DEFAULT_METHOD} at its tokens": "{default_sufficient:.2p}{held_out:? †}",
    "difference": "{difference:.2p}", "95% CI": "[{low:.2p}, {high:.2p}]",
    "95% CI by document": "[{low_clustered:.2p}, {high_clustered:.2p}]", "p": "{p:.4f}",
    "p (Holm)": "{p_adjusted:.4f}", "tokens": "{method_tokens:.0f}",
    f"{DEFAULT_METHOD}'s tokens": "{default_tokens:.0f}",
}  # fmt: skip
_GROUPS = columns(
    {"Method": _MARKED, "Budget": _LIMIT, "Group": "{group}", "Queries": "{queries}"}, _SUFFICIENT, _SHARES
)
_SIZED = columns(
    {"Method": "{method}", "Group": "{group}", "Queries": "{queries}"}, _SUFFICIENT,
    {"Token red. (%)": "{token_reduction:.2p}"},
)  # fmt: skip
_LATENCY = {
    "Method": "{method}", "median ms": "{median_ms:.1f}", "95th percentile ms": "{p95_ms:.1f}",
}  # fmt: skip
_JUDGED = {
    "Method": "{method}", "Budget": _LIMIT, "judged": "{llm[queries]}",
    "LLM: suff. (%)": "{llm[sufficient]:.2p}", "95% CI": "[{llm[ci95][0]:.2p}, {llm[ci95][1]:.2p}]",
    "votes": "{votes}", "unjudged": "{llm[unjudged]}",
}  # fmt: skip
_AGREEMENT = {
    "Judges": "{judges}", "Votes": "{votes}", "Cases": "{cases}", "Agreement (%)": "{raw:.2p}",
    "Cohen's kappa": "{kappa:.3f}", "first alone": "{only_a}", "second alone": "{only_b}",
}  # fmt: skip


def paging_markdown(report: PagingReport) -> str:
    """Return the whole report as one Markdown text."""
    blocks: list[Block] = ["# Paging", judge_note(report), *notes_of(report.rows, report.fitted)]
    for title, held in papers("paging").items():
        ours = ((row, report.spoken_row(row["method"])) for row in held)
        rows = [{**found, "label": row["label"], "paper": row} for row, found in ours if found is not None]
        blocks.append(Table(title, _PAPER, rows))
    if report.judged:
        votes = [{**row, "votes": _votes(row["llm"]["patterns"])} for row in report.judged]
        blocks.append(Table("Evidence and the language model", _JUDGED, votes))
        if agreed := agreement_rows(report.judge):
            blocks.append(Table("", _AGREEMENT, agreed))
    curves = [row for row in report.rows if row["method"] in CURVES and row["sufficient"] is not None]
    sized = [row for method in SIZED if (row := report.spoken_row(method)) is not None]
    blocks += [
        Table("Over token budgets", _CURVES, curves),
        f"## {DEFAULT_METHOD} against each method at that method's own tokens", _CONTESTS_NOTE,
        Table("", _CONTESTS, report.contests),
        Table("By breadth", _GROUPS, _groups(report.rows, "by_breadth")),
        Table("By size of the document", _GROUPS, _groups(report.rows, "by_size")),
        Table("k by size of the document (section 5.3.3)", _SIZED, _groups(sized, "by_budget", SIZED)),
    ]  # fmt: skip
    if report.probes:
        blocks += ["## Long documents: probes, no requests of people", PROBES]
        blocks += [Table("", _GROUPS, _groups(report.probes, "by_size"))]
    own = [row for row in report.rows if not row["budget"]]
    blocks += [Table("Latency", _LATENCY, own), _LATENCY_NOTE, *_settings(report.skillpager)]
    return markdown(blocks)


def judge_note(report: PagingReport) -> str:
    """Return who judged which part of the report."""
    spoke = report.judge["spoke"]
    if spoke == "evidence":
        return EVIDENCE
    model = f"{report.judge['model']} by {report.judge['prompt']}, {report.judge['votes']} votes"
    if spoke == "both":
        return f"{EVIDENCE} At each method's own limit {model}, judged too."
    return (
        f"Tables 1 to 7: judged by a language model, {model}, as the paper's are, which are of its own skills"
        " and queries. All else is judged by evidence: a context suffices when it holds every item of it."
    )


def notes_of(rows: Iterable[Mapping[str, Any]], fitted: int) -> list[str]:
    """Return what to know of the figures: what units are, and which of them are by held-out scorers.

    `fitted` is the number of documents that the packaged scorer was fitted on.
    """
    chunks = any(row["method"] == "chunks" for row in rows)
    held_out = (
        f"† Held out: the scorer of {DEFAULT_METHOD} was fitted on {fitted} of these documents; each of"
        " them is paged by a scorer that never saw it."
    )
    return [UNITS] * chunks + [held_out] * bool(fitted)


def agreement_rows(judge: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each two judges and pattern of votes; none where one judge spoke alone."""
    return [
        {**group, "judges": names.replace("_", ", "), "votes": pattern}
        for names, found in judge.get("agreement", {}).items()
        for pattern, group in {"all": found, **found.get("by_pattern", {})}.items()
    ]


def _groups(rows: Rows, by: str, methods: Sequence[str] = CURVES) -> list[dict[str, Any]]:
    return [
        {**group, **{key: row[key] for key in ("method", "budget", "held_out")}, "group": name}
        for row in rows
        if row["method"] in methods and row["budget"] in GROUP_BUDGETS
        for name, group in row[by].items()
    ]


def _votes(patterns: Mapping[str, int], between: str = ": ") -> str:
    return ", ".join(f"{pattern}{between}{n}" for pattern, n in patterns.items()) or "none"


def _settings(given: OpenSettings) -> list[Block]:
    held = {name: ", ".join(v) if isinstance(v, tuple) else v for name, v in given.model_dump().items()}
    names = [f.name for f in fields(MethodSetting)]
    methods = [
        {"Method": method} | {name: str(getattr(setting, name)) for name in names}
        for method, setting in settings_of(given).items()
    ]
    return [
        Table(
            "What the paper leaves open", columns("Setting", "Value"),
            [{"Setting": name, "Value": str(value)} for name, value in held.items()],
        ),
        _SETTINGS_NOTE,
        Table("", columns("Method", *names), methods),
    ]  # fmt: skip


_COLUMNS = 80  # of a terminal
_NAMED = "{method}{budget:? }{budget:g|}"
_BRIEF = columns(
    {"method": _NAMED + "{held_out:? †}"},
    with_intervals(
        {"sufficient": "sufficient", "coverage": "coverage", "token_reduction": "reduction"},
        around=(" ", "–", ""),
    ),
    units="{units:.1f}", ms="{median_ms:.0f}",
)  # fmt: skip
_BY_LLM = {
    "method": _NAMED, "sufficient": "{llm[sufficient]:.3f}", "judged": "{llm[queries]}", "votes": "{votes}",
    "unjudged": "{llm[unjudged]}",
}  # fmt: skip
_AGREED = {
    "judges": "{judges}", "votes": "{votes}", "cases": "{cases}", "agreement": "{raw:.3f}",
    "kappa": "{kappa:.3f}", "first alone": "{only_a}", "second alone": "{only_b}",
}  # fmt: skip
_SAMPLE = {
    "method": _NAMED, "LLM says": "{says}", "votes": "{votes}", "contexts": "{found}", "drawn": "{drawn}",
}  # fmt: skip


def terminal_blocks(found: Mapping[str, Any]) -> list[Block]:
    """Return what a person sees of what the command returns: methods, who judged, how judges agree."""
    rows, judge = found["methods"], found["judge"]
    if "report" in found:  # its files hold the curves
        rows = [row for row in rows if row["budget"] is None]
    by = "evidence" if judge["spoke"] == "both" else judge["spoke"]
    notes = [textwrap.fill(note, _COLUMNS) for note in found.get("notes", ())]
    blocks: list[Block] = [_methods(f"paging judged by {by}", rows), *notes]
    if "probes" in found:
        blocks.append(_methods("probes of long documents, made without people", found["probes"]))
    if "model" in judge:
        blocks += _llm_blocks(rows, judge)
    if agreed := agreement_rows(judge):
        title = "how judges agree, where each says that a context suffices"
        blocks.append(Table(title, _AGREED, agreed))
    if sample := judge.get("sample"):
        cells = [{**one, "says": "yes" if one["sufficient"] else "no"} for one in sample["cells"]]
        blocks.append(Table("contexts drawn for people to label", _SAMPLE, cells))
        blocks.append(
            f"written: {sample['file']}, a form of {sample['pairs']} pairs; fill it in, give it to --labels"
        )
    return blocks + [f"written: {file}" for file in found.get("report", [])]


def _methods(title: str, rows: Rows) -> Table:
    asked = f", {rows[0]['queries']} queries" if rows else ""
    return Table(f"{title}{asked}, 95 % intervals", _BRIEF, rows)


def _llm_blocks(rows: Rows, judge: Mapping[str, Any]) -> list[Block]:
    title = f"{judge['model']} by {judge['prompt']}, {judge['votes']} votes a context"
    judged = [{**row, "votes": _votes(row["llm"]["patterns"], " ")} for row in rows if "llm" in row]
    llm = judge["llm"]
    asked = (
        f"{llm['requests']} requests, {llm['cached']} answers known before, {llm['tokens']} tokens, "
        f"cost {llm['cost']:g}; votes that failed: {_votes(judge['failed'], ' ')}"
    )
    return [Table(title, _BY_LLM, judged), asked]
