"""The state between runs: documents seen, refined and parsed, sources, runs and those under way, aliases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from socket import gethostname
from typing import Any

import polars as pl

from storage.errors import StorageError
from storage.locks import Holder, age_at, holder
from storage.parquet import read_frame, write_frame
from storage.partitions import PartitionedTable, list_file
from storage.root import Root
from storage.schemas import DOCUMENTS, DROPPED, EDGES, LISTINGS, NODES, RAW_DOCUMENTS, TIME
from storage.tombstones import FOLDER as FORGOTTEN_FOLDER
from storage.tombstones import FORGOTTEN

SCHEMAS: dict[str, pl.Schema] = {}  # of each table of Parquet files below a root, by its folder


def _table(folder: str, schema: pl.Schema, **options: Any) -> Callable[[Root], PartitionedTable]:  # noqa: ANN401
    """Return what opens the table of a folder below a root, and note its schema."""
    SCHEMAS[folder] = schema
    return partial(PartitionedTable, folder=folder, schema=schema, **options)


# The corpus: one row a document that survived.
documents_table = _table("documents", DOCUMENTS, listed=True)
# Documents that are copies of another: they come back when their survivor goes.
folded_table = _table("state/folded", DOCUMENTS, listed=True)
# What refine made of a document of a source: `outcome` is `kept`, the reason it was dropped for, or
# `pending` where a run died in between.
REFINED = pl.Schema({
    "doc_id": pl.String, "source": pl.String, "digest": pl.String, "outcome": pl.String,
})  # fmt: skip
refined_table = _table("state/refined", REFINED, listed=True)
# What was seen, one row a document and source: no text, so that an unchanged night rewrites none.
SEEN = pl.Schema({
    "doc_id": pl.String(), "source": pl.String(), "digest": pl.String(), "raw_part": pl.String(),
    "first_seen_at": TIME, "last_seen_at": TIME, "stale_since": TIME, "retired_at": TIME,
})  # fmt: skip
seen_table = _table("state/seen", SEEN, listed=True, unique=("doc_id", "source"))
nodes_table = _table("nodes", NODES, listed=True)
edges_table = _table("edges", EDGES, key="src_id", node_key=True, listed=True)
# What has been parsed, by digest.
PARSED = pl.Schema({"doc_id": pl.String, "digest": pl.String, "n_nodes": pl.Int32, "n_edges": pl.Int32})
parsed_table = _table("state/parsed", PARSED, listed=True)
# Folded, renamed and retired ids, each with the document that stands for it.
ALIASES = pl.Schema({
    "doc_id": pl.String(), "survivor": pl.String(), "kind": pl.String(), "since": TIME,
})  # fmt: skip
aliases_table = _table("state/aliases", ALIASES, listed=True)
SCHEMAS |= {
    "dropped": DROPPED, "raw/documents": RAW_DOCUMENTS, "raw/listings": LISTINGS, FORGOTTEN_FOLDER: FORGOTTEN,
}  # fmt: skip
# One row of a list a source. `repository` is lower-case `owner/repo`, `ref` the first part of what follows
# /tree/ in its URL (empty: the default branch), `rest` what follows that. What looking brought: `doc_id`,
# `outcome` (`ok`, or why there is no document, null: not looked at yet), `digest` of the skill's files.
LISTED = pl.Schema({
    "repository": pl.String(), "ref": pl.String(), "rest": pl.String(), "source": pl.String(),
    "source_id": pl.String(), "written": pl.String(), "updated_at": TIME, "stars": pl.Int64(),
    "category": pl.String(), "tags": pl.List(pl.String), "doc_id": pl.String(), "outcome": pl.String(),
    "digest": pl.String(),
})  # fmt: skip
# An id that a list gives is lossy: two skills may share one. A place is one's own.
listed_table = _table(
    "state/listed", LISTED, key="repository", unique=("source", "repository", "ref", "rest")
)
# One row a repository, ref and source. `state` is `ok`, `refused` (its archive), `too-large`, `failed` (could
# not be looked at), `missing`, `denied`, `gone` (missed too often) or `withdrawn`; `listed` is the digest of
# its listed rows when it was last looked at; `misses` counts runs that missed it in a row.
REPOSITORIES = pl.Schema({
    "repository": pl.String(), "ref": pl.String(), "source": pl.String(), "full_name": pl.String(),
    "repo_id": pl.String(), "licence": pl.String(), "stars": pl.Int64(), "commit": pl.String(),
    "etag": pl.String(), "etag_key": pl.String(), "state": pl.String(), "listed": pl.String(),
    "checked_at": TIME, "changed_at": TIME, "misses": pl.Int32(), "first_missed_at": TIME,
    "last_missed_at": TIME, "detail": pl.String(),
})  # fmt: skip
repositories_table = _table(
    "state/repositories", REPOSITORIES, key="repository", unique=("source", "repository", "ref")
)
# Signatures of texts. `rule` says how a row was made, another rule's rows are made again; `size` counts
# distinct shingles; `bands` holds little-endian 32-bit numbers, empty for a text too short to have shingles.
SIGNATURES = pl.Schema({
    "body_hash": pl.String, "rule": pl.String, "size": pl.Int32, "bands": pl.Binary,
})  # fmt: skip
signatures_table = _table("state/signatures", SIGNATURES, key="body_hash")
# Pairs of texts compared on their true shingles, near or not; `body_hash` is the smaller of the two.
COMPARED = pl.Schema({
    "body_hash": pl.String, "other": pl.String, "rule": pl.String, "similarity": pl.Float64,
})  # fmt: skip
compared_table = _table("state/near", COMPARED, key="body_hash")
# What a language model wrote about a text: no `requests` where it gave none that can be used. `made_by` names
# prompt, model, and the weights that made `vector`, the mean of the requests' vectors.
EXPANSIONS = pl.Schema({
    "doc_id": pl.String(), "content_hash": pl.String(), "made_by": pl.String(),
    "requests": pl.List(pl.String), "vector": pl.List(pl.Float32),
})  # fmt: skip
expansions_table = _table("state/expansions", EXPANSIONS, listed=True)
# The names that runs are given sort by time, so that the last are known unread; a person may give any other.
_BY_TIME = re.compile(r"/\d{8}T\d{6}-[0-9a-f]{6}\.json$")


def rename(root: Root, survivors: Mapping[str, str], now: datetime) -> None:
    """Let ids lead to those that their documents have now."""
    rows = [{"doc_id": i, "survivor": s, "kind": "renamed", "since": now} for i, s in survivors.items()]
    aliases_table(root).replace(survivors.keys(), pl.DataFrame(rows, schema=ALIASES))


def append_dropped(root: Root, run_id: str, rows: pl.DataFrame) -> None:
    """Add rows to the run's file of dropped documents, each once; no rows make no file."""
    if rows.is_empty():
        return
    relative = f"dropped/{run_id}.parquet"
    if root.exists(relative):
        rows = pl.concat([read_frame(root, relative, DROPPED), rows])
    rows = rows.unique(maintain_order=True)
    list_file(root, relative, rows.height, write_frame(root, relative, rows, DROPPED))


