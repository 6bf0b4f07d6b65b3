"""What a run would read, make, ask and take: `foresee` tells it before any of it is done.

It goes by what this root has measured so far.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from flows.settings import Settings, run_expansion, run_llm
from storage.locks import RESERVE_BYTES
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.state import (
    GOOD,
    documents_table,
    nodes_table,
    parsed_table,
    read_runs,
    read_sources,
    refined_table,
    seen_table,
)
from tasks.crawl.backfill import backfill_of, replay_plan
from tasks.crawl.git.source import FOLDER as MARKETPLACE
from tasks.crawl.source.identity import SAMPLE, shown_spec

log = logging.getLogger(__name__)
_RUNS = 12  # the last ones, of whatever flow
_REFINING = ("nightly", "refresh-one", "full-rebuild")  # flows that refine all that waits
_PARTS, _ENOUGH = range(8), 50  # partitions whose documents, if so many, are like all others
# What a text that was never read is like: the sample and 150 skills of marketplaces have 93 and 123 bytes a
# node, hand-written ones 65; all have 4 bytes a token.
_BYTES_A_NODE, _BYTES_A_TOKEN, _BYTES_A_DOCUMENT, _TOKENS_A_SKILL = 90.0, 4.0, 4_000.0, 30.0
# Seconds a unit of work of a stage, on two cores, where no run of this root has measured it.
_IDLE, _FIXED = 0.25, 1.0  # seconds of a stage that finds nothing to do, and of one beside its work
_RATES = {"crawl": 0.002, "refine": 0.005, "parse": 0.006, "index": 0.003}
_UNMEASURED = 3.0  # how far off such a rate may be
_SPREAD = 1.5  # and one that was measured
_ALIKE = 5_000  # squared differences of amounts that tell as much of a rate as is known without them
# Bytes that are written: of 28 skills, of each partition of `seen` and of the other tables; of 20,000, of a
# skill in `seen`, in these, in what routing reads, of what else a change keeps, and of a text's vectors and
# states. `_FIXED` and `_IDLE` stand for as many times `_A_SECOND`.
_SEEN_PART, _PART, _SEEN, _ROWS, _ROUTED, _CHANGED, _TEXT = 3_400, 50_000, 230, 9_000, 9_500, 3_500, 6_000
_A_SECOND = 5e4
# Tokens of a question to an LLM beside its nodes, and of a node in the answer.
_PROMPT_TOKENS, _ANSWER_TOKENS = 1500, 12
_FORETOLD = (600, 100)  # tokens of a question about a skill's requests, and of its answer


def foresee(
    root: Root, settings: Settings, specs: Sequence[str], *, index: str = "all", limit: int | None = None,
    again: bool = False, keep_vectors: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return what a run would do; nothing is written, and nobody is asked.

    It would read the sources of `specs`, of each at most so many documents, or make everything `again` from
    raw and read no source; `skills` as `index` leaves the nodes' vectors for later, and `keep_vectors`
    encodes no text again whose vector is kept.

    Returns `sources` (what reading each would take; `documents` is null where nobody knows before it is
    read), `documents` to refine, `nodes`, `texts` and `tokens` to encode, `llm` (questions, tokens, cost;
    null without one), `expansion` (the same of what it would foretell), `seconds` by stage, and `range`,
    between which their sum is expected; `bytes_written` as a run's record has them, and `bytes_range`.
    """
    ended = read_runs(root, _RUNS)
    runs = [run for run in ended if run["state"] in GOOD]
    sources = [] if again else [_source(root, spec, runs, limit) for spec in specs]
    documents = sum(one["documents"] or 0 for one in sources) + _waiting(root, ended, again=again)
    unread = sum(one["bytes"] for one in sources)
    per_document, per_node = _lengths(root)
    of_bytes = sum(one["documents"] or 0 for one in sources if one["bytes"])
    nodes = round(unread / _BYTES_A_NODE + (documents - of_bytes) * per_document)
    encoded = nodes if index == "all" and not keep_vectors else 0
    skills = 0 if keep_vectors else documents
    if later := [run for run in runs if _work(run)["refine"] and run["run_id"] != runs[-1]["run_id"]]:
        # Of a document that changed, most nodes are as they were.
        share = mean(run["vectors_new"] / _work(run)["refine"] for run in later)
        encoded = encoded if again or unread else min(encoded, round(documents * share))
    work = {} if again else {"crawl": sum(one["listed"] or 0 for one in sources)}
    work["refine"] = documents
    work["parse"] = work["index"] = documents + encoded
    seconds, between = _seconds(runs, work)
    indexed = (encoded + skills + documents + (nodes if again and index == "all" else encoded)) / 2
    held = max(documents, (runs[0]["documents"] or 0) if runs else 0)
    return {
        "sources": sources, "documents": documents, "nodes": nodes, "texts": encoded + skills,
        "tokens": round(encoded * per_node + skills * _TOKENS_A_SKILL),
        "llm": _llm(settings, runs, documents, nodes, per_node),
        "expansion": _expansion(root, settings, runs, 0 if again else documents), "seconds": seconds,
        "range": between,
        **_written(runs, _bytes(held, documents, indexed), quiet=not documents),
    }  # fmt: skip


