"""Tasks that a language model writes about skills, to train routing with (SkillRouter, table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.root import Root
from tasks.evaluate.generate.skill_files import Failure, Growth, SkillFiles
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import messages_of, object_schema
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import shortened
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.train.pairs.names import Names

PROMPT = "task-1"

"""Raised whenever a word of what is sent changes, in `data/task_prompt.txt` or here."""

FOLDER = "written"
_BODY = 24_000  # characters of a skill that are sent
_WORDS = (10, 250)  # of a task; 30 to 120 are asked for
_SCHEMA = object_schema(task={"type": "string"})


@dataclass(frozen=True, slots=True)
class SkillTask:
    """The task written about one skill; empty with why there is none: `rejected`, `refused` or `too-long`.

    `skill` is the digest of the skill as the model saw it.
    """

    doc_id: str
    skill: str
    task: str = ""
    failed: str | None = None
    detail: str = ""


def write_tasks(
    skills: Sequence[Skill],
    names: Mapping[str, Sequence[str]],
    categories: Mapping[str, str],
    folder: Root,
    book: AnswerCache,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Growth:
    """Write a task about each skill that has no file below `written/` of the folder yet, as its texts are.

    Arguments and errors are those of `SkillFiles.grow`. By doc_id, `names` are a skill's other names, which
    its task must not tell either, and `categories` those of skills that have one.
    """

    def question(skill: Skill, attempt: int, complaint: str | None) -> Question:
        record = {
            "name": skill.name, "category": categories.get(skill.doc_id, ""),
            "description": skill.description, "body": shortened(skill.body, _BODY),
        }  # fmt: skip
        asked = "Write the request of a person whose task needs this guide."
        messages = messages_of("tasks.evaluate", "task_prompt.txt", record, asked, complaint)
        return Question(PROMPT, messages, sampling, _SCHEMA, attempt, (skill.doc_id,))

    def record(skill: Skill, found: str | Failure) -> dict[str, Any]:
        told = {"task": "", **found._asdict()} if isinstance(found, Failure) else {"task": found}
        made = SkillTask(skill.doc_id, digest_of(skill))
        return {"prompt": PROMPT, **asdict(made), **told}

    return SkillFiles(folder, FOLDER, _identity).grow(
        skills,
        book,
        question=question,
        check=lambda skill, _strict: checked_task([skill.name, *names.get(skill.doc_id, ())]),
        record=record,
        report=report,
    )


def checked_task(names: Sequence[str]) -> Callable[[str], str]:
    """Return the check of an answer about a skill: a text of 10 to 250 words without the skill's names.

    It raises `Rejected` for any other.
    """
    known = Names(names)

    def check(text: str) -> str:
        value = find_json(text)
        task = value.get("task") if isinstance(value, dict) else None
        if not isinstance(task, str):
            reason = 'the answer is no object {"task": "..."}'
            raise Rejected(reason)
        words = task.encode(errors="replace").decode().split()
        if not _WORDS[0] <= len(words) <= _WORDS[1]:
            reason = f"the request has {len(words)} words, 30 to 120 are wanted"
            raise Rejected(reason)
        if known.within(task):
            reason = f"the request names the guide: {', '.join(repr(name[:80]) for name in names)}"
            raise Rejected(reason)
        return " ".join(words)

    return check


def read_written(folder: Root, skills: Iterable[Skill]) -> list[SkillTask]:
    """Return what the folder keeps of these skills as they are; raise `StorageError` for a damaged file."""
    now = {(PROMPT, digest_of(skill)) for skill in skills}
    kept = SkillFiles(folder, FOLDER).read(_of_record)
    return [task for prompt, task in kept if (prompt, task.skill) in now]


def _identity(skill: Skill) -> str:
    return f"{PROMPT} {digest_of(skill)}"


def _of_record(record: dict[str, Any]) -> tuple[str, SkillTask]:
    named = ("doc_id", "skill", "task", "failed", "detail")
    return record["prompt"], SkillTask(*(record[name] for name in named))
