"""Print runs, status, pages and other answers for a person."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import typer

from flows.cli.printing.cost import between
from flows.cli.printing.measures import print_paging
from flows.commands.console import counts, minute, say, say_aside, say_text, table
from storage.errors import WrongInput


def print_run(record: dict[str, Any]) -> None:
    """Print what a run did."""
    say(f"run {record['run_id']}: {record['state']}", style="bold")
    for source in record["sources"]:
        say(f"{source['source']}: {source['state']}; {_reading(source)}")
        if source.get("message") and source["message"] != record["message"]:
            say(source["message"], style="red", indent=2)
    if not record["specs"]:
        say("no source is listed: skillery sources add SPEC adds one")
    for mended in record["mended"]:
        say(f"found at the start: {mended}", style="red")
    if record["documents"] is None:  # the bucket did not say what it holds, or serves
        say(f"{record['state']}: {record['message']}", style="red")
        return
    served = record["served_counts"]
    other = served is not None and any(n not in (None, record[what]) for what, n in served.items())
    corpus = "corpus, not served: " if other else ""
    say(f"{corpus}documents {record['documents']}, dropped: {counts(record['dropped'])}")
    say(f"nodes {record['nodes']}, edges {record['edges']}, vectors made {record['vectors_new']}")
    if record["sources"] and not (record["documents"] or record["message"]):
        say(_nothing_left(record), style="red")
    _risks(record)
    if record["llm"]:
        _llm(record["llm"])
    if record["message"]:
        say(f"{record['state']}: {record['message']}", style="red")
    passed = sum(c["passed"] for c in record["checks"])
    news = "published" if record["published"] else "nothing changed" if not record["message"] else "kept"
    checked = f"checks passed {passed} of {len(record['checks'])}; " if record["checks"] else ""
    say(f"{checked}served: {record['served'] or 'nothing'} ({news}){_of(served) if other else ''}")
    say(f"seconds: {counts({stage: f'{seconds:.1f}' for stage, seconds in record['seconds'].items()})}")


def _risks(record: dict[str, Any]) -> None:
    """Print which revisions add risks, and what a language model was asked about risks."""
    for added in record.get("risks_added", ()):
        say(added["message"], style="red")
    for name, what in (("opinions", "about risks"), ("expansion", "to foretell requests")):
        if asked := record.get(name):
            said = {key: value for key, value in asked.items() if key != "model" and value != {}}
            say(f"asked of {asked['model']} {what}: {counts(said)}")


def _nothing_left(record: dict[str, Any]) -> str:
    lost = sum((Counter(source["failed"]) for source in record["sources"]), Counter(record["dropped"]))
    listed = sum(source["listed"] for source in record["sources"])
    told = f"no document is left of {listed} listed, dropped: {counts(dict(lost))}"
    return f"{told}; dropped/ below the root names each, skillery sources add SPEC adds a source"


def _of(served: dict[str, int | None] | None) -> str:
    held = {what: n for what, n in (served or {}).items() if n is not None}
    return f": {counts(held)}" if held else ""


def _llm(report: dict[str, Any]) -> None:
    asked = f"{report['asked']} fragments, typed locally after all: {counts(report['fallbacks'])}"
    say(f"asked of {report['classifier']}: {asked}")
    sent = f"{report['requests']} requests, {report['cached']} answers known before"
    say(f"{sent}, {report['tokens']} tokens, {report['seconds']:g} s, cost {report['cost']:g}")
    if report["partial"]:
        why = "the budget is spent" if report["spent"] else "the LLM did not answer"
        left = f" of {report['unfinished']} documents" if report["unfinished"] else ""
        say(f"partial: {why}; the rest{left} is typed locally until the next run asks", style="red")


def print_classified(found: dict[str, Any]) -> None:
    """Print how many fragments were typed, by whom and as what."""
    say(f"{found['fragments']} fragments typed by {counts(found['classifiers'])}")
    say(f"as {counts(found['types'])}; in {found['out']}")
    if found["llm"]:
        _llm(found["llm"])


def _reading(source: dict[str, Any]) -> str:
    """Return what the reading of a source brought, and what was asked of the network where something was."""
    found = {c: source[c] for c in ("listed", "new", "changed", "unchanged", "retired")}
    asked = {c: source[c] for c in ("withdrawn", "requests", "quota_left") if source.get(c)}
    failed = f"; failed: {counts(source['failed'])}" if source["failed"] else ""
    return counts(found | {c.replace("_", " "): n for c, n in asked.items()}) + failed


def print_foreseen(found: dict[str, Any], *, err: bool = False) -> None:
    """Print what would be forgotten, a line an id."""
    tell = say_aside if err else say
    tell(f"the {found['scope']} {found['target']}; gone for good would be:")
    for doc_id in found["doc_ids"]:
        tell(f"  {doc_id}")
    for doc_id in found["copies"]:
        tell(f"  {doc_id} (holds the same text)")


def confirm_forgetting(found: dict[str, Any]) -> None:
    """Ask the person at the terminal whether to forget; raises `WrongInput` if there is none, or for a no."""
    ids = len(found["doc_ids"]) + len(found["copies"])
    if not sys.stdin.isatty():
        raise WrongInput(f"{ids} documents would be gone for good: give --yes, or --dry-run to see which")
    print_foreseen(found, err=True)
    if not typer.confirm("Remove them everywhere?", err=True):
        raise WrongInput("nothing was removed")


def print_forgotten(found: dict[str, Any]) -> None:
    """Print what was forgotten."""
    ids = [*found["doc_ids"], *(f"{doc_id} (the same text)" for doc_id in found["copies"])]
    say(f"forgotten, the {found['scope']} {found['target']}: {', '.join(ids) or 'no document is left of it'}")
    say(f"removed: {counts(found['removed']) if found['removed'] else 'nothing, all was gone already'}")
    say(f"a tombstone keeps it out; served: {found['served'] or 'nothing yet'}, older versions are gone")


def print_rollback(found: dict[str, Any]) -> None:
    """Print what is served again, and how to go forward."""
    say(f"{found['served']} is served again, published {found['published_at']}; it was {found['was']}")
    say(f"kept: {', '.join(found['versions'])}")
    say(f"forward again: skillery rollback {found['was']}; the next run that changes anything publishes anew")


def print_backfill(days: list[dict[str, Any]]) -> None:
    """Print a row a day of a backfill, or of what one would do."""
    shown = [column for column in days[0] if column not in ("range", "bytes_written", "bytes_range")]
    table("backfill", shown, [[day[column] for column in shown] for day in days])
    served = next((day["published"] for day in days if day.get("published")), None)
    if "published" not in days[0]:  # a dry run's
        last = next((day["day"] for day in days if day["would be served"]), None)
        then = f"that of {last} would be served if it passed the gate" if last else "what is served stays"
        took, *spread = (sum([day["seconds"], *day["range"]][at] for day in days) for at in range(3))
        say(f"seconds in all {between(took, spread)}")
        sizes = ([day["bytes_written"], *day["bytes_range"]] for day in days)
        size, *spread = (sum(column) / 1e6 for column in zip(*sizes, strict=True))
        say(f"megabytes to write in all {between(size, spread, 1)}")
        say(f"nothing was done; each day would have tables of its own under backfill/; {then}")
        return
    say(
        "each day has tables of its own under backfill/; "
        + (f"{served} is served, and the next run goes on from it" if served else "what is served stays")
    )


def print_findings(found: dict[str, Any]) -> None:
    """Print what was found below a root, and what was done about it."""
    for finding in found["findings"]:
        say(f"{finding['where']}: {finding['found']}", style=None if finding["mended"] else "red")
        say(finding["done"], indent=2)
    count = len(found["findings"])
    say(
        f"{count or 'nothing'} found{'' if found['mended'] else ', not all of it mended'}; "
        f"served: {found['served'] or 'nothing'}"
    )
    _say_tuned(found)


def _say_tuned(found: dict[str, Any]) -> None:
    tuned = found.get("tuned")
    if tuned and tuned.get("why"):
        say(f"tuned for {tuned['rerank']}, not in use: {tuned['why']}" if tuned["rerank"] else tuned["why"])
    elif tuned:
        say(f"search is tuned on {tuned['requests']} requests of this root, {minute(tuned['at'])}")


def print_export(found: dict[str, Any]) -> None:
    """Print what an export holds."""
    say(f"{found['documents']} documents, {found['with_text']} with their text, in {found['out']}")
    say(f"left out: {counts(found['left_out'])}")
    say(f"the corpus by licence, when exported: {counts(found['classes'])}")
    say(f"{found['out']}/DATASHEET.md says where they come from and how they were refined")


def print_status(status: dict[str, Any]) -> None:
    """Print what a root holds and serves."""
    age = "" if status["age_hours"] is None else f", {status['age_hours']:.1f} h old"
    say(f"served: {status['served'] or 'nothing yet'}{age}{_of(status['served_counts'])}")
    if status["good_age_hours"] is not None:
        night = status["last_good"]["nightly"]["run_id"]
        say(f"last good night: {night}, {status['good_age_hours']:.1f} h ago")
    for run in status["under_way"]:
        doing = f", {run['doing']}" if run["doing"] else ""
        said = run["message"] or f"last heard of at {minute(run['heartbeat_at'])}"
        style = "red" if run["state"] == "died" else None
        say(f"{run['flow']} {run['run_id']}: {run['state']}{doing}; {said}", style=style)
    say(f"corpus: {counts(status['counts'])}")
    say(f"dropped: {counts(status['dropped'])}", indent=2)
    say(f"licences, when answering: {counts(status['licences'])}", indent=2)
    for source in status["sources"]:
        since = f", stale since {minute(source['stale_since'])}" if source["stale_since"] else ""
        last = (
            f"read whole at {minute(source['last_complete'])}" if source["last_complete"] else "never whole"
        )
        say(f"source {source['source']}: {source['state']}, {last}{since}")
        if source["listed"] is not None:
            say(_reading(source), indent=2)
    _say_tuned(status)
    rows = [
        [r["run_id"], r["flow"], r["state"], r["published"], f"{sum(r['seconds'].values()):.1f}"]
        for r in status["runs"]
    ]
    table("last runs", ["run", "flow", "state", "published", "seconds"], rows)


def print_search(answer: dict[str, Any]) -> None:
    """Print a ranking of skills, a paragraph each: an id may be as long as a line."""
    say(answer["query"], style="bold")
    if answer["nothing_fits"] and answer["results"]:
        say("Nothing served seems to fit; what comes nearest:", style="yellow")
    for result in answer["results"]:
        fit = "" if result["fit"] is None else f"  fit {result['fit']:.0%}"
        say(f"{result['rank']:>2}  {result['doc_id']}{fit}")
        for line in _told(result):
            say(line, indent=4)
    more = (
        "read one with: skillery page DOC_ID QUERY" if answer["results"] else "no skill is served that fits"
    )
    _say_tuned(answer)
    say(f"{answer['took_ms']:.0f} ms; {more}")


def _told(result: dict[str, Any]) -> list[str]:
    """Return a skill's description, shortened, its origin, its copies and what its score is made of."""
    lines = [shortened(result["description"]), origin(result, result["source"])]
    if result.get("parts"):  # other methods than the default have none
        parts = (f"{part} {score:.2f}" for part, score in result["parts"].items() if abs(score) >= _LEAST)
        lines.append(f"{result['score']:.2f} = {' + '.join(parts) or 0}")
    if result["folded"]:
        lines.append(f"near-identical: {', '.join(result['folded'])}")
    return [line for line in lines if line]


