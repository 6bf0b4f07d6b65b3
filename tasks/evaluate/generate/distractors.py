"""Distractors for a routing bench: skills that a language model writes to look relevant (SkillRouter, B)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationInfo

from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.generate.skill_files import Kept, SkillFiles, entries_of
from tasks.models.llm.ask import Llm, Report
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, is_last, known_of
from tasks.models.llm.quoting import shortened
from tasks.refine.duplicates.shingles import jaccard, shingle_sets
from tasks.retrieve.routing.skill import Skill

FOLDER = "distractors"
KINDS = ("same-domain", "same-tools", "too-general")  # the strategies of SkillRouter, appendix B
_BODY, _TASK, _TASKS = 24_000, 2_000, 3  # characters of a skill and of a task that are sent; tasks
_WORDS = (150, 2500)  # of a body; 400 to 1,200 are asked for
_COPY = 0.5  # Jaccard similarity of word 5-shingles from which a body is a copy, as the bench has it
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DESCRIPTION = 1024  # characters at most, as the specification has it
_SHOWN = 4  # problems named to the model


@dataclass(frozen=True, slots=True)
class Distractor:
    """A skill that looks as if it served the tasks of another, and by which strategy it was made."""

    kind: str
    name: str
    description: str
    body: str


class _Entry(Answer):
    kind: Literal["same-domain", "same-tools", "too-general"]
    name: str
    description: str
    body: str


class _DistractorsForm(Answer):
    distractors: list[_Entry]


class _KeptDistractors(Kept):
    distractors: list[_Entry]


def _checked(value: object, info: ValidationInfo) -> list[Distractor]:
    """Return the good distractors of an answer about a skill, which is known; at least one.

    A distractor has a kind and a valid name of its own, a description, and a body of 150 to 2,500 words that
    is no copy of the skill's or another's (word 5-shingle Jaccard at most 0.5). Of the last answer the good
    ones stay; any other is rejected by one bad distractor, or one too few.
    """
    skill: Skill = known_of(info)
    good: list[Distractor] = []
    problems: list[str] = []
    for number, entry in enumerate(entries_of(value, "distractors"), start=1):
        made = _distractor(entry)
        wrong = _wrong(made, skill, good) if made is not None else "a text is missing"
        if made is not None and wrong is None:
            good.append(made)
        else:
            problems.append(f"skill {number}: {wrong}")
    if missing := [kind for kind in KINDS if kind not in {made.kind for made in good}]:
        problems.append(f"no usable skill of kind {', '.join(missing)}")
    if problems and not (is_last(info) and good):
        raise Rejected("; ".join(problems[:_SHOWN]))
    return good


PROMPT: Prompt[list[Distractor]] = Prompt(
    "distractors-1", "tasks.evaluate/distractors_prompt.txt",
    Annotated[list[Any], BeforeValidator(_checked)], form=_DistractorsForm,
)  # fmt: skip


def _distractor(entry: object) -> Distractor | None:
    texts = [entry.get(key) for key in Distractor.__slots__] if isinstance(entry, dict) else [None]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return None
    return Distractor(*(str(text).encode(errors="replace").decode().strip() for text in texts))


def _wrong(made: Distractor, skill: Skill, others: Sequence[Distractor]) -> str | None:
    """Return what is wrong with a distractor; None: nothing."""
    words = len(made.body.split())
    taken = {skill.name.casefold(), *(other.name for other in others)}
    checks = (
        (made.kind not in KINDS, f"the kind {made.kind[:40]!r} is none of {', '.join(KINDS)}"),
        (made.kind in {other.kind for other in others}, f"there are two of kind {made.kind}"),
        (not _NAME.fullmatch(made.name), f"the name {made.name[:60]!r} is not in lower case with hyphens"),
        (made.name in taken, f"the name {made.name!r} is taken"),
        (len(made.description) > _DESCRIPTION, f"the description has more than {_DESCRIPTION} characters"),
        (not _WORDS[0] <= words <= _WORDS[1], f"the body has {words} words, 400 to 1,200 are wanted"),
    )
    if found := next((said for bad, said in checks if bad), None):
        return found
    own, *rest = shingle_sets([made.body, skill.body, *(other.body for other in others)])
    return "the body repeats that of another skill" if any(jaccard(own, r) > _COPY for r in rest) else None


def write_distractors(
    skills: Sequence[Skill], tasks: Mapping[str, Sequence[str]], folder: Root, llm: Llm,
    report: Report | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write distractors of each skill that has no file `distractors/<skill>.json` in the folder yet.

    From the files of all skills `distractors.jsonl` is made. Arguments and errors are those of
    `SkillFiles.grow`; `tasks` are what each skill is relevant to, by doc_id. The answer has `skills` (files
    in the folder), `distractors`, `by_kind` and `failed` (skills by reason) of the whole folder; `asked`,
    `kept` and `unfinished` (by reason) of this call.
    """

    def values(skill: Skill) -> Values:
        record = {
            "name": skill.name, "description": skill.description, "body": shortened(skill.body, _BODY),
            "tasks": [shortened(task, _TASK) for task in tasks.get(skill.doc_id, ())[:_TASKS]],
        }  # fmt: skip
        asked = f"Write one skill of each kind: {', '.join(KINDS)}."
        return Values(asked, [record], (skill.doc_id,), known=skill)

    def record(skill: Skill, made: Sequence[Distractor] | None) -> dict[str, Any]:
        return {"doc_id": skill.doc_id, "distractors": [asdict(one) for one in made or ()]}

    growth = SkillFiles(folder, FOLDER, _KeptDistractors).grow(skills, llm, PROMPT, values, record, report)
    written = read_distractors(folder)
    write_lines(folder.folder / "distractors.jsonl", (line for kept in written for line in lines_of(kept)))
    kinds = [made["kind"] for kept in written for made in kept["distractors"]]
    return {
        "skills": len(written), "distractors": len(kinds), "by_kind": dict(Counter(kinds)),
        "failed": dict(Counter(kept["failed"] for kept in written if kept["failed"])), **growth.told(),
    }  # fmt: skip


def read_distractors(folder: Root) -> list[dict[str, Any]]:
    """Return what the folder keeps of every skill, by doc_id; raise `StorageError` for a damaged file.

    A record has `distractors`, or says why there are none: `failed` (`rejected`, `refused`, `too-long`).
    """
    return sorted(
        SkillFiles(folder, FOLDER, _KeptDistractors).records(), key=lambda kept: str(kept["doc_id"])
    )


def lines_of(kept: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a record's distractors as `read_skills` reads them, ids `distractor/<doc_id>#<number>`."""
    return [
        {"doc_id": f"distractor/{kept['doc_id']}#{number}", "distractor_of": kept["doc_id"], **made}
        for number, made in enumerate(kept["distractors"], start=1)
    ]
