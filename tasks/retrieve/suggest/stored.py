"""Stored rows of the table `induced`: skills, the runs that they were learned from, and the states in these.

A row's `text` is what its vector is of: a skill's description, a run's task, a state summed up. `record` is
JSON: of a skill what the command prints, of a run its moments, of a state its page. Rows that were written
before hold more: the last three actions of a moment, and what was done next; the marks of a state.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import ModelMismatch, WrongInput
from storage.lance.served import Served, read_served
from storage.lance.tables import INDUCED, RUN, SKILL, STATE, TableAt
from storage.root import Root
from storage.tombstones import Forgotten
from tasks.crawl.source.lookup import nearest
from tasks.induce.library.build import unnamed_digest
from tasks.induce.skills.actions import Body, body_of
from tasks.induce.skills.skill import InducedSkill, skill_told
from tasks.induce.skills.texts import Summarise
from tasks.induce.skills.windows import DecisionPoint, Target
from tasks.induce.trajectories.cleaning import cleaned
from tasks.induce.trajectories.record import Trajectory
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.methods import Encode, Offered


@dataclass(frozen=True, slots=True)
class InducedRow:
    """A row of the table without its vector."""

    row_id: str
    kind: str
    domain: str
    text: str
    record: str

    @property
    def digest(self) -> str:
        """A digest of all that the row says."""
        return _digest(self.row_id, self.kind, self.domain, self.text, self.record)


def rows_of_domain(
    domain: str,
    skills: Sequence[InducedSkill],
    runs: Iterable[tuple[Trajectory, Sequence[DecisionPoint]]],
    summarise: Summarise,
) -> Iterator[InducedRow]:
    """Yield the rows of a domain, each once.

    `runs` are the trajectories that it was learned from, with their moments.
    """
    named: defaultdict[tuple[str, int], list[str]] = defaultdict(list)  # by where a skill was done
    for skill in skills:
        for source in skill.sources:
            named[source].append(skill.skill_id)
        yield InducedRow(skill.skill_id, SKILL, domain, skill.description, as_json(skill.told()))
    known: set[str] = set()
    for run, moments in runs:
        told = []
        acting = [step for step in cleaned(run)[0] if not step.action.speaks]
        for moment, step in zip(moments, acting, strict=True):
            text, record = summarise(step.observation, step.url, step.title), as_json({"page": moment.page})
            state = InducedRow(f"state/{_digest(domain, text, record)}", STATE, domain, text, record)
            if state.row_id not in known:
                known.add(state.row_id)
                yield state
            told.append(_told(moment, state.row_id, named[run.trajectory_id, moment.t]))
        record = as_json({"trajectory_id": run.trajectory_id, "task_id": run.task_id, "moments": told})
        row_id = f"run/{_digest(domain, run.trajectory_id)}"
        yield InducedRow(row_id, RUN, domain, run.task, record)


def _told(moment: DecisionPoint, state: str, skills: Sequence[str]) -> dict[str, Any]:
    before = [moment.before] if moment.before else []
    return {"t": moment.t, "state": state, "before": before, "skills": skills}


def as_json(value: object) -> str:
    """Return a record as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def require_records(batch: pa.RecordBatch) -> None:
    """Raise `ValueError` if a row is not what its digest says."""
    names = ("row_id", "kind", "domain", "text", "record", "digest")
    for *said, digest in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
        if InducedRow(*said).digest != digest:
            raise ValueError(f"row {said[0]} is not what its digest says")


@dataclass(frozen=True, slots=True)
class StoredDomain:
    """What the table holds of a domain.

    `vectors` are those of the skills' descriptions, by place, and `texts` those of states and tasks, by text;
    `runs` has the moments of each run, `tasks` the text of each task.
    """

    skills: list[InducedSkill]
    vectors: Vectors
    runs: list[list[DecisionPoint]]
    texts: dict[str, Vectors]
    tasks: dict[str, str]


def domain_of(rows: pa.Table) -> StoredDomain:
    """Return a domain's skills and runs out of its rows, both in the order of their ids."""
    kinds = {kind: _records(rows, kind) for kind in (SKILL, RUN, STATE)}
    skills = [(skill_told(record), vector) for _, _, record, vector in kinds[SKILL]]
    bodies = {skill.skill_id: skill.body for skill, _ in skills}
    states = {row_id: (record["page"], text) for row_id, text, record, _ in kinds[STATE]}
    domain = rows.column("domain")[0].as_py() if rows.num_rows else ""
    runs = sorted(kinds[RUN], key=lambda row: str(row[2]["trajectory_id"]))
    vectors = np.stack([vector for _, vector in skills]) if skills else np.zeros((0, 1), dtype=np.float32)
    return StoredDomain(
        [skill for skill, _ in skills], vectors,
        [list(_moments(domain, task, record, states, bodies)) for _, task, record, _ in runs],
        {text: vector for _, text, _, vector in (*kinds[STATE], *runs)},
        {str(record["task_id"]): text for _, text, record, _ in runs},
    )  # fmt: skip