_LEAST = 0.005  # a smaller part of a score would show as 0.00


def origin(answer: dict[str, Any], place: str) -> str:
    """Return where a text comes from, its licence, and, where there are any, its commit's start and risks."""
    commit, risks = answer.get("commit"), answer.get("risks")
    said = f"from {place}, licence {answer['licence'] or 'unknown'}" + (
        f", commit {commit[:12]}" if commit else ""
    )
    return f"{said}; risks: {', '.join(risks)}" if risks else said


def shortened(text: str, width: int = 140) -> str:
    """Return a text on one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def print_unknown(names: dict[str, str | None]) -> None:
    """Say on stderr which environment variables look like settings and are none."""
    for name, near in names.items():
        say_aside(
            f"{name} is no setting" + (f": {near} is" if near else "") + "; `skillery settings` lists them"
        )


def print_notes(answer: dict[str, Any]) -> None:
    """Print on stderr what a reader of a page must know of it."""
    if answer["over_budget"]:
        say_aside(f"no part fits {answer['budget']:g} tokens: this is the best one, of {answer['tokens']}")
    if answer.get("unmatched"):
        say_aside("no word of the request stands in this skill: what was chosen may not answer it")
    if answer.get("by_words"):
        say_aside("to encode this skill took too long: its parts were chosen by their words alone")


def print_page(answer: dict[str, Any]) -> None:
    """Print a page: its context, then where it comes from and what it cost."""
    say_text(answer["context"])
    say("─" * 40)
    share = answer["tokens"] / max(answer["document_tokens"], 1)
    cost = f"{answer['tokens']} of {answer['document_tokens']} tokens ({share:.0%})"
    how = f"{answer['method']}, reranked" if answer.get("reranked") else answer["method"]
    say(f"{len(answer['nodes'])} nodes, {cost}, {answer['took_ms']:.0f} ms, method {how}")
    say(_third_party(answer))


def print_origin(answer: dict[str, Any]) -> None:
    """Print on stderr where a page comes from."""
    say_aside(_third_party(answer))


def _third_party(answer: dict[str, Any]) -> str:
    return f"third-party text of {answer['doc_id']} {origin(answer, answer['url'] or answer['source'])}"


def print_nodes(found: dict[str, Any]) -> None:
    """Print how a classifier of fragments agrees with people, and the table of a hybrid's thresholds."""
    say(f"{found['classifier']}: {_agreement(found)}, expected calibration error {found['ece']:.3f}")
    if found["sure"]:
        say(f"where people were sure: {_agreement(found['sure'])}")
    names, figures = list(found["confusion"]), ("precision", "recall", "f1")
    rows = [[name, *found["confusion"][name].values()] for name in names if name in found["types"]]
    table("what people said, by what was answered", ["", *(name[:6] for name in names)], rows)
    measured = [[n, *(f"{found['types'][n][x]:.3f}" for x in figures)] for n in names if n in found["types"]]
    table("each type", ["", *figures], measured)
    columns = ("threshold", "sent", "kept_accuracy", "sent_accuracy", "accuracy")
    shares = [["" if row[c] is None else f"{row[c]:.3f}" for c in columns] for row in found["thresholds"]]
    how = "measured" if found["measured"] else "expected of an LLM as accurate as SKILLERY_LLM_ACCURACY"
    table(f"asking an LLM below a threshold of local confidence, accuracy {how}", [*columns], shares)
    if found["llm"]:
        _llm(found["llm"])


