"""The tools of the server, of which `TOOLS` is the one place where they are registered."""

from __future__ import annotations

from typing import Any

from flows.serve.answers.forms import (
    ComposeArguments,
    ComposeOutcome,
    FileForm,
    FoundSkill,
    LearnedSkill,
    PageArguments,
    PageOutcome,
    PlanStep,
    ReadArguments,
    ReadOutcome,
    SearchArguments,
    SearchOutcome,
    ShowArguments,
    ShowOutcome,
    StepSkill,
    SuggestArguments,
    SuggestOutcome,
    Whose,
)
from flows.serve.answers.service import Service
from flows.serve.answers.tool import Tool
from storage.errors import WrongInput
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.page import DEFAULT_METHOD
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition
from tasks.retrieve.revisions.show import file_of, shown
from tasks.retrieve.skills.bundle import file_uri, is_segment, skill_file_of

_MOST_BINARY = 262_144  # bytes; longer ones are read as resources
_SHOWN_RUNS = 5


def search_skills(service: Service, asked: SearchArguments) -> SearchOutcome:
    """Return the skills that fit a task."""
    found = service.search(asked.task, asked.k, asked.method, filters=asked.filters.chosen())
    results = [
        FoundSkill(
            doc_id=row["doc_id"], name=row["name"], description=row["description"],
            score=None if row["score"] is None else round(row["score"], 4), fit=row["fit"],
            risks=row["risks"] or [], whose=Whose.of(row),
        )
        for row in found["results"]
    ]  # fmt: skip
    told = {"version": found["index_version"], "nothing_fits": found["nothing_fits"]}
    return SearchOutcome(**told, results=results)


def page_skill(service: Service, asked: PageArguments) -> PageOutcome:
    """Return the parts of a skill that a request needs."""
    found = service.index.page(asked.doc_id, asked.request, budget=asked.budget, method=DEFAULT_METHOD)
    return PageOutcome(
        doc_id=found.get("alias_of") or found["doc_id"], version=found["index_version"],
        context=found["context"], tokens=found["tokens"], document_tokens=found["document_tokens"],
        over_budget=found["over_budget"], risks=found["risks"] or [], whose=Whose.of(found),
    )  # fmt: skip


def show_skill(service: Service, asked: ShowArguments) -> ShowOutcome:
    """Return what is known of a skill."""
    edition, alias, version = service.skills.edition(asked.doc_id)
    told = shown(edition, alias)
    files = told["files"]
    return ShowOutcome(
        doc_id=edition.row["doc_id"], version=version, name=told["name"], description=told["description"],
        uri=skill_uri(edition),
        files=None if files is None else [
            FileForm(path=f["path"], size=f["kept"] and f["kept"]["size"]) for f in files
        ],
        risks=list(dict.fromkeys(risk["code"] for risk in told["risks"])),
        licence_class=told["licence_class"], whose=Whose.of(told),
    )  # fmt: skip


def skill_uri(edition: Edition) -> str | None:
    """Return the address of a skill's SKILL.md, None if it is left to the tools."""
    if edition.row["kind"] != "skill" or edition.licence_class != "allow":
        return None
    skill = skill_file_of(edition)
    if skill is None or not is_segment(name := skill.front_matter["name"]):
        return None
    return file_uri(edition.row["doc_id"], name, SKILL_FILE)


def read_skill_file(service: Service, asked: ReadArguments) -> ReadOutcome:
    """Return a file of a skill, or a part of it."""
    edition, _, version = service.skills.edition(asked.doc_id)
    found = file_of(edition, asked.path)
    told = {"version": version, "whose": Whose.of(edition.row)}
    told |= {name: found[name] for name in ("doc_id", "path", "size", "sha256")}
    if "text" not in found:
        return ReadOutcome(**told, base64=found["base64"] if found["size"] <= _MOST_BINARY else None)
    text, end = found["text"], asked.offset + asked.limit
    if asked.offset > len(text):
        raise WrongInput(f"offset: {found['path']} has {len(text):,} characters")
    more = end if end < len(text) else None
    return ReadOutcome(**told, text=text[asked.offset : end], next_offset=more)


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


def _skill(row: dict[str, Any]) -> StepSkill:
    return StepSkill(doc_id=row["doc_id"], name=row["name"], risks=row["risks"] or [], whose=Whose.of(row))


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


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool(
        "search_skills", "Find agent skills that fit a task, best first.",
        SearchArguments, SearchOutcome, search_skills,
    ),
    Tool(
        "page_skill", "Get the parts of a skill that a request needs.",
        PageArguments, PageOutcome, page_skill, slow=True,
    ),
    Tool(
        "show_skill", "Tell a skill's description, files, risks, licence and address.",
        ShowArguments, ShowOutcome, show_skill,
    ),
    Tool(
        "read_skill_file", "Read a file of a skill, by default SKILL.md.",
        ReadArguments, ReadOutcome, read_skill_file,
    ),
    Tool(
        "compose_plan", "Plan a task that needs several skills: steps, and what serves each.",
        ComposeArguments, ComposeOutcome, compose_plan, slow=True,
    ),
    Tool(
        "suggest_steps", "Suggest what agents did at such a step, as code.",
        SuggestArguments, SuggestOutcome, suggest_steps, slow=True,
    ),
)  # fmt: skip
