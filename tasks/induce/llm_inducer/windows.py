"""Windows as an LLM is shown them: what recurrence found, without the values of single tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.induce.library.drafts import SkillDraft
from tasks.induce.skills.actions import Arg, const
from tasks.induce.skills.code import code_of, function_name
from tasks.induce.skills.wording import COMMON
from tasks.induce.texts.safeguards import redacted
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.models.llm.fallbacks import WrittenPrompt
from tasks.models.llm.prompt import list_schema, messages_of, object_schema
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import addresses_the_reader

_TEXT = {"type": "string"}
_SKILL = object_schema(
    window_idx={"type": "integer"}, reusable={"type": "boolean"}, func_name=_TEXT, description=_TEXT,
    code=_TEXT,
)  # fmt: skip
PROMPT = WrittenPrompt(
    "induce-windows-1", "tasks.induce", "windows_rules.txt", object_schema(skills=list_schema(_SKILL))
)
WINDOWS = 16  # of one question, as the authors' release has it
_TOKENS = 256  # of the answer about one window
_MOST_VALUE = 60  # characters of a value that is shown

WINDOWS_ASKED = "windows"  # stands for the document: `forget` of any run drops all that was said of windows


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


def question_of(windows: Sequence[ShownWindow], sampling: Sampling) -> Question:
    """Return the question about some windows, numbered from 0; its answer may be as long as they need."""
    rows = [{"window_idx": number, **one.record} for number, one in enumerate(windows)]
    task = f"Decide about each of the {len(rows)} windows: one entry for each window_idx."
    messages = messages_of(PROMPT.package, PROMPT.rules, {"windows": rows}, task, None)
    longest = max(sampling.max_tokens, _TOKENS * len(rows))
    # One of the windows tells the attempt: all of a question are of the same round.
    return Question(
        PROMPT.name,
        messages,
        replace(sampling, max_tokens=longest),
        PROMPT.schema,
        windows[0].attempt,
        (WINDOWS_ASKED,),
    )
