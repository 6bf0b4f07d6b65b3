"""The tool `suggest_steps`: what agents did before at steps like the present one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from flows.serve.answers.forms import LONGEST_ID, LONGEST_TEXT, Said
from flows.serve.answers.service import NOTICE, Service
from flows.serve.answers.tool import Arguments, ToolOutcome

_LONGEST_STATE, _MOST_PREVIOUS = 200_000, 1_000  # characters of what is seen, actions before
_SHOWN_RUNS = 5


class StateForm(Arguments):
    """What an agent sees and did."""

    observation: str = Field(max_length=_LONGEST_STATE)
    url: str = Field("", max_length=LONGEST_TEXT)
    title: str = Field("", max_length=LONGEST_TEXT)
    previous: list[dict[str, Any]] = Field([], max_length=_MOST_PREVIOUS)


class SuggestArguments(Arguments):
    """The arguments of `suggest_steps`."""

    task: str = Field(min_length=1, max_length=LONGEST_TEXT)
    state: Annotated[
        StateForm,
        WithJsonSchema({"type": "object", "description": "observation, url, title, previous (actions)"}),
    ]
    domain: str | None = Field(None, max_length=LONGEST_ID)
    k: int = Field(5, ge=1, le=50)
    method: SkipJsonSchema[str] = Field("default", max_length=LONGEST_ID)


class LearnedSkill(BaseModel):
    """A learned skill: its function, and the runs that did it, of which `runs` are the first."""

    skill_id: str
    description: str
    code: str
    score: float
    support: int
    verified: list[str]
    runs: list[str]


class SuggestOutcome(ToolOutcome):
    """The learned skills that fit a step, best first."""

    version: Said
    domain: str
    results: list[LearnedSkill]
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return description, support and code of each."""
        told = [
            f"{row.description} ({row.skill_id}, of run {row.runs[0]}; {row.support} tasks)\n{row.code}"
            for row in self.results
        ]
        return "\n".join([*told, self.notice] if told else ["No learned skill fits this step."])


def suggest_steps(service: Service, asked: SuggestArguments) -> SuggestOutcome:
    """Return the learned skills that fit a step; states are summed up as SKILLERY_INDUCE_SUMMARIES says."""
    state = asked.state.model_dump()
    found = service.learned.suggest(asked.task, asked.domain, state, k=asked.k, method=asked.method)
    return SuggestOutcome(
        version=found["index_version"],
        domain=found["domain"],
        results=[_row(row) for row in found["results"]],
    )


def _row(row: dict[str, Any]) -> LearnedSkill:
    runs = dict.fromkeys(source["trajectory_id"] for source in row["sources"])
    names = ("skill_id", "description", "code", "score", "support")
    return LearnedSkill(
        **{name: row[name] for name in names}, verified=row["verified"]["how"], runs=list(runs)[:_SHOWN_RUNS]
    )