def foreseen_of(
    root: Root,
    settings: Settings,
    specs: Sequence[str],
    *,
    days: Sequence[str] = (),
    **given: Any,  # noqa: ANN401 (those of `foresee`)
) -> dict[str, Any] | None:
    """Return what `foresee` does, or `foresee_days` of days; None where it fails, which ends no run."""
    try:
        return {"days": foresee_days(root, days)} if days else foresee(root, settings, specs, **given)
    except Exception as error:
        log.warning("nothing is foreseen of this run: %s", error)
        return None


def _source(root: Root, spec: str, runs: Iterable[dict[str, Any]], limit: int | None) -> dict[str, Any]:
    """Return what reading a source would take: as the last nights did, or as much as lies in a folder.

    Of a folder or table that was read, it is what was written since; of another source, what the nights after
    the first brought, which read all of it.
    """
    known = read_sources(root).get(spec, {})
    whole = known.get("last_read" if known.get("limit") == limit else "last_complete")
    changed, size = _held(spec, datetime.fromisoformat(whole).timestamp() if whole else 0.0)
    listed, requests = changed, None if changed is None else 0
    if known.get("last_read"):
        later = [one for run in runs for one in run["sources"] if one["source"] == spec][:-1]
        if changed is None or (changed and later and spec.startswith("parquet:")):
            changed = round(mean(map(_brought, later))) if later else 0
        size, listed, requests = 0, known.get("listed"), known.get("requests")
    if limit is not None and changed is not None and changed > limit:
        changed, listed, size = limit, limit, round(size * limit / changed)
    quota = known.get("quota_left")
    return {
        "source": shown_spec(spec), "listed": listed, "documents": changed, "bytes": size,
        "requests": requests, "quota_left": quota,
    }  # fmt: skip


def _brought(report: Mapping[str, Any]) -> int:
    return int(report["new"]) + int(report["changed"])


def _held(spec: str, since: float) -> tuple[int | None, int]:
    """Return documents and bytes of a source of this machine that were written since a time (Unix).

    None: nobody knows before it is read.
    """
    form, _, rest = spec.partition(":")
    path = MARKETPLACE if spec == SAMPLE else Path(rest).expanduser()
    with suppress(OSError, ValueError):  # damaged: reading it will tell
        if (form == "dir" or spec == SAMPLE) and path.is_dir():
            files = [file.stat() for file in path.rglob("SKILL.md")]
            sizes = [file.st_size for file in files if file.st_ctime > since]  # copies may keep their mtime
            return len(sizes), sum(sizes)
        if form == "parquet" and path.is_file():
            import pyarrow.parquet as pq  # noqa: PLC0415 (only this asks it)

            rows = int(pq.read_metadata(path).num_rows) if path.stat().st_ctime > since else 0
            return rows, round(rows * _BYTES_A_DOCUMENT)
    return None, 0


def _waiting(root: Root, runs: Iterable[Mapping[str, Any]], *, again: bool) -> int:
    """Return how many documents lie there unrefined or unparsed; `runs` begin with the last."""
    last = next((run for run in runs if run.get("flow", "nightly") in _REFINING), None)
    if not again and last and last["state"] in GOOD:  # it left none, and to look reads every partition
        return 0
    seen = seen_table(root).read(columns=["doc_id", "source", "retired_at"])
    seen = seen.filter(pl.col("retired_at").is_null())
    if again:
        return seen["doc_id"].n_unique()
    refined = refined_table(root).read(columns=["doc_id", "source"])
    waiting = seen.join(refined, on=["doc_id", "source"], how="anti")["doc_id"]
    skills = documents_table(root).read(columns=["doc_id", "kind"]).filter(kind="skill")
    parsed = parsed_table(root).read(columns=["doc_id", "digest"]).filter(pl.col("digest") != "")
    unparsed = skills.join(parsed, on="doc_id", how="anti")["doc_id"]
    return pl.concat([waiting, unparsed]).n_unique()


