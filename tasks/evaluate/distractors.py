"""The hard tier of a routing bench: skills that a language model makes to look relevant (SkillRouter, B)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from storage.errors import StorageError
from storage.root import Root
from tasks.evaluate.asking import TRIES, ask_until_right, together
from tasks.evaluate.distractors_prompt import PROMPT, Distractor, checked_distractors, question_about
from tasks.models.llm_answers import AnswerBook, run_blocking
from tasks.models.llm_errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm_question import Sampling
from tasks.retrieve.staged import Skill

FOLDER = "distractors"
SCHEMA_VERSION = 1

_LEFT = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


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


@dataclass(slots=True)
class Making:
    """What one call did: skills asked about and kept from before, and those left for the next, by reason."""

    asked: int = 0
    kept: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)


def make_distractors(
    skills: Sequence[Skill],
    tasks: Mapping[str, Sequence[str]],
    folder: Root,
    book: AnswerBook,
    *,
    sampling: Sampling,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Making:
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
    making = Making()
    new = [skill for skill in skills if not folder.exists(_file(skill.doc_id))]
    done = making.kept = len(skills) - len(new)

    async def work(skill: Skill) -> None:
        nonlocal done
        try:
            made = await _make(skill, tasks.get(skill.doc_id, ()), book, sampling)
            record = {"schema_version": SCHEMA_VERSION, "prompt": PROMPT, "model": book.model, **asdict(made)}
            folder.write_json(_file(skill.doc_id), record)
            making.asked += 1
        except (BudgetSpent, LlmUnavailable) as error:
            making.unfinished[_LEFT[type(error)]] += 1
        done += 1
        report(done, len(skills))

    async def all_of_them() -> None:
        async with book.opened():
            await together(work(skill) for skill in new)

    if new:
        run_blocking(all_of_them())
    return making


def read_made(folder: Root) -> list[MadeOf]:
    """Return what the folder keeps of every skill, by doc_id.

    Raises:
        StorageError: A file is damaged; the message names it.
    """
    found = [_read(folder, file) for file in folder.files(FOLDER, ".json")]
    return sorted(found, key=lambda made: made.doc_id)


async def _make(skill: Skill, tasks: Sequence[str], book: AnswerBook, sampling: Sampling) -> MadeOf:
    """Return what a model made of a skill, or why it could not; raises what a later run may mend."""

    def check(attempt: int) -> Callable[[str], list[Distractor]]:
        return checked_distractors(skill, strict=attempt < TRIES - 1)

    try:
        found = await ask_until_right(
            book,
            lambda attempt, said: question_about(
                skill, tasks, sampling=sampling, attempt=attempt, complaint=said
            ),
            check,
        )
    except Rejected as rejection:
        return MadeOf(skill.doc_id, failed="rejected", detail=rejection.reason)
    except ContextOverflow as error:
        return MadeOf(skill.doc_id, failed="too-long", detail=str(error))
    except LlmRefused as error:
        return MadeOf(skill.doc_id, failed="refused", detail=str(error))
    return MadeOf(skill.doc_id, tuple(found))


def _read(folder: Root, file: str) -> MadeOf:
    record: dict[str, Any] = folder.read_json(file) or {}
    try:
        if record["schema_version"] != SCHEMA_VERSION:
            msg = f"{folder.at(file)} has schema version {record['schema_version']}, not {SCHEMA_VERSION}"
            raise StorageError(msg)
        made = tuple(Distractor(**entry) for entry in record["distractors"])
        return MadeOf(record["doc_id"], made, record["failed"], record["detail"])
    except (KeyError, TypeError) as error:
        msg = f"{folder.at(file)} is damaged ({error!r}): delete it, and its skill is asked about again"
        raise StorageError(msg) from error


def _file(doc_id: str) -> str:
    """Return a file name that any system takes, one for each id."""
    digest = hashlib.sha256(doc_id.encode()).hexdigest()[:12]
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9]+', '-', doc_id)[:80].strip('-')}-{digest}.json"
