"""An agent that acts: a language model that is asked at each turn, or a command that answers lines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from storage.errors import EnvironmentStopped, EnvironmentUnusable
from tasks.evaluate.agents.attempt import Act, GivenSkill, NoAct, Turn, Unfinished
from tasks.induce.replay.environment import LineProcess
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.prompt import Answer, Prompt, Text, Values
from tasks.models.llm.quoting import shortened

_NOW, _BEFORE, _SKILL = 6_000, 600, 12_000  # characters: of what is seen now, and earlier; of a skill's text


class _Argument(Answer):
    name: Text
    value: Text


def _pairs(value: object) -> object:
    """Take an object of arguments for the list of them, and values that are no texts for their JSON."""
    if isinstance(value, dict):
        value = [{"name": name, "value": own} for name, own in value.items()]
    if not isinstance(value, list):
        return value
    return [
        {**one, "value": own if isinstance(own, str) else json.dumps(own)}
        if isinstance(one, dict) and (own := one.get("value")) is not None else one
        for one in value
    ]  # fmt: skip


class _ActAnswer(Answer):
    thought: Text
    name: Text
    args: Annotated[list[_Argument], BeforeValidator(_pairs)]


_ACT: Prompt[_ActAnswer] = Prompt("agent-act-1", "tasks.evaluate/agent_act_rules.txt", _ActAnswer)


class LlmAgent:
    """A language model that is asked for each action, with all that it did before.

    Answers are kept: what was asked in an attempt that was killed is not paid for again, and still counts.

    Args:
        llm: Asked by this agent alone; others may share its account.
        attempt: The number of the attempt: of each, answers are drawn anew.
    """

    def __init__(self, llm: Llm, attempt: int = 0) -> None:
        self._llm, self._attempt = llm, attempt
        own = llm.sampling
        self._sampling = own if own.seed is None else replace(own, seed=own.seed + attempt)

    @property
    def tokens(self) -> int:
        """Tokens of its questions and answers so far."""
        return self._llm.cache.prompt_tokens + self._llm.cache.completion_tokens

    @property
    def cost(self) -> float:
        """Money that they cost when they were asked."""
        return self._llm.ledger.prices.of(self._llm.cache.prompt_tokens, self._llm.cache.completion_tokens)

    def act(self, turn: Turn) -> Act:
        """Return the model's action.

        Raises:
            NoAct: None of its answers can be read.
            Unfinished: The ceiling is reached, or the server does not answer.
            LlmDenied: The server denies access, or has no such model.
        """
        ids = [one.skill_id for one in turn.skills]
        said = self._llm.ask(
            _ACT,
            Values(
                "What do you do now?", _records(turn), ids, sampling=self._sampling, attempt=self._attempt
            ),
        )
        if isinstance(said, Fallback):
            raise Unfinished(said.reason) if said.early else NoAct(said.detail)
        return Act(said.name, {one.name: _value(one.value) for one in said.args})


def _records(turn: Turn) -> list[Mapping[str, object]]:
    return [
        {"task": turn.task.instruction},
        *({"action": said, "does": does} for said, does in turn.actions.items()),
        *(_skill(one) for one in turn.skills),
        *({**one, "seen": shortened(str(one["seen"]), _BEFORE)} for one in turn.before[:-1]),
        *({**one, "seen": "as now"} for one in turn.before[-1:]),
        {"now": shortened(turn.seen, _NOW), "error": turn.error},
    ]


def _skill(skill: GivenSkill) -> Mapping[str, object]:
    text = shortened(skill.text, _SKILL)
    if skill.form == "call":
        return {"procedure": text, "does": skill.description}
    if skill.form == "shown":
        return {"done_before": text}
    return {"skill": skill.skill_id, "name": skill.name, "description": skill.description}


def _value(text: str) -> Any:  # noqa: ANN401
    """Return an argument: a list or an object if the text is one of JSON, else the text."""
    try:
        return json.loads(text) if text[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text


class CommandAgent:
    """A command that is asked for each action by a line of JSON, in one process an attempt.

    It is asked `{"task_id", "instruction", "domain", "attempt", "turn", "actions", "skills", "seen",
    "error"}`, and answers `{"name", "args"}`; beside these it may say `tokens` and `cost` of the turn, and in
    `used` the ids of skills that it goes by. It sees the environment of this process.

    Raises:
        WrongInput: The command line cannot be read.
        EnvironmentUnusable: It cannot be started.
    """

    def __init__(self, command: str, seconds: float, attempt: int = 0) -> None:
        self._process = LineProcess(command, Path.cwd(), seconds, variables=dict(os.environ))
        self._attempt = attempt
        self.tokens, self.cost = 0, 0.0

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def act(self, turn: Turn) -> Act:
        """Return the command's action; raises `NoAct` if it died or says something else."""
        asked = {
            "task_id": turn.task.task_id, "instruction": turn.task.instruction,
            "domain": turn.task.told.domain, "attempt": self._attempt, "turn": turn.number,
            "actions": dict(turn.actions), "skills": [one.told() for one in turn.skills],
            "seen": turn.seen, "error": turn.error,
        }  # fmt: skip
        try:
            answer = json.loads(self._process.ask(json.dumps(asked)))
            self.tokens += max(int(answer.get("tokens", 0)), 0)
            self.cost += max(float(answer.get("cost", 0)), 0.0)
            return Act(str(answer["name"]), dict(answer.get("args") or {}), _texts(answer.get("used") or ()))
        except (EnvironmentStopped, EnvironmentUnusable) as error:
            raise NoAct(str(error)) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"answered with no {{name, args, tokens, cost, used}}: {error!r}"
            raise NoAct(reason) from error


def _texts(given: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(str, given))
