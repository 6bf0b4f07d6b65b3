"""The tool `compose_plan`: a task that needs several skills becomes a plan."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from flows.serve.answers.forms import LONGEST_TEXT, FilterForm, Origin, Said, ShortFilters, Whose
from flows.serve.answers.service import NOTICE, Service
from flows.serve.answers.tool import Arguments, ToolOutcome
from tasks.retrieve.compose.compose import ComposeOptions, compose

Json = dict[str, Any]


class ComposeArguments(Arguments):
    """The arguments of `compose_plan`."""

    task: str = Field(min_length=1, max_length=LONGEST_TEXT)
    k: int = Field(3, ge=1, le=20, description="skills a step")
    filters: ShortFilters = FilterForm()


class StepSkill(BaseModel):
    """A skill that may serve a step."""

    doc_id: str
    name: str
    risks: list[str]
    whose: Origin


class PlanStep(BaseModel):
    """One step; where `gap` is true, none of its skills fits."""

    step: int
    text: str
    after: list[int]
    condition: str | None = None
    gap: bool
    confidence: float
    skills: list[StepSkill]

    def line(self) -> str:
        """Return it in one line."""
        after = f" (after {', '.join(map(str, self.after))})" if self.after else ""
        served = "nothing served fits" if self.gap else f"{self.skills[0].doc_id}, {self.confidence:.0%} sure"
        return f"{self.step}. {self.text}{after}: {served}"


class ComposeOutcome(ToolOutcome):
    """The steps of a task in an order in which they can be done, and what serves each."""

    version: Said
    steps: list[PlanStep]
    left_out: list[Json]
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return a line a step."""
        if not self.steps:
            return "No step was found in the task."
        left = [f"left out ({part['reason']}): {part['text']}" for part in self.left_out]
        return "\n".join([*(step.line() for step in self.steps), *left, self.notice])


def compose_plan(service: Service, asked: ComposeArguments) -> ComposeOutcome:
    """Return the plan of a task, made without a language model."""
    found = compose(service.index, asked.task, ComposeOptions(k=asked.k, filters=asked.filters.chosen()))
    steps = [
        PlanStep(
            **{name: step[name] for name in ("step", "text", "after", "condition", "gap", "confidence")},
            skills=[_skill(row) for row in step["candidates"]],
        )
        for step in found["steps"]
    ]
    left_out = [{name: part[name] for name in ("text", "reason")} for part in found["left_out"]]
    return ComposeOutcome(version=found["index_version"], steps=steps, left_out=left_out)


def _skill(row: Json) -> StepSkill:
    return StepSkill(doc_id=row["doc_id"], name=row["name"], risks=row["risks"] or [], whose=Whose.of(row))
