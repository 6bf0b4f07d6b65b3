"""Commands to operate a root: status, sources, doctor, export, forget, rollback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flows.commands.console import say_aside
from flows.run_record import new_run_id, recorded
from flows.settings import load_settings
from storage.errors import StorageError, WrongInput
from storage.lance.served import CLASSES, published_versions, read_licences, read_served
from storage.locks import writer_lock
from storage.root import Root
from storage.state import (
    corpus_counts,
    documents_table,
    last_good_runs,
    read_runs,
    runs_under_way,
    seen_table,
)
from tasks.crawl.source.identity import hide_credentials, shown_spec
from tasks.crawl.source_list import known_sources, list_sources, remove_source
from tasks.refine.export.export import Format, export_corpus
from tasks.refine.licences.policy import LicencePolicy
from tasks.retrieve.routing.tuned import read_tuned
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.publish import roll_back

# What is shown of a source: when it was read to its end, and what the last crawl found and cost.
_OF_A_SOURCE = (
    "state", "documents", "last_complete", "stale_since", "listed", "new", "changed", "unchanged", "retired",
    "withdrawn", "failed", "requests", "quota_left", "message", "last_read",
)  # fmt: skip
_OF_A_RUN = ("run_id", "flow", "state", "doing", "started_at", "heartbeat_at", "message")
UNLISTED = "unlisted"  # the state of a source that is not on the list


def root_status(root: Root) -> dict[str, Any]:
    """Return what `skillery status` prints of what is served, of the corpus, its sources and the last runs.

    `served_counts` is of what is served; `counts`, `dropped` and `licences` are of the corpus, which may be
    newer: a version that the gate refused, or that was gone back from, is not served. `good_age_hours` is the
    time since the last night that was complete or partial, also where nothing had changed and nothing was
    published; `under_way` holds the runs that have begun and not ended, living or dead.
    """
    served = read_served(root)
    age = None if served is None else (datetime.now(UTC) - served.published_at).total_seconds() / 3600
    counts = corpus_counts(root)
    seen = seen_table(root).read(columns=["stale_since", "retired_at"])
    good, now = last_good_runs(root), datetime.now(UTC)
    night = good.get("nightly")
    quiet = None if night is None else (now - datetime.fromisoformat(night["ended_at"])) / timedelta(hours=1)
    runs = [
        {"flow": r.get("flow", "nightly"), **{k: r[k] for k in ("run_id", "state", "published", "seconds")}}
        for r in read_runs(root)
    ]
    return {
        "served": served.version if served else None,
        "published_at": served.published_at.isoformat() if served else None,
        "age_hours": None if age is None else round(age, 3),
        "good_age_hours": None if quiet is None else round(quiet, 3),
        "last_good": good,
        "under_way": [{key: run.get(key) for key in _OF_A_RUN} for run in runs_under_way(root, now)],
        "served_counts": served.counts(root) if served else None,
        "counts": {
            "documents": counts.documents,
            "nodes": counts.nodes,
            "edges": counts.edges,
            "stale": seen["stale_since"].drop_nulls().len(),
            "retired": seen["retired_at"].drop_nulls().len(),
        },
        "sources": source_rows(root),
        "runs": runs,
        "dropped": counts.dropped,
        "licences": _by_licence_class(root),
        "tuned": _tuned(root),
    }


def _tuned(root: Root) -> dict[str, Any] | None:
    """Return what the root's own requests taught, whether it is `used` with these settings, and `why` not."""
    try:
        found = read_tuned(root)
    except StorageError as error:
        return {"rerank": None, "requests": None, "at": None, "used": False, "why": str(error)}
    rerank = load_settings().rerank
    why = None if found is None or found.rerank == rerank else f"SKILLERY_RERANK is {rerank}"
    return found and {**found.said(), "used": why is None, "why": why}


def source_rows(root: Root) -> list[dict[str, Any]]:
    """Return a row a source on the list, and one a source that is not on it but has documents.

    Sources that an older Skillery never could read are shown as unlisted until they are removed. No run reads
    an unlisted source, so that it is never stale.
    """
    rows = []
    for spec, record in known_sources(root).items():
        row = {"source": shown_spec(spec), **{key: record.get(key) for key in _OF_A_SOURCE}}
        if record["in_list"]:
            rows.append(row)
        elif record["documents"] or record["in_list"] is None:
            rows.append({**row, "state": UNLISTED, "stale_since": None})
    return rows


def _writing(root: Root, minutes: float, run: str = "") -> AbstractContextManager[None]:
    return writer_lock(root, 60 * minutes, spare=True, run=run, say=say_aside)


def add_source(root: Root, given: str, wait: float = 0) -> dict[str, Any]:
    """Put a source on the list, without reading it; return its spec and whether it is `added` now."""
    from tasks.crawl.sources import normal_spec  # noqa: PLC0415 (loads what reads the web)

    spec = normal_spec(given)
    with _writing(root, wait):
        return {"source": spec, "added": spec in list_sources(root, [spec])}


