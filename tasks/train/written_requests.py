"""Written requests: a task for each skill, by a language model, as pairs to train with (SkillRouter, 4.2)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import AfterValidator, ValidationInfo

from storage.root import Root
from tasks.evaluate.corpus.skill_sample import namespace_of
from tasks.evaluate.generate.skill_files import Kept, SkillFiles
from tasks.models.llm.ask import Llm, Report
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values, known_of, without_thoughts
from tasks.models.llm.quoting import shortened
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.queries import PAIRS, PAIRS_FILE, named_in
from tasks.train.splits import families, in_turn, one_a_family

FOLDER = "tasks"
_WORDS = (8, 600)  # of a task; about 160 are asked for
_BODY = 12_000  # characters of a skill that are sent
_HELD_OUT = 15  # of a hundred repositories, those whose tasks are validated on


class _KeptTask(Kept):
    name: str
    description: str
    body: str
    query: str | None


def _task(text: str, info: ValidationInfo) -> str:
    skill: Skill = known_of(info)
    task = " ".join(without_thoughts(text).encode(errors="replace").decode().split())
    least, most = _WORDS
    if not least <= len(task.split()) <= most:
        raise Rejected(f"the task has {len(task.split())} words; {least} to {most} are wanted")
    if named_in(task, skill):
        raise Rejected(f"the task mentions the skill's name {skill.name!r}")
    return task


PROMPT: Prompt[str] = Prompt(
    "training-task-1", "tasks.evaluate/task_prompt.txt", Annotated[str, AfterValidator(_task)], text=True
)


def write_pairs(
    skills: Sequence[Skill], categories: Mapping[str, str], most: int, folder: Root, llm: Llm, report: Report
) -> dict[str, Any]:
    """Write a task about each of some skills to a folder, and all as pairs to its `PAIRS_FILE`.

    Skills are drawn by seed 42, one a family, categories in turn. Those without a file in `tasks/` are asked
    about; errors are those of `SkillFiles.grow`. The answer has `pairs`, those of each `split`, `failed`
    (skills by reason) of the whole folder; `asked`, `kept` and `unfinished` (by reason) of this call.
    """
    drawn = one_a_family(families(skills), np.arange(len(skills)), np.random.default_rng(42))
    rows = in_turn(drawn, [categories.get(skill.doc_id, "") for skill in skills])[:most]

    def values(skill: Skill) -> Values:
        category = {"category": categories[skill.doc_id]} if skill.doc_id in categories else {}
        body = shortened(skill.body, _BODY)
        record = {"name": skill.name, **category, "description": skill.description, "body": body}
        return Values("Write the task.", [record], (skill.doc_id,), known=skill)

    files = SkillFiles(folder, FOLDER, _KeptTask)
    chosen = [skills[row] for row in rows.tolist()]
    growth = files.grow(
        chosen, llm, PROMPT, values, lambda skill, said: {**skill._asdict(), "query": said}, report
    )
    written = files.records()
    pairs = pl.DataFrame([_pair(record) for record in written if record["query"]], PAIRS, orient="row")
    pairs.write_parquet(folder.folder / PAIRS_FILE)
    return {
        "pairs": pairs.height, "split": dict(pairs["split"].value_counts().sort("split").iter_rows()),
        "failed": dict(Counter(record["failed"] for record in written if record["failed"])), **growth.told(),
    }  # fmt: skip


def _pair(record: Mapping[str, Any]) -> tuple[Any, ...]:
    skill = Skill(*(record[name] for name in Skill._fields))
    repo = namespace_of(skill.doc_id)
    held_out = int(hashlib.sha256(repo.encode()).hexdigest()[:8], 16) % 100 < _HELD_OUT
    split = "validation" if held_out else "train"
    return record["query"], skill.doc_id, digest_of(skill), repo, None, None, None, split