def _lengths(root: Root) -> tuple[float, float]:
    """Return nodes a document and tokens a node, of what the root holds."""
    parts = _PARTS if parsed_table(root).read(_PARTS, columns=["doc_id"]).height >= _ENOUGH else None
    counts = parsed_table(root).read(parts, columns=["n_nodes"])["n_nodes"]
    tokens = nodes_table(root).read(parts, columns=["n_tokens"])["n_tokens"]
    nodes = float(counts.sum()) / counts.len() if counts.len() else _BYTES_A_DOCUMENT / _BYTES_A_NODE
    return nodes, float(tokens.sum()) / tokens.len() if tokens.len() else _BYTES_A_NODE / _BYTES_A_TOKEN


def foresee_days(root: Root, days: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each day that a backfill would rebuild: what it would make, write and take."""
    runs = [run for run in read_runs(root, _RUNS) if run["state"] in GOOD]
    first = seen_table(root).read(columns=["first_seen_at"])["first_seen_at"].dt.strftime("%Y-%m-%d")
    rows, sizes = replay_plan(root, list(days)), root.sizes()
    tables = sum(sizes.get(part, 0) for part in ("documents", "nodes", "edges"))
    a_document = tables / max(1, documents_table(root).read(columns=["doc_id"]).height)
    for row in rows:
        place = Root(root.at(backfill_of(row["day"])))
        refined, parsed = (t(place).read(columns=["doc_id"]).height for t in (refined_table, parsed_table))
        todo = max(0, int((first <= row["day"]).sum()) - refined)
        unparsed = max(0, todo + row["documents rebuilt before"] - parsed)
        seconds, between = _seconds(runs, {"refine": todo, "parse": unparsed})
        reserve = 0 if row["documents rebuilt before"] else RESERVE_BYTES
        size = _written([], reserve + max(todo, unparsed) * (a_document or _ROWS))
        took = round(sum(seconds.values()), 1)
        row |= {"documents to make": todo, "seconds": took, "range": between, **size}
    return rows


def _work(run: Mapping[str, Any]) -> dict[str, float]:
    """Return what a run that has ended did, in the units that its seconds and bytes are foreseen by."""
    held, texts = run["documents"] or 0, run["vectors_new"] or 0
    documents = sum(map(_brought, run["sources"]))
    if run.get("flow") == "full-rebuild":
        documents, texts = held, (texts + held + ((run.get("served_counts") or {}).get("nodes") or 0)) / 2
    made = documents + (run["vectors_new"] or 0)
    return {
        "crawl": sum(one["listed"] or 0 for one in run["sources"]), "refine": documents, "parse": made,
        "index": made, "written": _bytes(held, documents, texts),
    }  # fmt: skip


def _bytes(held: int, changed: float, texts: float) -> float:
    """Return what a run writes that changes some documents: whole partitions, of `seen` all of them."""
    seen = _touched(held) * _SEEN_PART + held * _SEEN
    tables = _touched(changed) * (_PART + held * _ROWS / PARTITIONS) + changed * _CHANGED
    return seen + tables + texts * _TEXT + (held * _ROUTED if changed else 0)


def _touched(documents: float) -> float:
    """Return how many partitions hold so many documents."""
    return float(PARTITIONS * (1 - (1 - 1 / PARTITIONS) ** documents))


def _written(runs: Iterable[Mapping[str, Any]], amount: float, *, quiet: bool = False) -> dict[str, Any]:
    """Return the bytes that are written for as many as `_bytes` says, and the least and the most of them."""
    told = [run for run in runs if run.get("flow") in _REFINING and run.get("bytes_written")]
    alike = [
        (work["written"], run["bytes_written"])
        for run in told
        if (not (work := _work(run))["refine"]) == quiet
    ]
    known = [(work / _A_SECOND, size / _A_SECOND) for work, size in alike]
    least, likely, most = (round(_A_SECOND * n) for n in _stage_seconds(known, 1.0, amount / _A_SECOND))
    return {"bytes_written": likely, "bytes_range": [round(least / _SPREAD), round(most * _SPREAD)]}


def _seconds(
    runs: Sequence[Mapping[str, Any]], work: Mapping[str, float]
) -> tuple[dict[str, float], list[float]]:
    """Return seconds by stage, and the least and the most that their sum may be."""
    found: dict[str, float] = {}
    low = high = 0.0
    for stage, amount in work.items():
        known = [(_work(run)[stage], run["seconds"][stage]) for run in runs if stage in run["seconds"]]
        least, found[stage], most = _stage_seconds(known, _RATES[stage], amount)
        low, high = low + least / _SPREAD, high + most * _SPREAD
    return {stage: round(took, 2) for stage, took in found.items()}, [round(low, 1), round(high, 1)]


def _stage_seconds(
    known: Sequence[tuple[float, float]], rate: float, amount: float
) -> tuple[float, float, float]:
    """Return the least, the likely and the most seconds for an amount, of what other amounts took.

    They are on a line by least squares: a night of two documents tells what a stage takes beside its work,
    and next to nothing of what 20,000 take. Where all amounts were much alike, `rate` decides with them.
    """
    quiet, busy = [took for done, took in known if not done], [one for one in known if one[0]]
    if known and not amount:
        idle = mean(quiet) if quiet else min(_IDLE, *(took for _, took in known))
        return idle, idle, idle
    if not busy:
        fixed, work = mean(quiet) if quiet else _FIXED, rate * amount
        return fixed + work / _UNMEASURED, fixed + work, fixed + work * _UNMEASURED
    # What a small night took beside its work is not all of it: nobody could say what 20,000 take.
    least = min(_FIXED, *(took - min(rate * done, took / 2) for done, took in busy))
    whole = sum(took - least for _, took in busy) / sum(done for done, _ in busy)
    middle, took_mean = mean(done for done, _ in busy), mean(took for _, took in busy)
    squares = sum((done - middle) ** 2 for done, _ in busy)
    slope = sum((done - middle) * (took - took_mean) for done, took in busy)
    slope = max(0.0, (slope + _ALIKE * min(whole, _UNMEASURED * rate)) / (squares + _ALIKE))
    fixed = took_mean - slope * middle
    if fixed < least:
        fixed, slope = least, whole
    off = [1.0, *(took / max(fixed + slope * done, 0.01) for done, took in busy)]
    beyond = _UNMEASURED if amount > 2 * max(done for done, _ in busy) else 1.0
    likely = fixed + slope * amount
    return likely * min(off) / beyond, likely, likely * max(off) * beyond


def _llm(
    settings: Settings, runs: Iterable[Mapping[str, Any]], documents: int, nodes: int, per_node: float
) -> dict[str, Any] | None:
    """Return what an LLM that types nodes would be asked, as it was before or by the length of a question."""
    llm = run_llm(settings)
    if llm is None:
        return None
    before: Counter[str] = Counter()
    for run in runs:
        if run["llm"]:
            names = ("requests", "prompt_tokens", "completion_tokens")
            before.update({name: run["llm"].get(name, 0) for name in names})
            before["documents"] += round(_work(run)["refine"])
    if before["documents"] and before["requests"]:
        share = documents / before["documents"]
        asked, prompt, answer = (
            round(before[name] * share) for name in ("requests", "prompt_tokens", "completion_tokens")
        )
    else:
        asked = math.ceil(nodes / settings.fragments_at_once)
        prompt, answer = round(asked * _PROMPT_TOKENS + nodes * per_node), nodes * _ANSWER_TOKENS
    cost = round(llm.prices.of(prompt, answer), 4)
    return {"questions": asked, "tokens": prompt + answer, "cost": cost}


def _expansion(
    root: Root, settings: Settings, runs: Iterable[Mapping[str, Any]], documents: int
) -> dict[str, Any] | None:
    """Return what an LLM would be asked to foretell about documents to refine, and those that wait."""
    if (llm := run_expansion(settings)) is None:
        return None
    from tasks.retrieve.routing.expansion import waiting  # noqa: PLC0415 (few ask for it)

    before = Counter(requests=1, prompt_tokens=_FORETOLD[0], completion_tokens=_FORETOLD[1])
    if told := next((run["expansion"] for run in runs if (run.get("expansion") or {}).get("requests")), None):
        before = Counter({name: told[name] for name in before})
    asked = documents + len(waiting(root, llm.endpoint.model)[0])
    prompt, answer = (round(asked * before[name] / before["requests"]) for name in list(before)[1:])
    cost = round(llm.prices.of(prompt, answer), 4)
    return {"questions": asked, "tokens": prompt + answer, "cost": cost}