def remove_listed(root: Root, given: str, wait: float = 0, *, retire: bool) -> dict[str, Any]:
    """Take a source off the list; return whether it was on it, how many documents retire, how many stay.

    Raises `WrongInput` if no such source is known; the message names those with a similar spec.
    """
    with _writing(root, wait):
        known = known_sources(root)
        spec = _known_spec(given, known)
        retired = remove_source(root, spec, datetime.now(UTC), retire=retire)
    was_listed, left = bool(known[spec]["in_list"]), known[spec]["documents"] - retired
    return {"source": shown_spec(spec), "removed": was_listed, "retired": retired, "documents": left}


def _known_spec(given: str, known: Mapping[str, Any]) -> str:
    from tasks.crawl.source.lookup import nearest  # noqa: PLC0415
    from tasks.crawl.sources import normal_spec  # noqa: PLC0415 (loads what reads the web)

    shown = {shown_spec(spec): spec for spec in known}
    near = nearest(given, shown)
    try:
        spec = given if given in known else shown.get(given) or normal_spec(given)
    except WrongInput:
        if not near:
            raise
        spec = given
    if spec in known:
        return spec
    near = nearest(spec, shown) or near
    said = f"near it are {', '.join(near)}" if near else "`skillery sources` lists all"
    raise WrongInput(f"{hide_credentials(shown_spec(spec))} is not on the list of sources: {said}")


def _by_licence_class(root: Root) -> dict[str, int]:
    """Count documents by the class of their licence; `unclassed` are those that no run has classed yet."""
    known, counts = read_licences(root), Counter[str]()
    found = documents_table(root).read(columns=["licence"])["licence"].value_counts(name="n")
    for licence, n in found.iter_rows():
        classed = known is not None and (licence is None or licence in known.classes)
        counts[known.class_of(licence) if known and classed else "unclassed"] += n
    return {name: counts[name] for name in (*CLASSES, *(["unclassed"] if counts["unclassed"] else []))}


def examine_root(root: Root, wait: float = 0) -> dict[str, Any]:
    """Repair what can be repaired; return the findings, whether all are repaired, and what is served.

    Another run that writes to the root raises `Locked`: its unfinished work must not be repaired.
    """
    policy = LicencePolicy(**load_settings().licence_policies()["serve"])
    with _writing(root, wait):
        findings = examine(root, policy)
        served = _served(root)
    return {
        "findings": [asdict(finding) for finding in findings],
        "mended": all(finding.mended for finding in findings),
        "served": served,
        "tuned": _tuned(root),
    }


def _served(root: Root) -> str | None:
    try:
        found = read_served(root)
    except StorageError:
        return None
    return found.version if found else None


def export_root(
    root: Root, out: Path, form: Format, licences: list[str], policy: dict[str, Any]
) -> dict[str, Any]:
    """Export documents of these classes of licences to a folder; return what the export holds.

    `policy` has the fields of a `LicencePolicy`. Raises `WrongInput` if the folder holds something.
    """
    classes, now = LicencePolicy(**policy), datetime.now(UTC)
    return asdict(export_corpus(root, out, format=form, licences=licences, policy=classes, now=now))


def foresee_forgetting(root: Root, target: str) -> dict[str, Any]:
    """Return what `forget_target` would remove; raises `UnknownDocument` as it does, and removes nothing."""
    from tasks.retrieve.versions.forget import SCOPES, targets_of  # noqa: PLC0415 (loads what induces)

    found = targets_of(root, target)
    scope = SCOPES.get(found.scope, found.scope)
    return {"target": found.target, "scope": scope, "doc_ids": found.doc_ids, "copies": found.copies}


def forget_target(root: Root, target: str, wait: float = 0) -> dict[str, Any]:
    """Forget a document, a repository, a trajectory or a learned skill; return what was removed.

    Raises `UnknownDocument` if nothing has or had that id.
    """
    from tasks.retrieve.versions.forget import forget  # noqa: PLC0415 (loads what induces)

    run = new_run_id()
    with _writing(root, wait, run), recorded(root, run, [], flow="forget", mends=False) as record:
        found = forget(root, target, run_id=run, now=datetime.now(UTC))
        record.published = found.served == f"v-{run}"
    return asdict(found)


def roll_back_root(root: Root, version: str | None, wait: float = 0) -> dict[str, Any]:
    """Serve an earlier version again; return what is served, what was, and all versions."""
    run = new_run_id()
    with _writing(root, wait, run), recorded(root, run, [], flow="rollback", mends=False):
        was, now = roll_back(root, version)
        kept = published_versions(root)
    return {
        "served": now.version,
        "was": was.version,
        "published_at": now.published_at.isoformat(),
        "versions": [v.version for v in kept],
    }
