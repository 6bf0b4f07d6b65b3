"""SkillFlow's queries from a task, by an LLM for each stage; without one the task is the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tasks.models.llm.answer_cache import run_blocking
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.retrieve.baselines.skillflow_asking import HOTTER, FlowLlm, asked_of, written_rules

ONE, MANY = "flow-query-1", "flow-queries-1"

"""Names of the prompts; raised whenever a word of what is sent changes."""

_LONGEST = 400  # characters: twice what is asked for; what is longer is no query but an essay
_MOST_SENT = 20_000  # characters of a task


class QueryWriter(Protocol):
    """Makes queries for a stage."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` stand for the usual prompt."""


class TaskItself:
    """Writes nothing: the task is the one query of every stage; what runs without a language model."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:  # noqa: ARG002
        """Return the task."""
        return [task]


class LlmQueries:
    """Asks a language model, as SkillFlow's appendix A.2 has it.

    One query is asked for in free text, several as a JSON list. If no list comes after all tries, single
    queries are asked for one by one, each at a higher temperature; if none comes either, the task itself is
    the query.
    """

    def __init__(self, llm: FlowLlm) -> None:
        self._llm = llm

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` stand for the usual prompt."""
        return run_blocking(self._write(task, count, rules))

    async def _write(self, task: str, count: int, rules: str | None) -> list[str]:
        async with self._llm.book.opened():
            if count > 1 and (several := await self._several(task, count, rules)) is not None:
                return several
            single = None if count > 1 else rules
            found = [await self._one(task, HOTTER * i, single) for i in range(count)]
            return list(dict.fromkeys(query for query in found if query is not None)) or [task]

    async def _one(self, task: str, heat: float, rules: str | None) -> str | None:
        messages = asked_of(rules or written_rules("flow_one_query"), [_record(task)], "Write the query.")
        return await self._llm.ask(ONE, messages, _checked, heat=heat)

    async def _several(self, task: str, count: int, rules: str | None) -> list[str] | None:
        request = f"Write {count} queries."
        messages = asked_of(rules or written_rules("flow_many_queries"), [_record(task)], request)
        return await self._llm.ask(MANY, messages, _checked_list(count))


def _record(task: str) -> dict[str, object]:
    return {"task": task[:_MOST_SENT]}


def _checked(text: str) -> str:
    query = " ".join(text.split()).strip("\"'`“” ")
    if not query or len(query) > _LONGEST:
        reason = f"a query of 1 to {_LONGEST} characters is wanted, there are {len(query)}"
        raise Rejected(reason)
    return query


def _checked_list(count: int) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        found = find_json(text)
        if isinstance(found, dict) and len(found) == 1:
            found = next(iter(found.values()))
        if not isinstance(found, list) or not all(isinstance(query, str) for query in found):
            reason = "a JSON list of texts is wanted"
            raise Rejected(reason)
        queries = list(dict.fromkeys(_checked(query) for query in found))
        if len(queries) < count:
            reason = f"{len(queries)} different queries instead of {count}"
            raise Rejected(reason)
        return queries[:count]

    return check
