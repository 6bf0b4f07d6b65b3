"""SkillFlow's queries, which an LLM writes from a task for each stage; without one the task is the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tasks.models.llm.ask import run_blocking
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json, without_thoughts
from tasks.retrieve.baselines.skillflow_asking import HOTTER, FlowLlm, asked_of, written_rules

# Names of the prompts, with a version that is raised whenever a word of a prompt changes.
ONE, MANY = "flow-query-1", "flow-queries-1"
_LONGEST = 400  # characters of a query: twice what the prompt asks for
_MOST_SENT = 20_000  # characters of a task


class QueryWriter(Protocol):
    """Makes queries for a stage."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` replace the packaged prompt."""


class TaskItself:
    """Takes the task as the one query of every stage, without an LLM."""

    def write(self, task: str, count: int, rules: str | None) -> list[str]:  # noqa: ARG002
        """Return the task."""
        return [task]


class LlmQueries:
    """Asks an LLM for queries (SkillFlow, appendix A.2).

    One query is asked for in free text, several as a JSON list. If no try gives a list, the queries are asked
    for one by one, each at a higher temperature than the last; if none of these is usable either, the task
    itself is the query.
    """

    def __init__(self, llm: FlowLlm) -> None:
        self._llm = llm

    def write(self, task: str, count: int, rules: str | None) -> list[str]:
        """Return about `count` queries for a task, at least one; `rules` replace the packaged prompt.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        return run_blocking(self._write(task, count, rules))

    async def _write(self, task: str, count: int, rules: str | None) -> list[str]:
        async with self._llm.book.opened():
            if count > 1 and (several := await self._several(task, count, rules)) is not None:
                return several
            # Rules for several queries do not fit the prompt for one.
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
    query = " ".join(without_thoughts(text).split()).strip("\"'`“” ")
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
