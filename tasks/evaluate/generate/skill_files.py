"""What a language model writes about skills, a file a skill: a rerun asks about the others alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from storage.errors import StorageError
from storage.root import Root
from tasks.models.llm.answer_cache import AnswerBook, run_blocking
from tasks.models.llm.asking import together
from tasks.models.llm.errors import BudgetSpent, ContextOverflow, LlmRefused, LlmUnavailable, Rejected
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
    """Files below `name` of a folder, one a skill."""

    folder: Root
    name: str

    def grow(
        self,
        skills: Sequence[Skill],
        book: AnswerBook,
        write: Callable[[Skill], Coroutine[None, None, dict[str, Any]]],
        report: Callable[[int, int], None],
    ) -> Growth:
        """Write the record of each skill that has no file yet, as soon as it is done.

        Args:
            skills: What to ask about; as many at once as the book's endpoint allows.
            book: Is open while records are made.
            write: Makes the record of a skill.
            report: Called with the skills done and their total.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
            StorageError: A file cannot be written.
        """
        growth = Growth()
        new = [skill for skill in skills if not self.folder.exists(self._file(skill.doc_id))]
        done = growth.kept = len(skills) - len(new)

        async def work(skill: Skill) -> None:
            nonlocal done
            try:
                record = await write(skill)
                record = {"schema_version": SCHEMA_VERSION, "model": book.model, **record}
                self.folder.write_json(self._file(skill.doc_id), record)
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
        """Return what `made` makes of each file's record, by file name.

        Raises:
            StorageError: A file is damaged; the message names it.
        """
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

    def _file(self, doc_id: str) -> str:
        """Return a file name that any system takes, one for each id."""
        digest = hashlib.sha256(doc_id.encode()).hexdigest()[:12]
        return f"{self.name}/{re.sub(r'[^A-Za-z0-9]+', '-', doc_id)[:80].strip('-')}-{digest}.json"


async def answer_or_failure(answer: Awaitable[T]) -> T | Failure:
    """Return an answer, or why there can be none; raises what a later run may mend."""
    try:
        return await answer
    except Rejected as rejection:
        return Failure("rejected", rejection.reason)
    except ContextOverflow as error:
        return Failure("too-long", str(error))
    except LlmRefused as error:
        return Failure("refused", str(error))
