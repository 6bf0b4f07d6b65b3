"""The forms in which benches, and what was measured on them, are printed for a person."""

from __future__ import annotations

from typing import Any

from flows.console import counts, say, table


def print_growth(found: dict[str, Any]) -> None:
    """Print what came of growing a bench of paging."""
    say(f"{found['queries']} queries on {found['documents']} skills of {found['namespaces']} namespaces")
    say(f"by breadth: {counts(found['by_breadth'])}; in {found['out']}")
    say(f"this time: asked about {found['asked']} skills, {found['kept']} kept from before")
    say(f"queries rejected: {counts(found['rejected'])}")
    if found["failed"]:
        why = f"{counts(found['failed'])}; each file in queries/ says why"
        say(f"skills without a query: {why}, delete it to ask again", style="red")
    _asked(found)
    if found["skills"] < found["wanted"] and not found["unfinished"]:
        say(f"no more skills are served: {found['wanted']} were wanted")


def _asked(found: dict[str, Any]) -> None:
    """Print what a language model was asked, what that cost, and what is left to ask."""
    llm = found["llm"]
    say(f"asked of {found['model']} by {found['prompt']}: {llm['requests']} requests, {llm['cached']} known")
    say(f"answers rejected {llm['rejected']}, {llm['tokens']} tokens, cost {llm['cost']:g}")
    if found["unfinished"]:
        say(f"partial: left for the next run: {counts(found['unfinished'])}", style="red")


_MEASURES = {"sufficient": "sufficient", "coverage": "coverage", "token_reduction": "reduction"}


def print_paging(found: dict[str, Any]) -> None:
    """Print the table of paging methods with 95 % intervals, who judged, and how judges agree."""
    rows, judge = found["methods"], found["judge"]
    if "report" in found:  # its files hold the curves
        rows = [row for row in [*found["held_out"], *rows] if row["budget"] is None]
    by = "evidence" if judge["spoke"] == "both" else judge["spoke"]
    _paging_table(f"paging judged by {by}", rows)
    if found.get("fitted"):
        fitted = f"the default's scorer was fitted on {found['fitted']} of these documents"
        say(f"{fitted}: trust the row `held out`" if found["held_out"] else f"{fitted}: its row is too good")
    if "probes" in found:
        _paging_table("probes of long documents, made without people", found["probes"])
    if "model" in judge:
        _print_judge(rows, judge)
    _print_agreement(judge.get("agreement", {}))
    for file in found.get("report", []):
        say(f"written: {file}")


def _paging_table(title: str, rows: list[dict[str, Any]]) -> None:
    cells = [
        [
            row["method"] if row["budget"] is None else f"{row['method']} {row['budget']:g}",
            *(f"{row[x]:.3f} {row['ci95'][x][0]:.2f}–{row['ci95'][x][1]:.2f}" for x in _MEASURES),
            f"{row['nodes']:.1f}",
            f"{row['median_ms']:.0f}",
        ]
        for row in rows
    ]
    asked = f", {rows[0]['queries']} queries" if rows else ""
    table(f"{title}{asked}, 95 % intervals", ["method", *_MEASURES.values(), "nodes", "ms"], cells)


def _print_judge(rows: list[dict[str, Any]], judge: dict[str, Any]) -> None:
    cells = []
    for row in (r for r in rows if "llm" in r):
        said = row["llm"]
        share = "" if said["sufficient"] is None else f"{said['sufficient']:.3f}"
        name = row["method"] if row["budget"] is None else f"{row['method']} {row['budget']:g}"
        cells.append([name, share, said["queries"], counts(said["patterns"]), said["unjudged"]])
    title = f"{judge['model']} by {judge['prompt']}, {judge['votes']} votes a context"
    table(title, ["method", "sufficient", "judged", "votes", "unjudged"], cells)
    llm = judge["llm"]
    say(f"{llm['requests']} requests, {llm['cached']} answers known before, {llm['tokens']} tokens, "
        f"cost {llm['cost']:g}; votes that failed: {counts(judge['failed'])}")  # fmt: skip


def _print_agreement(found: dict[str, Any]) -> None:
    cells = [
        [
            names.replace("_", ", "),
            pattern,
            group["cases"],
            f"{group['raw']:.3f}",
            "" if group["kappa"] is None else f"{group['kappa']:.3f}",
            group["only_a"],
            group["only_b"],
        ]
        for names, of_all in found.items()
        for pattern, group in {"all": of_all, **of_all.get("by_pattern", {})}.items()
    ]
    if cells:
        columns = ["judges", "votes", "cases", "agreement", "kappa", "first alone", "second alone"]
        table("how judges agree, where each says that a context suffices", columns, cells)


def print_distractors(found: dict[str, Any]) -> None:
    """Print what came of making distractors."""
    say(f"{found['distractors']} distractors of {found['skills']} skills: {counts(found['by_kind'])}")
    say(f"in {found['out']}/distractors.jsonl: give it to `evaluate routing` as one more --documents")
    say(f"this time: asked about {found['asked']} skills, {found['kept']} kept from before")
    if found["failed"]:
        why = f"{counts(found['failed'])}; each file in distractors/ says why"
        say(f"skills without any: {why}, delete it to ask again", style="red")
    _asked(found)