def _agreement(found: dict[str, Any]) -> str:
    figures = f"accuracy {found['accuracy']:.3f}, macro-F1 {found['macro_f1']:.3f}"
    return f"{figures} on {found['fragments']} fragments"


def print_comparison(found: dict[str, Any]) -> None:
    """Print two corpora's measures side by side: medians, means, p adjusted by Holm and Bonferroni."""
    columns = ["median_a", "median_b", "mean_a", "mean_b", "p_adjusted", "effect"]
    rows = [
        [c["measure"], *("" if c[name] is None else f"{c[name]:.3g}" for name in columns)]
        for c in found["contrasts"]
    ]
    title = f"A: {found['documents_a']} documents, B: {found['documents_b']}; two-sided Mann-Whitney U"
    table(title, ["measure", *columns], rows)
    if found["without_text_a"] or found["without_text_b"]:
        say(f"without text, not measured: A {found['without_text_a']}, B {found['without_text_b']} documents")


def print_evaluation(found: dict[str, Any]) -> None:
    """Print the figures of an evaluation of what is served."""
    rows = [[p["probe"], p["leg"], p["queries"], p["measure"], f"{p['value']:.3f}"] for p in found["probes"]]
    table(f"evaluation of {found['version']}", ["probe", "leg", "queries", "measure", "value"], rows)
    if found.get("paging"):
        print_paging({"methods": found["paging"], "judge": {"spoke": "evidence"}})
    for line in found["fallen"]:
        say(f"worse than allowed: {line}")
    say(f"drift and pictures: {found['report']} below the root")