def read_sources(root: Root) -> dict[str, dict[str, Any]]:
    """Return what is remembered of each source, by spec."""
    sources = (root.read_json("state/sources.json") or {}).get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(record, dict) for record in sources.values()):
        msg = f"{root.at('state/sources.json')} is damaged: `skillery doctor --root {root.uri}` removes it"
        raise StorageError(msg)
    return dict(sources)


def write_source(root: Root, spec: str, record: dict[str, Any] | None) -> None:
    """Remember one source's record; None forgets the source."""
    write_sources(root, {spec: record})


def write_sources(root: Root, changed: Mapping[str, dict[str, Any] | None]) -> None:
    """Remember the records of some sources, all or none of them."""
    records = {**read_sources(root), **changed}
    known = {name: kept for name, kept in records.items() if kept is not None}
    root.write_json("state/sources.json", {"sources": known})


def read_runs(root: Root, last: int = 10) -> list[dict[str, Any]]:
    """Return the records of the last runs, by when they began, newest first."""
    files = sorted(root.files("state/runs", ".json"), reverse=True)
    timed = [f for f in files if _BY_TIME.search(f)][:last]
    records = root.each(root.read_json, [*timed, *(f for f in files if not _BY_TIME.search(f))])
    known = [record for record in records if record is not None and is_run(record)]
    return sorted(known, key=lambda r: (r.get("started_at") or "", r["run_id"]), reverse=True)[:last]


