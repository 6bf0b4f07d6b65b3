"""Induced skills: a text to be found by and actions to be done, with what they were learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.induce.skills.actions import Arg, Body, Const, Granularity, body_of, granularity_of, told
from tasks.induce.skills.code import code_of


@dataclass(frozen=True, slots=True)
class InducedSkill:
    """A skill of a domain.

    `tasks` are those whose trajectories did it, `sources` the trajectories and steps at which they did;
    `verified` names the replays that it passed, in `verified_sources` of its sources; `inducer` found it;
    `near` are the ids of skills that do nearly the same (`library.near`); `granularity` is what all skills of
    its library are cut out of.
    """

    skill_id: str
    domain: str
    name: str
    description: str
    body: Body
    tasks: tuple[str, ...]
    sources: tuple[tuple[str, int], ...]
    verified: tuple[str, ...] = ()
    verified_sources: int = 0
    inducer: str = "recurrence"
    near: tuple[str, ...] = ()
    granularity: Granularity = "window"

    def with_verdict(self, how: tuple[str, ...], sources: int) -> InducedSkill:
        """Return it as verified."""
        return replace(self, verified=how, verified_sources=sources)

    @property
    def support(self) -> int:
        """The number of tasks that did it."""
        return len(self.tasks)

    @property
    def callable(self) -> str:
        """`state` if all that it needs is known when it is called, else `bound` (beyond SGDR's rule)."""
        sources = (source for action in self.body for _, source in action.args)
        return "state" if all(isinstance(source, Arg | Const) for source in sources) else "bound"

    @property
    def code(self) -> str:
        """Its function."""
        return code_of(self.name, self.body)

    def told(self) -> dict[str, Any]:
        """Return what is kept and printed of it."""
        return {
            "skill_id": self.skill_id, "domain": self.domain, "name": self.name,
            "description": self.description, "code": self.code, "actions": told(self.body),
            "callable": self.callable, "support": self.support, "inducer": self.inducer,
            "granularity": self.granularity,
            "verified": {"how": list(self.verified), "sources": self.verified_sources},
            "near": list(self.near), "tasks": list(self.tasks),
            "sources": [{"trajectory_id": one, "t": t} for one, t in self.sources],
        }  # fmt: skip


def skill_told(record: Mapping[str, Any]) -> InducedSkill:
    """Return the skill of which `InducedSkill.told` gives a record."""
    return InducedSkill(
        record["skill_id"], record["domain"], record["name"], record["description"],
        body_of(record["actions"]), tuple(record["tasks"]),
        tuple((one["trajectory_id"], one["t"]) for one in record["sources"]),
        tuple(record["verified"]["how"]), record["verified"]["sources"], record["inducer"],
        tuple(record["near"]), granularity_of(record["granularity"]),
    )  # fmt: skip
