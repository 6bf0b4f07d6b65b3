"""Files of what a language model wrote, one a skill: a rerun asks only about skills without a file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from storage.errors import StorageError
from storage.root import Root
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.ask import run_blocking
from tasks.models.llm.asking import TRIES, ask_until_right, together
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.question import Question
from tasks.retrieve.routing.skill import Skill

T = TypeVar("T")
SCHEMA_VERSION = 1
_LEFT = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


class Failure(NamedTuple):
    """Why a model gave nothing on a skill: `rejected`, `refused` or `too-long`, and that in words."""

    failed: str
    detail: str


@dataclass(slots=True)
class Growth:
    """What one call did: skills asked about and kept from before, and those left for the next, by reason."""

    asked: int = 0
    kept: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class SkillFiles:
    """Files below `name` of a folder, one a skill, or one for what `identity` makes of it."""

    folder: Root
    name: str
    identity: Callable[[Skill], str] = attrgetter("doc_id")

    def grow(
        self,
        skills: Sequence[Skill],
        book: AnswerCache,
        *,
        question: Callable[[Skill, int, str | None], Question],
        check: Callable[[Skill, bool], Callable[[str], T]],
        record: Callable[[Skill, T | Failure], dict[str, Any]],
        report: Callable[[int, int], None],
    ) -> Growth:
        """Ask about each skill that has no file yet, and write its file as soon as it is answered.

        An answer that fails its check is asked for twice more, and the model is told what was wrong.

        Args:
            skills: What to ask about; as many at once as the book's endpoint allows.
            book: Asks, and keeps the answers.
            question: Makes the question about a skill, given the try, from 0, and what was wrong before.
            check: Makes the check of an answer, given the skill and whether one fault rejects the answer;
                the last try is checked leniently, so that what is good of it is kept.
            record: Makes what the file holds of an answer that passed, or of a failure.
            report: Called with the skills done and their total.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
            StorageError: A file cannot be written.
        """
        growth = Growth()
        new = [skill for skill in skills if not self.folder.exists(self._file(skill))]
        done = growth.kept = len(skills) - len(new)

        async def work(skill: Skill) -> None:
            nonlocal done
            answer = ask_until_right(
                book,
                lambda attempt, complaint: question(skill, attempt, complaint),
                lambda attempt: check(skill, attempt < TRIES - 1),
            )
            try:
                made = record(skill, await _answer_or_failure(answer))
                made = {"schema_version": SCHEMA_VERSION, "model": book.model, **made}
                self.folder.write_json(self._file(skill), made)
                growth.asked += 1
            except (BudgetSpent, LlmUnavailable) as error:
                growth.unfinished[_LEFT[type(error)]] += 1
            done += 1
            report(done, len(skills))

        async def all_of_them() -> None:
            async with book.opened():
                await together(work(skill) for skill in new)

        if new:
            run_blocking(all_of_them())
        return growth

    def read(self, made: Callable[[dict[str, Any]], T]) -> list[T]:
        """Return what `made` makes of each record, by file name; a damaged file raises `StorageError`."""
        return [self._read(file, made) for file in self.folder.files(self.name, ".json")]

    def _read(self, file: str, made: Callable[[dict[str, Any]], T]) -> T:
        record, place = self.folder.read_json(file) or {}, self.folder.at(file)
        try:
            if record["schema_version"] != SCHEMA_VERSION:
                msg = f"{place} has schema version {record['schema_version']}, not {SCHEMA_VERSION}"
                raise StorageError(msg)
            return made(record)
        except (KeyError, TypeError) as error:
            msg = f"{place} is damaged ({error!r}): delete it, and its skill is asked about again"
            raise StorageError(msg) from error

    def _file(self, skill: Skill) -> str:
        # The digest tells ids apart that the characters any file system takes would make equal.
        digest = hashlib.sha256(self.identity(skill).encode()).hexdigest()[:12]
        return f"{self.name}/{re.sub(r'[^A-Za-z0-9]+', '-', skill.doc_id)[:80].strip('-')}-{digest}.json"


async def _answer_or_failure(answer: Awaitable[T]) -> T | Failure:
    # A spent budget or a server that is down passes through: a later run may mend it, so nothing is written.
    try:
        return await answer
    except Rejected as rejection:
        return Failure("rejected", rejection.reason)
    except ContextOverflow as error:
        return Failure("too-long", str(error))
    except LlmRefused as error:
        return Failure("refused", str(error))
