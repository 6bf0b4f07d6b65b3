"""SkillFlow's way of asking an LLM for a choice: again, and hotter, after a malformed answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any, TypeVar

from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import data_block, quoted, shortened
from tasks.retrieve.routing.skill import Skill

T = TypeVar("T")
RETRIES = 2
_MOST_SENT = 20_000  # characters of a task
HOTTER = 0.3  # added to the temperature at each try: SkillFlow, appendix A.2


class FlowLlm:
    """An LLM whose answers are cached in `book`; `fallbacks` counts why there was no answer, by prompt."""

    def __init__(self, book: AnswerCache, sampling: Sampling | None = None) -> None:
        self.book, self.sampling = book, sampling or Sampling()
        self.fallbacks: Counter[str] = Counter()

    async def ask(
        self,
        prompt: str,
        messages: tuple[tuple[str, str], ...],
        check: Callable[[str], T],
        *,
        schema: dict[str, Any] | None = None,
        doc_ids: Sequence[str] = (),
        heat: float = 0.0,
    ) -> T | None:
        """Return the answer as `check` reads it, None if no try gave one that can be used.

        If `check` raises `Rejected`, the question is asked again, `RETRIES` times, each time at a temperature
        higher by `HOTTER`; `heat` is added from the first try on. Messages are `(role, content)`, with text
        of the documents `doc_ids`.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        reason = "malformed"
        for attempt in range(RETRIES + 1):
            hotter = replace(self.sampling, temperature=self.sampling.temperature + heat + attempt * HOTTER)
            question = Question(prompt, messages, hotter, schema, doc_ids=tuple(doc_ids))
            try:
                return await self.book.ask(question, check)
            except Rejected as rejection:
                if rejection.final:
                    break
            except (LlmRefused, LlmUnavailable, BudgetSpent) as failure:
                reason = {LlmUnavailable: "unavailable", BudgetSpent: "budget"}.get(type(failure), "refused")
                break
        self.fallbacks[f"{prompt}: {reason}"] += 1
        return None

    async def ask_numbers(
        self, prompt: str, key: str, most: int, messages: tuple[tuple[str, str], ...], doc_ids: Sequence[str]
    ) -> list[int] | None:
        """Ask for `{key: [numbers of 1 to most]}`; return each number once, sorted, or None as `ask`."""
        schema = {
            "type": "object",
            "properties": {key: {"type": "array", "items": {"type": "integer"}}},
            "required": [key],
            "additionalProperties": False,
        }
        return await self.ask(prompt, messages, _numbers_under(key, most), schema=schema, doc_ids=doc_ids)


def asked_of(
    rules: str, records: Sequence[dict[str, object]], request: str
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the messages: the rules, then the untrusted texts quoted as data, then the request."""
    return ("system", rules), ("user", f"{data_block([quoted(record) for record in records])}\n\n{request}")


def numbered_skills(task: str, skills: Sequence[Skill], characters: int) -> list[dict[str, object]]:
    """Return the records of a task and of skills from 1 on; of bodies so many characters of the ends."""
    records: list[dict[str, object]] = [{"task": task[:_MOST_SENT]}]
    for number, skill in enumerate(skills, start=1):
        records.append({
            "skill": number, "name": skill.name, "description": skill.description,
            "text": shortened(skill.body, characters),
        })  # fmt: skip
    return records


def written_rules(name: str) -> str:
    """Return the text of a packaged prompt."""
    return resources.files("tasks.retrieve").joinpath(f"data/{name}.txt").read_text(encoding="utf-8").strip()


def _numbers_under(key: str, most: int) -> Callable[[str], list[int]]:
    def check(text: str) -> list[int]:
        found = find_json(text)
        numbers = found.get(key) if isinstance(found, dict) else found
        if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
            reason = f'an object {{"{key}": [whole numbers]}} is wanted'
            raise Rejected(reason)
        if wrong := [n for n in numbers if not 1 <= n <= most]:
            reason = f"number {wrong[0]} is none of 1 to {most}"
            raise Rejected(reason)
        return sorted(set(numbers))

    return check
