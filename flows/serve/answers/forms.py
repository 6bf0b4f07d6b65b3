"""The forms of what tools take and return; every text of a third party stands beside whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from flows.commands.queries import search_filters
from flows.serve.answers.service import NOTICE
from flows.serve.answers.tool import Arguments, ToolOutcome
from tasks.retrieve.routing.search import Filters

LONGEST_TEXT, LONGEST_ID, LONGEST_PATH = 20_000, 1_000, 4_096  # characters of a request, an id, a path
_COMMIT = 12  # hexadecimal digits
_LONGEST_STATE, _MOST_PREVIOUS = 200_000, 1_000  # characters of what is seen, actions before


class Whose(BaseModel):
    """Whose a text is."""

    source: str
    url: str | None = None
    licence: str | None = None
    commit: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Whose:
        """Return whose the text of a row is."""
        commit = row["commit"]
        return cls(
            source=row["source"], url=row["url"], licence=row["licence"], commit=commit and commit[:_COMMIT]
        )

    def line(self) -> str:
        """Return it in one line."""
        at = f", commit {self.commit}" if self.commit else ""
        return f"From {self.url or self.source}, licence {self.licence or 'unknown'}{at}. {NOTICE}"


# What all results have, `version`, `whose` and `notice`, would take a fifth of what all definitions may take.
Origin = SkipJsonSchema[Whose]

Said = SkipJsonSchema[str]


class FilterForm(Arguments):
    """What a search is limited to."""

    kind: list[str] = Field([])
    licence: list[str] = Field([])
    source: list[str] = Field([])
    risk: list[str] = Field([])

    def chosen(self) -> Filters:
        """Return the filters; raises as `search_filters`."""
        return search_filters(self.kind, self.licence, self.source, self.risk)


ShortFilters = Annotated[
    FilterForm, WithJsonSchema({"type": "object", "description": "lists: kind, licence, source, risk"})
]


class SearchArguments(Arguments):
    """The arguments of `search_skills`."""

    task: str = Field(min_length=1, max_length=LONGEST_TEXT)
    k: int = Field(5, ge=1, le=50)
    filters: ShortFilters = FilterForm()
    method: SkipJsonSchema[str] = Field("default", max_length=LONGEST_ID)


def _said(risks: list[str]) -> str:
    return f" [risks: {', '.join(risks)}]" if risks else ""


class FoundSkill(BaseModel):
    """One skill that fits."""

    doc_id: str
    name: str
    description: str
    score: float | None
    fit: float | None = None
    risks: list[str]
    whose: Origin


class SearchOutcome(ToolOutcome):
    """The skills that fit a task, best first."""

    version: Said
    results: list[FoundSkill]
    nothing_fits: bool | None = None
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return a line a skill."""
        lines = [f"{r.doc_id} ({r.name}){_said(r.risks)}: {r.description}" for r in self.results]
        if self.nothing_fits and lines:
            lines = ["Nothing served seems to fit; what comes nearest:", *lines]
        return "\n".join([*lines, self.notice] if lines else ["Nothing served fits."])


class PageArguments(Arguments):
    """The arguments of `page_skill`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)
    request: str = Field(min_length=1, max_length=LONGEST_TEXT)
    budget: float | None = Field(None, gt=0, description="tokens; up to 1: a share")


class PageOutcome(ToolOutcome):
    """The parts of a skill that a request needs."""

    doc_id: str
    version: Said
    context: str
    tokens: int
    document_tokens: int
    over_budget: bool
    risks: list[str]
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return whose they are, their skill's risks, and the parts."""
        return f"{self.whose.line()}{_said(self.risks)}\n\n{self.context}"


class ShowArguments(Arguments):
    """The arguments of `show_skill`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)


class FileForm(BaseModel):
    """A file of a skill; without `size` its bytes are not kept."""

    path: str
    size: int | None = None


class ShowOutcome(ToolOutcome):
    """What is known of a skill."""

    doc_id: str
    version: Said
    name: str
    description: str | None = None
    uri: str | None = None
    files: list[FileForm] | None = None
    risks: list[str]
    licence_class: str
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return name, description and files."""
        files = ", ".join(f.path for f in self.files) if self.files is not None else "unknown"
        risks = ", ".join(self.risks) or "none found"
        return f"{self.name}: {self.description or ''}\nfiles: {files}\nrisks: {risks}\n{self.whose.line()}"


class ReadArguments(Arguments):
    """The arguments of `read_skill_file`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)
    path: str = Field("SKILL.md", min_length=1, max_length=LONGEST_PATH)
    offset: int = Field(0, ge=0, description="characters")
    limit: int = Field(20_000, ge=1, le=200_000)


class ReadOutcome(ToolOutcome):
    """A file of a skill, or a part of it; a binary file has `base64`."""

    doc_id: str
    version: Said
    path: str
    size: int
    sha256: str
    text: str | None = None
    base64: str | None = None
    next_offset: int | None = None
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return whose it is, and the text."""
        binary = f"{self.path} has {self.size:,} bytes and is no text: resources/read gives them"
        body = binary if self.text is None else self.text
        more = f"\n\n[more from offset {self.next_offset}]" if self.next_offset else ""
        return f"{self.whose.line()}\n\n{body}{more}"


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
    left_out: list[dict[str, Any]]
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return a line a step."""
        if not self.steps:
            return "No step was found in the task."
        left = [f"left out ({part['reason']}): {part['text']}" for part in self.left_out]
        return "\n".join([*(step.line() for step in self.steps), *left, self.notice])


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
