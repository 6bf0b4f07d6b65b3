"""Files of what a language model wrote, one a skill: a rerun asks only about skills without a file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from storage.errors import StorageError
from storage.root import Root
from tasks.models.llm.ask import Fallback, Llm, Report
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values
from tasks.retrieve.routing.skill import Skill

T = TypeVar("T")
SCHEMA_VERSION = 1


def entries_of(value: object, key: str) -> list[object]:
    """Return the list of an answer, by itself or under a key; raises `Rejected` if there is none."""
    found = value.get(key) if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise Rejected(f'the answer is no object {{"{key}": [...]}}')
    return found


@dataclass(slots=True)
class Growth:
    """What one call did: skills asked about and kept from before, and those left for the next, by reason."""

    asked: int = 0
    kept: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)

    def told(self) -> dict[str, Any]:
        """Return the counts by their names."""
        return {"asked": self.asked, "kept": self.kept, "unfinished": dict(self.unfinished)}


class Kept(BaseModel):
    """What each file holds; there may be more."""

    model_config = ConfigDict(strict=True)

    schema_version: Literal[1]
    doc_id: str
    failed: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class SkillFiles:
    """Files below `name` of a folder, one a skill, and what each must hold."""

    folder: Root
    name: str
    form: type[Kept]

    def grow(
        self, skills: Sequence[Skill], llm: Llm, prompt: Prompt[T], values: Callable[[Skill], Values],
        record: Callable[[Skill, T | None], dict[str, Any]], report: Report | None = None,
    ) -> Growth:  # fmt: skip
        """Ask about each skill that has no file yet, and write its file as soon as it is answered.

        An answer that fails its check is asked for twice more, and the model is told what was wrong; of the
        last one what is good is kept. A file holds what `record` makes of an answer, or of None, and says in
        `failed` why a model gave nothing, `rejected`, `refused` or `too-long`, and in `detail` that in words.
        `report` is told of the skills done, those kept from before among them.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
        """
        new = [skill for skill in skills if not self.folder.exists(self._file(skill))]
        growth = Growth(kept=len(skills) - len(new))

        async def work(skill: Skill) -> None:
            said = await llm.answer(prompt, values(skill))
            if isinstance(said, Fallback) and said.early:  # a later call may mend it: nothing is written
                growth.unfinished[said.reason] += 1
                return
            made = {"schema_version": SCHEMA_VERSION, "model": llm.model, "prompt": prompt.name}
            if isinstance(said, Fallback):
                made |= record(skill, None)
                made |= {"failed": "too-long" if said.too_long else said.reason, "detail": said.detail}
            else:
                made |= {**record(skill, said), "failed": None, "detail": ""}
            self.folder.write_json(self._file(skill), made)
            growth.asked += 1

        def told(done: int, _total: int) -> None:
            if report is not None:
                report(growth.kept + done, len(skills))

        llm.gather(map(work, new), told)
        return growth

    def records(self) -> list[dict[str, Any]]:
        """Return what each file holds, by file name; a damaged file raises `StorageError`."""
        return [self._record(file) for file in self.folder.files(self.name, ".json")]

    def _record(self, file: str) -> dict[str, Any]:
        record, place = self.folder.read_json(file) or {}, self.folder.at(file)
        version = record.get("schema_version")
        if version not in (None, SCHEMA_VERSION):
            raise StorageError(f"{place} has schema version {version}, not {SCHEMA_VERSION}")
        try:
            self.form.model_validate(record)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            msg = (
                f"{place} is damaged ({where}: {first['msg']}): delete it, and its skill is asked about again"
            )
            raise StorageError(msg) from error
        return record

    def _file(self, skill: Skill) -> str:
        # The digest tells ids apart that the characters any file system takes would make equal.
        digest = hashlib.sha256(skill.doc_id.encode()).hexdigest()[:12]
        return f"{self.name}/{re.sub(r'[^A-Za-z0-9]+', '-', skill.doc_id)[:80].strip('-')}-{digest}.json"
