"""SkillFlow's last stage: an LLM selects what is relevant, and optionally specific."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.models.llm.answer_cache import run_blocking
from tasks.models.llm.quoting import shortened
from tasks.retrieve.baselines.skillflow_asking import FlowLlm, asked_of, numbers_under, written_rules
from tasks.retrieve.routing.skill import Skill

RELEVANT, SPECIFIC = "flow-relevant-1", "flow-specific-1"

"""Names of the prompts; raised whenever a word of what is sent changes."""

_MOST_SENT = 20_000  # characters of a task
_SCHEMA = {
    "type": "object",
    "properties": {"selected": {"type": "array", "items": {"type": "integer"}}},
    "required": ["selected"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class SelectSettings:
    """The settings of the selector.

    Args:
        k: The most skills taken, at least 1.
        specific: Whether what is relevant must also be specific, which is asked for each skill.
        characters: Of each skill's text, its two ends, that are sent, at least 1.
        relevant_rules, specific_rules: The prompts of both filters; None: the usual ones.
    """

    k: int = 5
    specific: bool = False
    characters: int = 12_000
    relevant_rules: str | None = None
    specific_rules: str | None = None

    def __post_init__(self) -> None:
        if min(self.k, self.characters) < 1:
            msg = f"select stage: k {self.k}, characters {self.characters}: at least 1 each"
            raise WrongInput(msg)


class SelectStage:
    """Keeps what a language model takes, in the order in which it stood: SkillFlow, equation 6, A.6.

    It may take nothing. If it gives no answer that can be used, the first `k` stay as they stood, and a skill
    of which it does not say whether it is specific stays; both are counted.
    """

    name = "select"

    def __init__(self, skills: Sequence[Skill], llm: FlowLlm, settings: SelectSettings | None = None) -> None:
        self._skills, self._llm, self._settings = skills, llm, settings or SelectSettings()

    @property
    def k(self) -> int:
        """How many skills it keeps at most."""
        return self._settings.k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills taken."""
        return run_blocking(self._narrow(task, among)) if among else []

    async def _narrow(self, task: str, among: Sequence[int]) -> list[int]:
        settings = self._settings
        async with self._llm.book.opened():
            rules = settings.relevant_rules or written_rules("flow_relevant")
            taken = await self._ask(RELEVANT, rules, task, among)
            kept = list(among if taken is None else taken)[: settings.k]
            if not settings.specific:
                return kept
            rules = settings.specific_rules or written_rules("flow_specific")
            answers = await asyncio.gather(*(self._ask(SPECIFIC, rules, task, [i]) for i in kept))
            return [i for i, answer in zip(kept, answers, strict=True) if answer is None or answer]

    async def _ask(self, prompt: str, rules: str, task: str, among: Sequence[int]) -> list[int] | None:
        """Return those of `among` that are taken, in their order; None where the model does not say."""
        records: list[dict[str, object]] = [{"task": task[:_MOST_SENT]}]
        for number, i in enumerate(among, start=1):
            skill = self._skills[i]
            records.append({
                "skill": number, "name": skill.name, "description": skill.description,
                "text": shortened(skill.body, self._settings.characters),
            })  # fmt: skip
        request = f"Which of the {len(among)} skills are taken?" if len(among) > 1 else "Is the skill taken?"
        numbers = await self._llm.ask(
            prompt,
            asked_of(rules, records, request),
            numbers_under("selected", len(among)),
            schema=_SCHEMA,
            doc_ids=[self._skills[i].doc_id for i in among],
        )
        return None if numbers is None else [among[number - 1] for number in numbers]
