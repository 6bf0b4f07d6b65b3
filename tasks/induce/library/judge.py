"""The judge of trajectories where the files' own verdicts do not count: an LLM (SGDR, section 3.2, A.3.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from tasks.induce.skills.texts import redacted
from tasks.induce.trajectories.cleaning import ELEMENT, is_web
from tasks.induce.trajectories.outline import folded, outline_of
from tasks.induce.trajectories.record import Step, Trajectory
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values
from tasks.models.llm.quoting import shortened
from tasks.models.visible import visible

TRIES = 2  # requests for one verdict: once more, with the error named
MOST_STATE, MOST_ACTIONS = 12_000, 24_000  # characters that are sent
_MOST_TEXT = 300  # characters of one argument, and of what a tool answered
_SIGNS = r"[\s*_\"'`.]*"  # quotation marks, and Markdown's
_NAMES_STATUS = re.compile(rf"\A{_SIGNS}status{_SIGNS}:", re.IGNORECASE)
_STATUS = re.compile(rf"{_NAMES_STATUS.pattern}{_SIGNS}(success|failure){_SIGNS}", re.IGNORECASE)
# What is typed where one of these is asked for has no form by which redaction could know it.
_SECRET = re.compile(r"pass ?(?:word|code|phrase)|secret|token|\bpin\b|\bcv[cv]\b|api ?key")


def _status_of(text: str) -> bool:
    """Return the verdict that the last line of an answer gives, the only one; else raise `Rejected`."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = _STATUS.fullmatch(lines[-1]) if lines else None
    if found is None:
        raise Rejected('the last line must be: Status: "success" or Status: "failure"')
    if sum(_NAMES_STATUS.match(line) is not None for line in lines) > 1:
        raise Rejected("there is more than one line with a status")
    return found[1].lower() == "success"


PROMPT: Prompt[bool] = Prompt(
    "induce-judge-1", "tasks.induce/judge_rules.txt", Annotated[bool, BeforeValidator(_status_of)],
    text=True, whole=True,
)  # fmt: skip


class LlmTrajectoryJudge:
    """Asks a language model about each trajectory, whatever verdict it was recorded with.

    A verdict is kept with the question, which is made of all that is judged: the same run is judged once.
    """

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    @property
    def name(self) -> str:
        """The model's name and the prompt's."""
        return f"{self._llm.name}:{PROMPT.name}"

    def verdicts(self, trajectories: Sequence[Trajectory]) -> list[bool | None]:
        """Return the verdict on each; None without an answer of two lines.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """

        async def verdict(one: Trajectory) -> bool | None:
            of = f"trajectory:{one.trajectory_id}"  # by which `forget` finds the answer
            values = Values("Did the agent do what was asked?", [record_of(one)], (of,))
            said = await self._llm.answer(PROMPT, values, tries=TRIES)
            return None if isinstance(said, Fallback) else said

        return self._llm.gather(verdict(one) for one in trajectories)


def record_of(trajectory: Trajectory) -> dict[str, Any]:
    """Return what is judged of a trajectory, secrets redacted: nothing that a verdict was recorded with."""
    web = is_web(trajectory)
    steps = (_told(trajectory, place, web=web) for place in range(len(trajectory.steps)))
    seen: dict[str, Any] = redacted({
        "intent": trajectory.task, "actions": "\n".join(steps), "final_state": trajectory.final,
        "response": _response(trajectory),
    })  # fmt: skip
    seen["actions"] = shortened(seen["actions"], MOST_ACTIONS)
    seen["final_state"] = shortened(seen["final_state"], MOST_STATE, "start")
    return seen


def _response(trajectory: Trajectory) -> str | None:
    last = trajectory.steps[-1].action if trajectory.steps else None
    return str(last.args.get("text", "")) if last and last.speaks else None


def _told(trajectory: Trajectory, place: int, *, web: bool) -> str:
    """Return a step as one line: the action, on what it was, and what went wrong or was answered."""
    step = trajectory.steps[place]
    action = f"{place + 1}. {step.action.name}({', '.join(_arguments(step))})"
    if step.error is not None:
        return f"{action} -> error: {_short(step.error)}"
    return action if web else f"{action} -> {_short(trajectory.after(place))}"


def _arguments(step: Step) -> list[str]:
    element = outline_of(step.observation).elements.get(str(step.action.args.get(ELEMENT)))
    on = [f"{element.role} {json.dumps(element.label, ensure_ascii=False)}"] if element else []
    label = element.label if element else ""
    return on + [
        f"{name}={_value(value, f'{label} {folded(name)}')}"
        for name, value in step.action.args.items()
        if name != ELEMENT or element is None
    ]


def _value(value: object, asked_for: str) -> str:
    if _SECRET.search(asked_for):
        return "[redacted]"
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    # Redacted before it is cut: half a key looks like none.
    return shortened(visible(redacted(text)), _MOST_TEXT)