def print_compaction(found: dict[str, Any]) -> None:
    """Print what compaction merged, and what it let go of."""
    columns = ["table", "rows", "files_before", "files_after", "bytes_before", "bytes_after"]
    rows = [[t["table"], *(f"{t[c]:,}" for c in columns[1:])] for t in found["tables"]]
    table("tables", [column.replace("_", " ") for column in columns], rows)
    say(f"{found['published']} is served" if found["published"] else "nothing to merge; what is served stays")
    say(f"files of all versions: {found['files_before']} before, {found['files_after']} now")
    say(f"versions gone: {', '.join(found['gone']) or 'none'}")
    say(f"bundled files removed, which no document names any more: {found['blobs_gone']}")
    if raw := found["raw"]:
        freed = f"{raw['rows']:,} rows of documents, {raw['files']:,} files, {raw['bytes']:,} bytes freed"
        say(f"raw snapshots are whole from {raw['since']} on; of before: {freed}")


def print_settings(rows: list[dict[str, Any]]) -> None:
    """Print each setting on a line, and below it what it means."""
    for row in rows:
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        value = "none" if row["value"] is None else value
        origin = "" if row["origin"] == "default" else f"  (from the {row['origin']})"
        say(f"{row['name']}={value}{origin}", style=None if row["origin"] == "default" else "bold")
        say(row["description"], indent=2)


def print_alert(found: dict[str, Any]) -> None:
    """Print who is told of failures."""
    told = f"{found['block']} is told of failed runs of Skillery's deployments"
    say(f"automation {found['automation']} {found['done']}: {told}")


def print_graph(found: dict[str, Any]) -> None:
    """Print what a picture shows, and where it is."""
    nodes, edges = found["counts"]["nodes"], found["counts"]["edges"]
    say(f"{found['doc_id']}: drawn to {found['out']}")
    say(f"{sum(nodes.values())} nodes: {counts(nodes)}")
    joined = f"{found['density']:.2%} of ordered pairs of nodes are joined"
    say(f"{sum(edges.values())} edges: {counts(edges)}; {joined}")
