"""The prompt that asks a language model for distractors of a skill, and the check of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import list_schema, messages_of, object_schema
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import shortened
from tasks.refine.duplicates.shingles import jaccard, shingle_sets
from tasks.retrieve.routing.skill import Skill

PROMPT = "distractors-1"

"""Raised whenever a word of what is sent changes, in `data/distractors_prompt.txt` or here."""

KINDS = ("same-domain", "same-tools", "too-general")

"""The strategies of SkillRouter, appendix B."""

_BODY, _TASK, _TASKS = 24_000, 2_000, 3  # characters of a skill and of a task that are sent; tasks
_WORDS = (150, 2500)  # of a body; 400 to 1,200 are asked for
_COPY = 0.5  # Jaccard similarity of word 5-shingles from which a body is a copy, as the bench has it
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DESCRIPTION = 1024  # characters at most, as the specification has it
_SHOWN = 4  # problems named to the model
_TEXT = {"type": "string"}
_ENTRY = object_schema(
    kind={"type": "string", "enum": list(KINDS)}, name=_TEXT, description=_TEXT, body=_TEXT
)
_SCHEMA = object_schema(distractors=list_schema(_ENTRY))


@dataclass(frozen=True, slots=True)
class Distractor:
    """A skill that looks as if it served the tasks of another, and by which strategy it was made."""

    kind: str
    name: str
    description: str
    body: str


def question_about(
    skill: Skill, tasks: Sequence[str], *, sampling: Sampling, attempt: int, complaint: str | None
) -> Question:
    """Return the question for a skill's distractors, which quotes the skill as data, without its id.

    Args:
        skill: Of a long body the two ends are sent.
        tasks: What the skill is relevant to; the first three are sent.
        sampling: How the answer is drawn.
        attempt: Number of the try, from 0.
        complaint: What was wrong with the answer before.
    """
    record = {
        "name": skill.name, "description": skill.description, "body": shortened(skill.body, _BODY),
        "tasks": [shortened(task, _TASK) for task in tasks[:_TASKS]],
    }  # fmt: skip
    asked = f"Write one skill of each kind: {', '.join(KINDS)}."
    messages = messages_of("tasks.evaluate", "distractors_prompt.txt", record, asked, complaint)
    return Question(PROMPT, messages, sampling, _SCHEMA, attempt, (skill.doc_id,))


def checked_distractors(skill: Skill, *, strict: bool) -> Callable[[str], list[Distractor]]:
    """Return the check of an answer about a skill; it raises `Rejected` if no good distractor is left.

    A distractor has a kind and a valid name of its own, a description, and a body of 150 to 2,500 words that
    is no copy of the skill's or another's (word 5-shingle Jaccard at most 0.5). If `strict`, one bad
    distractor, or one too few, rejects the answer; if not, the good ones stay.
    """

    def check(text: str) -> list[Distractor]:
        good: list[Distractor] = []
        problems: list[str] = []
        for number, entry in enumerate(_entries(find_json(text)), start=1):
            made = _distractor(entry)
            wrong = _wrong(made, skill, good) if made is not None else "a text is missing"
            if made is not None and wrong is None:
                good.append(made)
            else:
                problems.append(f"skill {number}: {wrong}")
        if missing := [kind for kind in KINDS if kind not in {made.kind for made in good}]:
            problems.append(f"no usable skill of kind {', '.join(missing)}")
        if problems and (strict or not good):
            raise Rejected("; ".join(problems[:_SHOWN]))
        return good

    return check


def _entries(value: object) -> list[object]:
    found = value.get("distractors") if isinstance(value, dict) else value
    if not isinstance(found, list):
        reason = 'the answer is no object {"distractors": [...]}'
        raise Rejected(reason)
    return found


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
