"""The remainder of learned skills: rows of the table `induced` without what is forgotten."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from storage.tombstones import Forgotten
from tasks.induce.library.drafts import unnamed_digest
from tasks.induce.skills.actions import body_of
from tasks.retrieve.suggest.stored import RUN, STATE, InducedRow, as_json

_FIELDS = ("row_id", "kind", "domain", "text", "record")


class Remainder:
    """Leaves out forgotten runs, states that they alone met, skills that they alone did, or that are named.

    A skill that other runs did too stays, without the forgotten ones among its sources and their tasks.

    Args:
        rows: `kind` and `record` of all rows.
        forgotten: What is forgotten.

    Attributes:
        gone: How many rows were left out so far.
    """

    def __init__(self, rows: pa.Table, forgotten: Forgotten) -> None:
        self._runs, self._skills = forgotten.named("trajectory"), forgotten.named("learned")
        self._digests, self.gone = forgotten.bodies("learned"), 0
        pairs = zip(rows.column("kind").to_pylist(), rows.column("record").to_pylist(), strict=True)
        records = [json.loads(record) for kind, record in pairs if kind == RUN]
        kept = [record for record in records if record["trajectory_id"] not in self._runs]
        self._states = {moment["state"] for record in kept for moment in record["moments"]}
        self._task_of = {record["trajectory_id"]: record["task_id"] for record in kept}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what is left of a batch of rows."""
        rows = [InducedRow(*own) for own in zip(*(batch.column(f).to_pylist() for f in _FIELDS), strict=True)]
        left = [self._left(row) for row in rows]
        self.gone += left.count(None)
        batch = batch.filter(pa.array([row is not None for row in left], pa.bool_()))
        new = [row for row in left if row is not None]
        for name, values in (("record", [r.record for r in new]), ("digest", [r.digest for r in new])):
            batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(values, pa.string()))
        return batch

    def _left(self, row: InducedRow) -> InducedRow | None:
        if row.kind == STATE:
            return row if row.row_id in self._states else None
        record = json.loads(row.record)
        if row.kind == RUN:
            return None if record["trajectory_id"] in self._runs else row
        return self._skill(row, record)

    def _skill(self, row: InducedRow, record: dict[str, Any]) -> InducedRow | None:
        sources = [one for one in record["sources"] if one["trajectory_id"] not in self._runs]
        is_named = row.row_id in self._skills or unnamed_digest(body_of(record["actions"])) in self._digests
        if is_named or not sources:
            return None
        near = [one for one in record["near"] if one not in self._skills]
        if (sources, near) == (record["sources"], record["near"]):
            return row
        tasks = sorted({self._task_of[one["trajectory_id"]] for one in sources})
        verified = {**record["verified"], "sources": min(record["verified"]["sources"], len(sources))}
        changed = {
            "sources": sources,
            "near": near,
            "verified": verified,
            "tasks": tasks,
            "support": len(tasks),
        }
        return InducedRow(row.row_id, row.kind, row.domain, row.text, as_json(record | changed))
