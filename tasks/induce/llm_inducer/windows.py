"""Windows as an LLM is shown them: what recurrence found, without the values of single tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema, model_validator

from tasks.induce.library.drafts import SkillDraft
from tasks.induce.skills.actions import Arg, const
from tasks.induce.skills.code import code_of, function_name
from tasks.induce.skills.wording import COMMON
from tasks.induce.texts.safeguards import redacted
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Values, known_of, schema_of
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import addresses_the_reader

WINDOWS = 16  # of one question, as the authors' release has it
_TOKENS = 256  # of the answer about one window
_MOST_VALUE = 60  # characters of a value that is shown

WINDOWS_ASKED = "windows"  # stands for the document: `forget` of any run drops all that was said of windows


class _Row(Answer):
    window_idx: int
    reusable: bool
    func_name: str
    description: str
    code: str


def _aligned(rows: object, info: ValidationInfo) -> list[dict[str, Any]]:
    """Return what is said of each window; of one of which nothing, or two things, are said, an `error`.

    The answer as a whole is refused if it is no list of objects with `window_idx`, or has a number that was
    not given: then none can be trusted.
    """
    count: int = known_of(info)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        reason = 'the answer is no object {"skills": [{"window_idx": 0, ...}, ...]}'
        raise Rejected(reason)
    if any(type(row.get("window_idx")) is not int for row in rows):
        reason = "an entry has no window_idx that is a whole number"
        raise Rejected(reason)
    if wrong := [row["window_idx"] for row in rows if not 0 <= row["window_idx"] < count]:
        reason = f"there is no window_idx {wrong[0]}: they go from 0 to {count - 1}"
        raise Rejected(reason)
    return [_said_of(number, rows) for number in range(count)]


def _said_of(number: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in rows if row["window_idx"] == number]
    if len(own) != 1:
        return {"error": f"there were {len(own)} entries with its window_idx instead of one"}
    return {name: own[0][name] for name in _Row.model_fields if name in own[0] and name != "window_idx"}


class Windows(Answer):
    """What is said of windows, one by one."""

    skills: Annotated[
        list[dict[str, Any]],
        BeforeValidator(_aligned),
        WithJsonSchema({"type": "array", "items": schema_of(_Row)}),
    ]

    @model_validator(mode="before")
    @classmethod
    def _one_alone(cls, value: object) -> object:
        return {"skills": [value]} if isinstance(value, dict) and "skills" not in value else value


PROMPT: Prompt[Windows] = Prompt("induce-windows-1", "tasks.induce/windows_rules.txt", Windows)


@dataclass(frozen=True, slots=True)
class ShownWindow:
    """A window as it is shown: `place` is its draft's, `record` says all that the model is told of it."""

    place: int
    record: Mapping[str, Any]
    attempt: int = 0

    def key(self, model: str, sampling: Sampling) -> str:
        """Return the key under which the answer about this window is kept, whatever stands beside it."""
        told = (("window", json.dumps(self.record, sort_keys=True)),)
        return Question(PROMPT.name, told, sampling, attempt=self.attempt).key(model)


def shown(place: int, draft: SkillDraft, complaint: str | None) -> ShownWindow:
    """Return the window of a draft, and what was wrong with the answer before, if there was one.

    It says nothing that changes with each new run: the same window is the same question the next time.
    """
    body = draft.skill.body
    record = {"does": draft.skill.description, "code": code_of(function_name(body), body)}
    told: dict[str, Any] = redacted({**record, "always": always(draft)})
    if complaint is None:
        return ShownWindow(place, told)
    return ShownWindow(place, {**told, "error": redacted(complaint)}, attempt=1)


def always(draft: SkillDraft) -> dict[str, Any]:
    """Return the values of the parameters that had one value in all tasks, at least three of them."""
    found: dict[str, Any] = {}
    for place, action in enumerate(draft.skill.body if draft.skill.support >= COMMON else ()):
        for name, source in action.args:
            if isinstance(source, Arg) and name != ELEMENT:
                values = {const(window.inside[place].action.args[name]) for window in draft.windows}
                if len(values) == 1 and len(value := values.pop()) <= _MOST_VALUE:
                    found[source.name] = json.loads(value)
    return found


def batches(windows: Sequence[ShownWindow], most: int) -> list[list[ShownWindow]]:
    """Return the windows of each question: at most `most`, in their order.

    A window that gives the model orders stands in no question about another.
    """
    is_alone = {one.place: addresses_the_reader(json.dumps(one.record)) for one in windows}
    others = [one for one in windows if not is_alone[one.place]]
    found = [others[start : start + most] for start in range(0, len(others), most)]
    return found + [[one] for one in windows if is_alone[one.place]]


def values_of(windows: Sequence[ShownWindow], sampling: Sampling) -> Values:
    """Return what is asked about some windows, numbered from 0; its answer may be as long as they need."""
    rows = [{"window_idx": number, **one.record} for number, one in enumerate(windows)]
    task = f"Decide about each of the {len(rows)} windows: one entry for each window_idx."
    longest = replace(sampling, max_tokens=max(sampling.max_tokens, _TOKENS * len(rows)))
    # One of the windows tells the attempt: all of a question are of the same round.
    return Values(
        task, [{"windows": rows}], (WINDOWS_ASKED,), known=len(rows), sampling=longest,
        attempt=windows[0].attempt,
    )  # fmt: skip
