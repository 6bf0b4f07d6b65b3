"""Held libraries: the skills of each domain below a root, a file a domain, written whole."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.parquet import read_frame, write_frame
from storage.root import Root
from tasks.induce.library.build import DomainLibrary
from tasks.induce.library.drafts import DroppedSkill
from tasks.induce.skills.actions import body_of, granularity_of
from tasks.induce.skills.skill import InducedSkill

_SKILL_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("skill_id", "domain", "name", "description", "code", "actions", "callable"), pl.String),
    "support": pl.Int32, "verified": pl.List(pl.String), "verified_sources": pl.Int32, "inducer": pl.String,
    "tasks": pl.List(pl.String), "sources": pl.String, "near": pl.List(pl.String),
    "granularity": pl.String,
}  # fmt: skip
_SKILLS = pl.Schema(_SKILL_COLUMNS)
_DROPPED_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("skill_id", "domain", "reason", "detail", "trajectory_id"), pl.String), "t": pl.Int32,
}  # fmt: skip
_DROPPED = pl.Schema(_DROPPED_COLUMNS)
_FOLDER = "induced"
MADE = f"{_FOLDER}/made-of.json"
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
        frame = pl.DataFrame(rows, schema=_SKILLS, orient="row")
        write_frame(self._root, _file("skills", domain), frame, _SKILLS)
        gone = [(d.skill_id, d.domain, d.reason, d.detail, d.trajectory_id, d.t) for d in library.dropped]
        frame = pl.DataFrame(gone, schema=_DROPPED, orient="row")
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
            msg = f"domain {domain!r} has no library of skills; domains that have one: {known}"
            raise WrongInput(msg)
        return [_skill(row) for row in read_frame(self._root, file, _SKILLS).to_dicts()]

    def by_id(self, domain: str) -> dict[str, InducedSkill]:
        """Return the skills of a domain by their ids; none where it has no library."""
        return {one.skill_id: one for one in self.skills(domain)} if self._has(domain) else {}

    def dropped(self, domain: str) -> list[DroppedSkill]:
        """Return what a domain's library leaves out, and why."""
        if not self._root.exists(_file("dropped", domain)):
            return []  # a run that was killed may have written the skills alone
        return [
            DroppedSkill(**row)
            for row in read_frame(self._root, _file("dropped", domain), _DROPPED).to_dicts()
        ]

    def _has(self, domain: str) -> bool:
        return self._root.exists(_file("skills", domain))


def _file(what: str, domain: str) -> str:
    # Two domains whose names are the same but for signs and case have files of their own.
    digest = hashlib.sha256(domain.encode()).hexdigest()[:8]
    return f"{_FOLDER}/{what}/{_PLAIN.sub('-', domain.lower())[:40]}-{digest}.parquet"


def _row(skill: InducedSkill) -> tuple[object, ...]:
    told = skill.told()
    return (
        skill.skill_id, skill.domain, skill.name, skill.description, skill.code,
        json.dumps(told["actions"], ensure_ascii=False), skill.callable, skill.support, list(skill.verified),
        skill.verified_sources, skill.inducer, list(skill.tasks), json.dumps(skill.sources),
        list(skill.near), skill.granularity,
    )  # fmt: skip


def _skill(row: dict[str, object]) -> InducedSkill:
    return InducedSkill(
        str(row["skill_id"]), str(row["domain"]), str(row["name"]), str(row["description"]),
        body_of(json.loads(str(row["actions"]))), tuple(row["tasks"]),  # type: ignore[arg-type]
        tuple((one, t) for one, t in json.loads(str(row["sources"]))),
        tuple(row["verified"]), int(str(row["verified_sources"])), str(row["inducer"]),  # type: ignore[arg-type]
        # Both are null in files of before there were any.
        tuple(row["near"] or ()), granularity_of(row["granularity"] or "window"),  # type: ignore[arg-type]
    )  # fmt: skip
