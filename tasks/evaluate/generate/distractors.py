"""Distractors, the hard tier of a routing bench: skills that an LLM writes to look relevant (SkillRouter)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.root import Root
from tasks.evaluate.generate.distractors_prompt import PROMPT, Distractor, checked_distractors, question_about
from tasks.evaluate.generate.skill_files import Failure, Growth, SkillFiles, answer_or_failure
from tasks.models.llm.answer_cache import AnswerBook
from tasks.models.llm.asking import TRIES, ask_until_right
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill

FOLDER = "distractors"


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What is kept of one relevant skill.

    Args:
        doc_id: The skill's.
        distractors: Those that passed every check.
        failed: Why there are none: `rejected`, `refused` or `too-long`; None: there are some.
        detail: The failure in words.
    """

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


def make_distractors(
    skills: Sequence[Skill],
    tasks: Mapping[str, Sequence[str]],
    folder: Root,
    book: AnswerBook,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Growth:
    """Make distractors for each skill that has no file in the folder yet.

    An answer that fails its checks is asked for again twice, its faults named; of the last one what is good
    is kept. Each skill's file is written as soon as it is done, so that a rerun goes on from there.

    Args:
        skills: The relevant ones; as many at once as the book's endpoint allows.
        tasks: What each is relevant to, by doc_id.
        folder: Gets `distractors/<skill>.json`.
        book: Asks, and keeps the answers.
        sampling: How answers are drawn.
        report: Called with the skills done and their total.

    Raises:
        LlmDenied: The server lets nobody in, or has no such model.
        StorageError: A file cannot be written.
    """

    async def write(skill: Skill) -> dict[str, Any]:
        made = await _make(skill, tasks.get(skill.doc_id, ()), book, sampling)
        return {"prompt": PROMPT, **asdict(made)}

    return SkillFiles(folder, FOLDER).grow(skills, book, write, report)


def read_made(folder: Root) -> list[MadeOf]:
    """Return what the folder keeps of every skill, by doc_id.

    Raises:
        StorageError: A file is damaged; the message names it.
    """
    return sorted(SkillFiles(folder, FOLDER).read(_of_record), key=lambda made: made.doc_id)


async def _make(skill: Skill, tasks: Sequence[str], book: AnswerBook, sampling: Sampling) -> MadeOf:
    """Return what a model made of a skill, or why it could not; raises what a later run may mend."""

    def check(attempt: int) -> Callable[[str], list[Distractor]]:
        return checked_distractors(skill, strict=attempt < TRIES - 1)

    found = await answer_or_failure(
        ask_until_right(
            book,
            lambda attempt, said: question_about(
                skill, tasks, sampling=sampling, attempt=attempt, complaint=said
            ),
            check,
        )
    )
    if isinstance(found, Failure):
        return MadeOf(skill.doc_id, failed=found.failed, detail=found.detail)
    return MadeOf(skill.doc_id, tuple(found))


def _of_record(record: dict[str, Any]) -> MadeOf:
    made = tuple(Distractor(**entry) for entry in record["distractors"])
    return MadeOf(record["doc_id"], made, record["failed"], record["detail"])
