"""Served skills: what the table `induced` holds of each domain at the version that is served."""

from __future__ import annotations

import functools
import json

from storage.errors import ModelMismatch, WrongInput
from storage.lance.served import Served, read_served
from storage.lance.tables import INDUCED, TableAt
from storage.root import Root
from tasks.crawl.source.lookup import nearest
from tasks.induce.skills.actions import Body
from tasks.induce.skills.skill import InducedSkill
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.suggest.offered import Encode, Offered
from tasks.retrieve.suggest.stored import RUN, SKILL, StoredDomain, domain_of

NONE_YET = "no learned skills are served here: `skillery induce TRAJECTORIES` learns and serves them"


class ServedSkills:
    """The learned skills of a version that a root serves; each domain is read once.

    Args:
        root: The root.
        served: The version; None is the one that is served when this is made.

    Raises:
        WrongInput: No learned skills are served.
        StorageError: The table cannot be opened at the version that is served.
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

        Raises:
            WrongInput: There is none of that name, or several; the nearest, or all, are named.
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

        Args:
            name: Its name in the settings.
            threads: Those of one encoding.

        Raises:
            ModelMismatch: The table was made with another one.
        """
        served = self._served.model
        if name != served["name"]:
            msg = (
                f"the index was made with encoder {served['name']}, the settings name {name}: set "
                "SKILLERY_ENCODER to the former"
            )
            raise ModelMismatch(msg)
        found = OnnxEncoder(self._root.fetch(str(served["path"])), threads=threads)
        self.require_made_with(found)
        return found

    def require_made_with(self, encoder: OnnxEncoder) -> None:
        """Raise `ModelMismatch` if another encoder made the table's vectors."""
        made = self._table.model
        if any(made.get(key) != encoder.card[key] for key in ("name", "revision", "dimension")):
            msg = (
                f"the learned skills were encoded with {made.get('name')}, the index is now of "
                f"{encoder.card['name']}: `skillery induce` encodes them anew"
            )
            raise ModelMismatch(msg)

    def offered(self, name: str, encode: Encode) -> tuple[dict[Body, InducedSkill], Offered]:
        """Return a domain's skills by their bodies, and what can be offered of them.

        `encode` is the table's encoder.
        """
        held = self.domain(name)
        skills = {skill.body: skill for skill in held.skills}
        vectors = {skill.description: vector for skill, vector in zip(held.skills, held.vectors, strict=True)}
        described = {body: skill.description for body, skill in skills.items()}
        offered = Offered(encode, described, vectors | held.states)
        for moments in held.runs:
            offered.learn(moments)
        return skills, offered
