"""An agent that acts: a language model that is asked at each turn, or a command that answers lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from storage.errors import EnvironmentStopped, EnvironmentUnusable
from tasks.evaluate.agents.attempt import Act, Turn, Unfinished
from tasks.induce.replay.environment import LineProcess
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.prompt import Answer, Prompt, Text, Values
from tasks.models.llm.quoting import shortened

_NOW, _BEFORE = 12_000, 600  # characters of what is seen now, and of what was seen earlier


class _Argument(Answer):
    name: Text
    value: Annotated[Text, BeforeValidator(lambda own: own if isinstance(own, str) else json.dumps(own))]


def _listed(value: object) -> object:
    """Take an object of arguments for the list of them."""
    return [{"name": n, "value": own} for n, own in value.items()] if isinstance(value, dict) else value


class _ActAnswer(Answer):
    thought: Text
    name: Text
    args: Annotated[list[_Argument], BeforeValidator(_listed)]


_ACT: Prompt[_ActAnswer] = Prompt("agent-act-1", "tasks.evaluate/agent_act_rules.txt", _ActAnswer)


def llm_agent(llm: Llm, attempt: int) -> Callable[[Turn], Act]:
    """Return an agent that asks a language model for each action, with all that it did before.

    Answers are kept: what was asked in an attempt that was killed is not paid for again, and still counts;
    for each `attempt` they are drawn anew. The agent raises `Unfinished` if the ceiling is reached or the
    server does not answer. Its LLM is asked by this agent alone; others may share its account.
    """
    cache, own = llm.cache, llm.sampling
    drawn = replace(own, seed=None if own.seed is None else own.seed + attempt)

    def act(turn: Turn) -> Act:
        before, ids = (cache.prompt_tokens, cache.completion_tokens), [one.skill_id for one in turn.skills]
        values = Values("What do you do now?", _records(turn), ids, sampling=drawn, attempt=attempt)
        said = llm.ask(_ACT, values)
        took = cache.prompt_tokens - before[0], cache.completion_tokens - before[1]
        spent = sum(took), llm.ledger.prices.of(*took)
        if not isinstance(said, Fallback):
            return Act(said.name, {one.name: _value(one.value) for one in said.args}, *spent)
        if said.early:
            raise Unfinished(said.reason)
        return Act("", {}, *spent, failed=said.detail)

    return act


def _records(turn: Turn) -> list[Mapping[str, object]]:
    return [
        {"task": turn.task.instruction},
        *({"action": said, "does": does} for said, does in turn.actions.items()),
        *({key: shortened(text, _NOW) for key, text in one.told().items()} for one in turn.skills),
        *({**one, "seen": shortened(str(one["seen"]), _BEFORE)} for one in turn.before[:-1]),
        *({**one, "seen": "as now"} for one in turn.before[-1:]),
        {"now": shortened(turn.seen, _NOW), "error": turn.error},
    ]  # fmt: skip


def _value(text: str) -> Any:  # noqa: ANN401
    """Return an argument: a list or an object if the text is one of JSON, else the text."""
    try:
        return json.loads(text) if text[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text


@contextmanager
def command_agent(
    command: str, seconds: float, attempt: int = 0, left: Callable[[], float] = lambda: math.inf
) -> Iterator[Callable[[Turn], Act]]:
    """Yield an agent that asks a command for each action by a line of JSON, in one process an attempt.

    What it is asked stands below; it answers `{"name", "args"}`, and may say `tokens` and `cost` of the turn,
    and in `used` the ids of skills that it goes by. It sees the environment of this process. Raises as
    `LineProcess`.
    """
    with LineProcess(command, Path.cwd(), seconds, variables=dict(os.environ), left=left) as process:

        def act(turn: Turn) -> Act:
            asked = {
                "task_id": turn.task.task_id, "instruction": turn.task.instruction, "attempt": attempt,
                "domain": turn.task.domain, "turn": turn.number, "actions": turn.actions,
                "skills": [one.told() for one in turn.skills], "seen": turn.seen, "error": turn.error,
            }  # fmt: skip
            try:
                said = json.loads(process.ask(json.dumps(asked)))
                spent = max(int(said.get("tokens", 0)), 0), max(float(said.get("cost", 0)), 0.0)
                own = str(said["name"]), dict(said.get("args") or {})
                json.dumps(own, ensure_ascii=False).encode()  # half a character cannot be kept
                if not math.isfinite(spent[1]):
                    return Act("", {}, failed=f"answered with a cost of {spent[1]}")
                return Act(*own, *spent, used=list(map(str, said["used"])) if "used" in said else None)
            except (EnvironmentStopped, EnvironmentUnusable) as error:
                return Act("", {}, failed=str(error))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
                return Act("", {}, failed=f"answered with no {{name, args, tokens, cost, used}}: {error!r}")

        yield act
