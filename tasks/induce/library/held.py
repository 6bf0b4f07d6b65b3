"""Held below a root: trajectories as they were read, verdicts on them, and the skills of each domain.

Trajectories are kept in parts that are never rewritten, each content once. A verdict on one that was kept
without one comes in a part of its own kind, whose rows take the place of those of other parts, whichever were
written first. Verdicts and libraries have a file a domain, written whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import astuple, fields
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.parquet import read_frame, write_frame
from storage.root import Root
from tasks.induce.library.build import DomainLibrary, DroppedSkill
from tasks.induce.skills.actions import body_of, granularity_of
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.trajectories.read import Row
from tasks.induce.trajectories.record import Trajectory, digest_of, trajectory_of

_SCHEMA = pl.Schema(dict.fromkeys(("digest", "trajectory_id", "domain", "row"), pl.String))
_TRAJECTORIES = "trajectories"
_NEW, _VERDICTS = "part", "verdicts"  # kinds of parts: in the order of names the later one counts


class KeptTrajectories:
    """The trajectories of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def digests(self) -> dict[str, str]:
        """Return the digest of each trajectory by its id."""
        return {trajectory_id: digest for trajectory_id, (_, digest) in self._latest().items()}

    def _latest(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        columns = ["trajectory_id", "domain", "digest"]
        for frame in self._frames(columns):
            rows = frame.select(columns).iter_rows()
            found |= {trajectory_id: (domain, digest) for trajectory_id, domain, digest in rows}
        return found

    def add(self, rows: Iterable[Row]) -> None:
        """Keep the rows that `Reading` told to, each trajectory once: a part of new ones, one of verdicts."""
        given, known = list(rows), self._latest()
        self._add(_NEW, (one for one in given if one[1].trajectory_id not in known))
        self._add(_VERDICTS, (one for one in given if one[1].trajectory_id in known))

    def _add(self, kind: str, rows: Iterable[Row]) -> None:
        held = sorted(
            (digest_of(row), own.trajectory_id, own.domain, json.dumps(row, ensure_ascii=False))
            for row, own in rows
        )
        if held:
            name = hashlib.sha256("".join(digest for digest, *_ in held).encode()).hexdigest()[:16]
            frame = pl.DataFrame(held, schema=_SCHEMA, orient="row")
            write_frame(self._root, f"{_TRAJECTORIES}/{kind}-{name}.parquet", frame, _SCHEMA)

    def drop(self, trajectory_ids: Collection[str]) -> int:
        """Remove trajectories by their ids; return how many there were."""
        gone = 0
        for file in self._root.files(_TRAJECTORIES, ".parquet"):
            frame = read_frame(self._root, file, _SCHEMA)
            left = frame.filter(~pl.col("trajectory_id").is_in(list(trajectory_ids)))
            if left.height < frame.height:
                gone += frame.height - left.height
                write_frame(self._root, file, left, _SCHEMA)
        return gone

    def states(self) -> dict[str, str]:
        """Return what is kept of each domain as one digest, which the order of coming does not change."""
        held: defaultdict[str, set[str]] = defaultdict(set)
        for domain, digest in self._latest().values():
            held[domain].add(digest)
        return {
            domain: hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
            for domain, digests in sorted(held.items())
        }

    def of(self, domain: str) -> list[Trajectory]:
        """Return the trajectories of a domain in the order of their ids, whatever parts they came in."""
        rows = [row for frame in self._frames(None) for row in frame.filter(domain=domain)["row"].to_list()]
        found = {one.trajectory_id: one for one in (trajectory_of(json.loads(row)) for row in rows)}
        return [found[trajectory_id] for trajectory_id in sorted(found)]

    def _frames(self, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        for file in sorted(self._root.files(_TRAJECTORIES, ".parquet")):
            yield read_frame(self._root, file, _SCHEMA, columns)


_FILE = "induced/succeeded.json"


class HeldVerdicts:
    """The trajectories of each domain of a root that a judge found successful, against what the files say."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def put(self, domain: str, judged: Iterable[Trajectory], *, declared: bool) -> None:
        """Keep which trajectories of a domain were successful; `declared`: it is what the files say."""
        held = self._root.read_json(_FILE) or {}
        known = dict(held)
        known.pop(domain, None)
        if not declared:
            known[domain] = sorted(one.trajectory_id for one in judged if one.success)
        if known != held:
            self._root.write_json(_FILE, dict(sorted(known.items())))

    def forget(self, trajectory_id: str) -> None:
        """Remove a trajectory from what is kept."""
        held = self._root.read_json(_FILE) or {}
        known = {domain: [one for one in own if one != trajectory_id] for domain, own in held.items()}
        if known != held:
            self._root.write_json(_FILE, known)

    def successful(self, domain: str, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the trajectories of a domain that its library was learned from."""
        known = (self._root.read_json(_FILE) or {}).get(domain)
        if known is None:
            return [one for one in trajectories if one.success]
        succeeded = set(known)
        return [one for one in trajectories if one.trajectory_id in succeeded]


# Columns of a file of skills; those that are no texts are lists of them, or numbers.
_LISTS = ("verified", "tasks", "near")
_COLUMNS = (
    "skill_id", "domain", "name", "description", "code", "actions", "callable", "support", "verified",
    "verified_sources", "inducer", "tasks", "sources", "near", "granularity",
)  # fmt: skip
_TYPES: dict[str, Any] = {**dict.fromkeys(_COLUMNS, pl.String), **dict.fromkeys(_LISTS, pl.List(pl.String))}
_SKILLS = pl.Schema({**_TYPES, "support": pl.Int32, "verified_sources": pl.Int32})
_DROPPED = pl.Schema({one.name: pl.Int32 if one.name == "t" else pl.String for one in fields(DroppedSkill)})
_FOLDER = "induced"
MADE = f"{_FOLDER}/made-of.json"
# The schema of each table of learned skills, by its folder.
SCHEMAS = {_TRAJECTORIES: _SCHEMA, f"{_FOLDER}/skills": _SKILLS, f"{_FOLDER}/dropped": _DROPPED}
_PLAIN = re.compile(r"[^a-z0-9-]+")


class HeldLibraries:
    """The libraries of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def domains(self) -> dict[str, int]:
        """Return the domains that have a library, be it empty, each with the number of its skills."""
        found = Counter({domain: 0 for domain in self.made_of() if self._has(domain)})
        for file in self._root.files(f"{_FOLDER}/skills", ".parquet"):
            found.update(read_frame(self._root, file, _SKILLS, ["domain"])["domain"].to_list())
        return dict(sorted(found.items()))

    def made_of(self) -> dict[str, Any]:
        """Return by domain what `put` was told that its library was made of."""
        return self._root.read_json(MADE) or {}

    def put(self, domain: str, library: DomainLibrary, made_of: str) -> None:
        """Write a domain's library in place of the one before, and then what it was made of."""
        rows = [_row(skill) for skill in library.skills]
        frame = pl.DataFrame(rows, schema=_SKILLS)
        write_frame(self._root, _file("skills", domain), frame, _SKILLS)
        frame = pl.DataFrame([astuple(one) for one in library.dropped], schema=_DROPPED, orient="row")
        write_frame(self._root, _file("dropped", domain), frame, _DROPPED)
        self._root.write_json(MADE, dict(sorted({**self.made_of(), domain: made_of}.items())))

    def drop(self, domain: str) -> None:
        """Remove a domain's library, so that it is built anew."""
        self._root.write_json(MADE, {d: state for d, state in self.made_of().items() if d != domain})
        for what in ("skills", "dropped"):
            self._root.delete(_file(what, domain))

    def skills(self, domain: str) -> list[InducedSkill]:
        """Return the skills of a domain, by id.

        Raises:
            WrongInput: It has no library; the domains that have one are named.
        """
        file = _file("skills", domain)
        if not self._root.exists(file):
            known = ", ".join(self.domains()) or "none yet: `skillery induce TRAJECTORIES` makes one"
            raise WrongInput(f"domain {domain!r} has no library of skills; domains that have one: {known}")
        return [_skill(row) for row in read_frame(self._root, file, _SKILLS).to_dicts()]

    def by_id(self, domain: str) -> dict[str, InducedSkill]:
        """Return the skills of a domain by their ids; none where it has no library."""
        return {one.skill_id: one for one in self.skills(domain)} if self._has(domain) else {}

    def _has(self, domain: str) -> bool:
        return self._root.exists(_file("skills", domain))


def _file(what: str, domain: str) -> str:
    # Two domains whose names are the same but for signs and case have files of their own.
    digest = hashlib.sha256(domain.encode()).hexdigest()[:8]
    return f"{_FOLDER}/{what}/{_PLAIN.sub('-', domain.lower())[:40]}-{digest}.parquet"


def _row(skill: InducedSkill) -> dict[str, object]:
    own = {name: getattr(skill, name) for name in _COLUMNS if name not in {"actions", "sources"}}
    lists = {name: list(own[name]) for name in _LISTS}
    actions = json.dumps(skill.told()["actions"], ensure_ascii=False)
    return {**own, **lists, "actions": actions, "sources": json.dumps(skill.sources)}


def _skill(row: dict[str, Any]) -> InducedSkill:
    return InducedSkill(
        row["skill_id"], row["domain"], row["name"], row["description"], body_of(json.loads(row["actions"])),
        tuple(row["tasks"]), tuple((one, t) for one, t in json.loads(row["sources"])),
        tuple(row["verified"]), row["verified_sources"], row["inducer"],
        # Both are null in files of before there were any.
        tuple(row["near"] or ()), granularity_of(row["granularity"] or "window"),
    )  # fmt: skip