def _moments(
    domain: str, task: str, record: Mapping[str, Any], states: Mapping[str, tuple[str, str]],
    bodies: Mapping[str, Body],
) -> Iterator[DecisionPoint]:  # fmt: skip
    for told in record["moments"]:
        own = tuple(bodies[one] for one in told["skills"] if one in bodies)  # others were forgotten since
        ids = (record["trajectory_id"], record["task_id"], domain, told["t"])
        yield DecisionPoint(*ids, *states[told["state"]], _last(told["before"]), own, task)


def _last(told: Sequence[Sequence[str | None]]) -> Target | None:
    return (str(told[-1][0]), told[-1][1], told[-1][2]) if told else None


def _records(rows: pa.Table, kind: str) -> list[tuple[str, str, dict[str, Any], Vectors]]:
    own = rows.filter(pa.compute.equal(rows.column("kind"), kind)).sort_by("row_id")
    column = own.column("vector").combine_chunks()
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(own.num_rows, -1)
    texts = (own.column(name).to_pylist() for name in ("row_id", "text", "record"))
    return [
        (row_id, text, json.loads(record), vector)
        for row_id, text, record, vector in zip(*texts, vectors, strict=True)
    ]


_FIELDS = ("row_id", "kind", "domain", "text", "record")


class WithoutForgotten:
    """Leaves out forgotten runs, states that they alone met, skills that they alone did, or that are named.

    A skill that other runs did too stays, without the forgotten ones among its sources and their tasks.
    `rows`: `kind` and `record` of all rows.

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


NONE_YET = "no learned skills are served here: `skillery induce TRAJECTORIES` learns and serves them"


class ServedSkills:
    """The learned skills of a version that a root serves; each domain is read once.

    `served` is the version; None is the one that is served when this is made. Raises `WrongInput` if no
    learned skills are served; `StorageError` if the table cannot be opened at the version that is served.
    """

    def __init__(self, root: Root, served: Served | None = None) -> None:
        served = served or read_served(root)
        if served is None or served.induced is None:
            raise WrongInput(NONE_YET)
        self._table = TableAt(root, INDUCED, served.induced)
        self._table.opened()
        self._root, self._served, self._known = root, served, dict[str, StoredDomain]()

    def runs(self) -> set[str]:
        """Return the ids of the runs that the skills were learned from."""
        rows = self._table.rows(["record"], kind=[RUN])
        return {json.loads(record)["trajectory_id"] for record in rows.column("record").to_pylist()}

    @functools.cached_property
    def domains(self) -> list[str]:
        """The domains that have skills."""
        rows = self._table.rows(["domain"], kind=[SKILL])
        return sorted(set(rows.column("domain").to_pylist()))

    def named(self, given: str | None) -> str:
        """Return the domain that is meant: the one given, or the only one there is.

        Raises `WrongInput` if there is none of that name, or several; the nearest, or all, are named.
        """
        if given in self.domains:
            return str(given)
        if given is None and len(self.domains) == 1:
            return self.domains[0]
        near = nearest(given or "", self.domains, 1)
        said = f"domain {given!r} has no skills" if given else "domain is missing"
        known = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(self.domains) or 'none'}"
        raise WrongInput(f"{said}{known}")

    def domain(self, name: str) -> StoredDomain:
        """Return what the table holds of a domain."""
        if name not in self._known:
            rows = self._table.rows(domain=[name])
            self._known[name] = domain_of(rows)
        return self._known[name]

    def skills(self, name: str) -> list[InducedSkill]:
        """Return the skills of a domain, by id."""
        return self.domain(name).skills

    def encoder(self, name: str, threads: int) -> OnnxEncoder:
        """Return the encoder that made the table's vectors.

        Raises `ModelMismatch` if the table was made with another one.
        """
        served = self._served.model
        if name != served["name"]:
            raise ModelMismatch(
                f"the index was made with encoder {served['name']}, the settings name {name}: set "
                "SKILLERY_ENCODER to the former"
            )
        found = OnnxEncoder(self._root.fetch(str(served["path"])), threads=threads)
        self.require_made_with(found)
        return found

    def require_made_with(self, encoder: OnnxEncoder) -> None:
        """Raise `ModelMismatch` if another encoder made the table's vectors."""
        made = self._table.model
        if any(made.get(key) != encoder.card[key] for key in ("name", "revision", "dimension")):
            raise ModelMismatch(
                f"the learned skills were encoded with {made.get('name')}, the index is now of "
                f"{encoder.card['name']}: `skillery induce` encodes them anew"
            )

    def offered(self, name: str, encode: Encode) -> tuple[dict[Body, InducedSkill], Offered]:
        """Return a domain's skills by their bodies, and what can be offered of them.

        `encode` is the table's encoder.
        """
        held = self.domain(name)
        skills = {skill.body: skill for skill in held.skills}
        vectors = {skill.description: vector for skill, vector in zip(held.skills, held.vectors, strict=True)}
        described = {body: skill.description for body, skill in skills.items()}
        offered = Offered(encode, described, vectors | held.texts)
        for moments in held.runs:
            offered.learn(moments)
        return skills, offered
