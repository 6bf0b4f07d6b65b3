"""Distractors for a routing bench: skills that a language model writes to look relevant (SkillRouter, B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.root import Root
from tasks.evaluate.generate.distractors_prompt import PROMPT, Distractor, checked_distractors, question_about
from tasks.evaluate.generate.skill_files import Failure, Growth, SkillFiles
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill

FOLDER = "distractors"


@dataclass(frozen=True, slots=True)
class SkillDistractors:
    """The distractors of one skill, or why there are none: `rejected`, `refused` or `too-long`."""

    doc_id: str
    distractors: tuple[Distractor, ...] = ()
    failed: str | None = None
    detail: str = ""

    def lines(self) -> list[dict[str, str]]:
        """Return the distractors as `read_skills` reads them, ids `distractor/<doc_id>#<number>`."""
        return [
            {"doc_id": f"distractor/{self.doc_id}#{number}", "distractor_of": self.doc_id, **asdict(made)}
            for number, made in enumerate(self.distractors, start=1)
        ]


def write_distractors(
    skills: Sequence[Skill],
    tasks: Mapping[str, Sequence[str]],
    folder: Root,
    book: AnswerCache,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Growth:
    """Write distractors of each skill that has no file `distractors/<skill>.json` in the folder yet.

    Arguments and errors are those of `SkillFiles.grow`; `tasks` are what each skill is relevant to, by
    doc_id.
    """

    def record(skill: Skill, found: list[Distractor] | Failure) -> dict[str, Any]:
        if isinstance(found, Failure):
            kept = SkillDistractors(skill.doc_id, failed=found.failed, detail=found.detail)
        else:
            kept = SkillDistractors(skill.doc_id, tuple(found))
        return {"prompt": PROMPT, **asdict(kept)}

    return SkillFiles(folder, FOLDER).grow(
        skills,
        book,
        question=lambda skill, attempt, complaint: question_about(
            skill, tasks.get(skill.doc_id, ()), sampling=sampling, attempt=attempt, complaint=complaint
        ),
        check=lambda skill, strict: checked_distractors(skill, strict=strict),
        record=record,
        report=report,
    )


def read_distractors(folder: Root) -> list[SkillDistractors]:
    """Return what the folder keeps of every skill, by doc_id; raise `StorageError` for a damaged file."""
    return sorted(SkillFiles(folder, FOLDER).read(_of_record), key=lambda kept: kept.doc_id)


def _of_record(record: dict[str, Any]) -> SkillDistractors:
    made = tuple(Distractor(**entry) for entry in record["distractors"])
    return SkillDistractors(record["doc_id"], made, record["failed"], record["detail"])