def is_run(record: dict[str, Any]) -> bool:
    """Tell whether a JSON object has what readers of a run's record read."""
    kinds = {"run_id": str, "state": str, "specs": list, "sources": list}
    return all(isinstance(record.get(key), kind) for key, kind in kinds.items())


def read_run(root: Root, run_id: str) -> dict[str, Any] | None:
    """Return the record of one run, None where there is none."""
    return root.read_json(f"state/runs/{run_id}.json")


def write_run(root: Root, record: dict[str, Any]) -> None:
    """Keep one run's record under its `run_id`."""
    root.write_json(f"state/runs/{record['run_id']}.json", record)


# What lies here is under way, or died without a word: a record of its end lies with those of the other runs.
_UNDER_WAY = "state/running"
SILENT = timedelta(minutes=2)  # after which a run that has said nothing is dead
GOOD = ("complete", "partial")
_LAST_GOOD = "state/last_good.json"


def write_heartbeat(root: Root, record: Mapping[str, Any]) -> None:
    """Note what a run that is under way has done so far, and that it lives."""
    beat = {**record, "state": "running", "heartbeat_at": datetime.now(UTC).isoformat()}
    root.write_json(f"{_UNDER_WAY}/{record['run_id']}.json", beat)


def end_heartbeat(root: Root, run_id: str) -> None:
    """Note that a run is no longer under way."""
    root.delete(f"{_UNDER_WAY}/{run_id}.json")


def runs_under_way(root: Root, now: datetime | None = None) -> list[dict[str, Any]]:
    """Return the records of runs that have begun and not ended, newest first.

    The `state` of a run is `died` once it no longer holds the root's lock, or has been silent for two
    minutes; its `ended_at` is then when it was last heard of.
    """
    read = [(file, root.read_json(file)) for file in reversed(root.files(_UNDER_WAY, ".json"))]
    # In this order: a run keeps its record before it lets go of the lock, and then its heartbeat is gone.
    now, held, found = now or datetime.now(UTC), holder(root), []
    for file, record in read:
        if record is None or not is_run(record) or read_run(root, record["run_id"]) is not None:
            continue
        if held is None or held.run != record["run_id"] or _silence(root, file, record, held, now) > SILENT:
            if not root.exists(file):
                continue
            heard = record["heartbeat_at"]
            said = f"its process ended without a word after {heard[:19].replace('T', ' ')} UTC"
            record |= {
                "state": "died", "ended_at": heard, "message": f"{said}; a later run picks up from there",
            }  # fmt: skip
        found.append(record)
    return found


def _silence(root: Root, file: str, record: Mapping[str, Any], held: Holder, now: datetime) -> timedelta:
    """Return how long ago a heartbeat was; of another machine's, whose clock may differ, as the root says."""
    found = None if held.host == gethostname() else age_at(root, file)
    return now - datetime.fromisoformat(record["heartbeat_at"]) if found is None else found


def settle_died(root: Root) -> list[dict[str, Any]]:
    """Keep the records of runs that died with those of the others; return all that did not take leave.

    These died, or ended well and were killed while they told so. Only the holder of the root's lock may.
    """
    for record in runs_under_way(root):
        if record["state"] == "died":
            write_run(root, {key: value for key, value in record.items() if key != "heartbeat_at"})
    files = root.files(_UNDER_WAY, ".json")
    found = [told for file in files if (told := read_run(root, PurePosixPath(file).stem))]
    for record in found:
        if record["state"] in GOOD:
            note_good(root, record)
    for file in files:
        root.delete(file)
    return found


