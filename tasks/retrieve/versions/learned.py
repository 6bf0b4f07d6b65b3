"""Learned skills: builds the table `induced` of what changed in their libraries, checks and serves it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import GateRefused, ModelMismatch
from storage.lance.served import Served, mend_tags, read_served
from storage.lance.tables import INDUCED, NODES, RUN, SKILL, SKILLS, STATE, TableWriter, schema_of
from storage.root import Root
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.skills.actions import Granularity
from tasks.induce.skills.texts import BY_RULE, StateWords, Summarise
from tasks.induce.skills.windows import decision_points
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import card_of, load_encoder
from tasks.models.protocols import IndexEncoder
from tasks.refine.licences.policy import LicencePolicy
from tasks.retrieve.index.build import Built, model_identity, update_table
from tasks.retrieve.index.gate import Check, check_learned, require_passed
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.suggest.stored import InducedRow, rows_of_domain
from tasks.retrieve.versions.publish import publish
from tasks.retrieve.versions.retention import retain_versions

_ROWS_PER_WRITE = 500
_NOTE = "induced/table.json"  # the version of the table that was served last, and what it was made of
INDUCED_VERSION = 1  # raised only when the rows made here change
Report = Callable[[int, int], None]  # rows written, of all that are to be written


@dataclass(frozen=True, slots=True)
class LearnedBuild:
    """What was built: the versions of all tables, and how many rows of each kind `induced` must have.

    `of` is a digest of all that decides the rows, None if not all of it is known yet; `as_before` tells
    whether the version served last was learned in the same way.
    """

    built: Built
    expected: Mapping[str, int]
    of: str | None
    as_before: bool


def build_learned(
    root: Root, *, encoder: IndexEncoder, summarise: Summarise, said: str, how: str,
    report: Report = lambda _done, _total: None,
) -> LearnedBuild:  # fmt: skip
    """Write to `induced` what differs from the served version, which stays as it is.

    `root` is the root; the caller holds its writer lock. `encoder` encodes descriptions, tasks and states.
    `report` is told how many rows are written, of how many. Raises `ModelMismatch` if what is served was made
    with another encoder.
    """
    require_model(root, encoder.card)
    model, served = model_identity(encoder.card), read_served(root)
    of = _made_of(root, model, said)
    last = root.read_json(_NOTE) or {}
    before = served.induced if served else None
    noted = (last.get("version"), last.get("of"))
    if served is not None and before is not None and of is not None and noted == (before, of):
        return LearnedBuild(_built(root, served, model, before, 0, changed=False), {}, of, as_before=True)
    mend_tags(root)
    writer = TableWriter(root, INDUCED, schema_of(INDUCED, model), before)
    expected, new = _write(root, writer, encoder, summarise, report)
    built = _built(root, served, model, writer.finish(), new, changed=writer.written or before is None)
    as_before = (last.get("version"), last.get("how")) == (before, how)
    return LearnedBuild(built, expected, of, as_before)


def require_model(root: Root, card: Mapping[str, Any]) -> None:
    """Raise `ModelMismatch` if skills of marketplaces are served that another encoder than this one encoded.

    `card` is that of the encoder.
    """
    served, model = read_served(root), model_identity(dict(card))
    if served is None or all(served.model.get(key) == value for key, value in model.items()):
        return
    if served.skills_table(root).count():
        raise ModelMismatch(
            f"the index was made with encoder {served.model['name']}, the settings name {model['name']}: set "
            "SKILLERY_ENCODER to the former, or run `skillery run` to index anew"
        )


def _made_of(root: Root, model: Mapping[str, Any], said: str) -> str | None:
    """Return a digest of what decides the rows; None while an LLM has not answered for all libraries."""
    made = HeldLibraries(root).made_of()
    if not all(made.values()):
        return None
    basis = (INDUCED_VERSION, sorted(model.items()), said, sorted(made.items()))
    return hashlib.sha256(json.dumps(basis).encode()).hexdigest()


def _built(
    root: Root, served: Served | None, model: dict[str, Any], version: int, new: int, *, changed: bool,
) -> Built:  # fmt: skip
    if served is None or any(served.model.get(key) != value for key, value in model.items()):
        # What is served has a table of skills, be it empty.
        skills = TableWriter(root, SKILLS, schema_of(SKILLS, model), None).version
        return Built(skills, None, 0, 0, new, changed=True, induced=version)
    base = served.needed(NODES)
    return Built(served.skills, served.nodes, 0, 0, new, changed=changed, nodes_base=base, induced=version)


def _write(
    root: Root, writer: TableWriter, encoder: IndexEncoder, summarise: Summarise, report: Report
) -> tuple[dict[str, int], int]:
    held = dict(writer.frame(["row_id", "digest"]).iter_rows())
    counts: Counter[str] = Counter()
    want: dict[str, str | None] = {}
    new: list[InducedRow] = []
    for row in _rows(root, summarise):
        want[row.row_id] = row.digest
        counts[row.kind] += 1
        if held.get(row.row_id) != row.digest:
            new.append(row)

    def rows(_changed: set[str]) -> Iterator[pa.Table]:
        for start in range(0, len(new), _ROWS_PER_WRITE):
            some = new[start : start + _ROWS_PER_WRITE]
            yield _table(some, encoder, writer.schema)
            report(start + len(some), len(new))

    update_table(writer, held.keys(), held, want, rows)
    return {kind: counts[kind] for kind in (SKILL, RUN, STATE)}, len(new)


def _rows(root: Root, summarise: Summarise) -> Iterator[InducedRow]:
    libraries, kept, verdicts = HeldLibraries(root), KeptTrajectories(root), HeldVerdicts(root)
    for domain in libraries.domains():
        skills = libraries.skills(domain)
        # Moments are cut as the library was: all its skills are of one granularity.
        cut: Granularity = skills[0].granularity if skills else "window"
        runs = ((one, decision_points(one, cut)) for one in verdicts.successful(domain, kept.of(domain)))
        yield from rows_of_domain(domain, skills, runs, summarise)


def _table(rows: list[InducedRow], encoder: IndexEncoder, schema: pa.Schema) -> pa.Table:
    vectors = np.asarray(encoder.encode([row.text for row in rows]), dtype=np.float32)
    names = ("row_id", "kind", "domain", "text", "record", "digest")
    columns = {name: pa.array([getattr(row, name) for row in rows], pa.string()) for name in names}
    size = schema.field("vector").type.list_size
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
    return pa.table(columns).select(schema.names)


def serve_learned(
    root: Root, encoder: str, run_id: str, how: str, *, gate: Mapping[str, Any], policy: Mapping[str, Any],
    keep: int, words: StateWords = BY_RULE, report: Callable[[int, int], None] = lambda _done,
    _total: None,
) -> dict[str, Any]:  # fmt: skip
    """Write the libraries of a root to a new version of `induced`, and serve it if it passes the gate.

    Where there are none, or nothing changed, what is served stays. Raises `ModelMismatch` if what is served
    was made with another encoder. `root` is the root; the caller holds its writer lock. `encoder` is the
    folder of the encoder's export, below the root. `how` names how the skills were learned. Of those learned
    as before hardly any may be lost. `gate` is how many rows may be lost: `max_shrink` and `few`. `policy`
    are the fields of a `LicencePolicy`: searches ask for classes, also where there are no skills. `report` is
    told how many rows are written, of how many.

    Returns:
        `published`, `served`, `vectors_new`, `checks`, and `message` where the gate refused it.
    """
    last, now = read_served(root), datetime.now(UTC)
    if not HeldLibraries(root).domains():
        return _answer(last, published=False)
    found = build_learned(
        root, encoder=load_kept_encoder(root.uri, encoder), summarise=words.summarise, said=words.name,
        how=how, report=report,
    )  # fmt: skip
    checks = _checked(root, found, encoder, gate)
    answer: dict[str, Any] = {"vectors_new": found.built.vectors_new, "checks": [asdict(c) for c in checks]}
    try:
        require_passed(answer["checks"])
    except GateRefused as error:
        return _answer(last, published=False, message=str(error), **answer)
    if found.built.changed:
        if last is None:
            classify_licences(root, found.built.skills, LicencePolicy(**policy))
        path = Path(encoder).relative_to(root.folder).as_posix()
        # The skills of marketplaces are no fresher than they were.
        at = last.published_at if last else now
        last = publish(
            root, found.built, card=card_of(encoder), path=path, run_id=run_id, now=at, learned=True
        )
        retain_versions(root, keep, now=now)
    if not words.unfinished():
        # What is served is not compared again while nothing changes.
        root.write_json(_NOTE, {"version": found.built.induced, "of": found.of, "how": how})
    return _answer(last, published=found.built.changed, **answer)


def _checked(root: Root, found: LearnedBuild, encoder: str, gate: Mapping[str, Any]) -> list[Check]:
    if not found.built.changed:
        return []
    # Only skills that were learned in the same way are compared with those served.
    kinds = (RUN, SKILL) if found.as_before else (RUN,)
    fresh = load_encoder(encoder)  # the gate takes no vector that is kept
    return check_learned(root, found.built, found.expected, encoder=fresh, kinds=kinds, **gate)


def _answer(served: Served | None, **found: Any) -> dict[str, Any]:  # noqa: ANN401 (what JSON holds)
    return {"vectors_new": 0, "checks": [], "served": served.version if served else None, **found}