def last_good_runs(root: Root) -> dict[str, dict[str, Any]]:
    """Return `run_id`, `ended_at` and `seconds` of the last run of each flow that was complete or partial."""
    found = (root.read_json(_LAST_GOOD) or {}).get("flows")
    if found is None:  # written before this was noted
        good = (run for run in read_runs(root, 30) if run["state"] in GOOD and run.get("started_at"))
        found = {run.get("flow", "nightly"): _good(run) for run in reversed(list(good))}
    return dict(found)


def note_good(root: Root, record: Mapping[str, Any]) -> None:
    """Note a run that was complete or partial as the last such one of its flow."""
    root.write_json(_LAST_GOOD, {"flows": {**last_good_runs(root), record["flow"]: _good(record)}})


def _good(run: Mapping[str, Any]) -> dict[str, Any]:
    began = datetime.fromisoformat(run["started_at"])
    ended = datetime.fromisoformat(run.get("ended_at") or run["started_at"])
    seconds = (ended - began).total_seconds() or sum(run["seconds"].values())
    return {"run_id": run["run_id"], "ended_at": ended.isoformat(), "seconds": round(seconds, 2)}


_NOT_DROPPED = ("kept", "pending")


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """Documents, nodes and edges, and by reason how many documents crawled are in none of them."""

    documents: int
    nodes: int
    edges: int
    dropped: dict[str, int]


def corpus_counts(root: Root) -> CorpusCounts:
    """Count what the root holds now."""
    parsed = parsed_table(root).read(columns=["n_nodes", "n_edges"])
    outcomes = Counter(refined_table(root).read(columns=["outcome"])["outcome"])
    documents = documents_table(root).read(columns=["doc_id", "body_hash"])
    folded = folded_table(root).read(columns=["doc_id", "body_hash"])
    onto = folded.join(aliases_table(root).read(columns=["doc_id", "survivor"]), on="doc_id")
    same = onto.join(
        documents, left_on=["survivor", "body_hash"], right_on=["doc_id", "body_hash"], how="semi"
    )
    near = folded.height - same.height
    copies = {"duplicate": folded.height - near, "near_duplicate": near}
    dropped = {reason: n for reason, n in sorted(outcomes.items()) if reason not in _NOT_DROPPED}
    dropped |= {reason: n for reason, n in copies.items() if n}
    nodes, edges = (int(parsed[column].sum()) for column in ("n_nodes", "n_edges"))
    return CorpusCounts(documents.height, nodes, edges, dropped)


def split_backfill(file: str) -> tuple[str, str]:
    """Return the prefix of the backfill that a file belongs to (empty: none), and the rest of its path."""
    if not file.startswith("backfill/"):
        return "", file
    base, day, below = file.split("/", 2)
    return f"{base}/{day}/", below


def table_of(file: str) -> str:
    """Return the folder of the table that a file belongs to, without a backfill's prefix."""
    below = split_backfill(file)[1]
    for table in ("raw/documents", "raw/listings"):
        if below.startswith(f"{table}/"):
            return table
    return str(PurePosixPath(below).parent)


_ACCEPTED = "state/accepted_risks.json"


def accepted_risks(root: Root, doc_id: str) -> dict[str, datetime]:
    """Return the rules whose risks a person accepted of a document, each with when."""
    known = (root.read_json(_ACCEPTED) or {}).get(doc_id.casefold(), {})
    return {rule: datetime.fromisoformat(when) for rule, when in known.items()}


def accept_risks(root: Root, doc_id: str, rules: Iterable[str], now: datetime) -> None:
    """Accept what rules find in the revisions of a document that were fetched until now."""
    known, key = root.read_json(_ACCEPTED) or {}, doc_id.casefold()
    accepted = {**known.get(key, {}), **dict.fromkeys(rules, now.isoformat())}
    root.write_json(_ACCEPTED, {**known, key: accepted})
