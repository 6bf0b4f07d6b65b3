"""SkillFlow's select stage, its last: an LLM selects what is relevant, and optionally specific."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.models.llm.ask import run_blocking
from tasks.retrieve.baselines.skillflow_asking import FlowLlm, asked_of, numbered_skills, written_rules
from tasks.retrieve.routing.skill import Skill

# Names of the prompts, with a version that is raised whenever a word of a prompt changes.
RELEVANT, SPECIFIC = "flow-relevant-1", "flow-specific-1"


@dataclass(frozen=True, slots=True)
class SelectSettings:
    """The settings of the select stage.

    Args:
        k: The most skills kept.
        specific: Whether relevant skills must also be specific, which is asked for one skill at a time.
        characters: Characters of each skill's text that are sent, from its two ends.
        relevant_rules: The prompt of the first filter; None for the packaged one.
        specific_rules: The prompt of the second filter; None for the packaged one.

    Raises:
        WrongInput: A number is below 1.
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
    """Keeps the skills that an LLM selects, in their order (SkillFlow, equation 6 and appendix A.6).

    It may select none. Without a usable answer the first `k` skills stay, and so does a skill of which the
    LLM does not say whether it is specific; `llm.fallbacks` counts both.
    """

    name = "select"

    def __init__(self, skills: Sequence[Skill], llm: FlowLlm, settings: SelectSettings | None = None) -> None:
        self._skills, self._llm, self._settings = skills, llm, settings or SelectSettings()
        self.k = self._settings.k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills selected.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        return run_blocking(self._narrow(task, among)) if among else []

    async def _narrow(self, task: str, among: Sequence[int]) -> list[int]:
        settings = self._settings
        async with self._llm.book.opened():
            rules = settings.relevant_rules or written_rules("flow_relevant")
            taken = await self._ask(RELEVANT, rules, task, among)
            kept = list(among if taken is None else taken)[: self.k]
            if not settings.specific:
                return kept
            rules = settings.specific_rules or written_rules("flow_specific")
            answers = await asyncio.gather(*(self._ask(SPECIFIC, rules, task, [i]) for i in kept))
            return [i for i, answer in zip(kept, answers, strict=True) if answer is None or answer]

    async def _ask(self, prompt: str, rules: str, task: str, among: Sequence[int]) -> list[int] | None:
        """Return those of `among` that the LLM selects, in their order; None without a usable answer."""
        skills = [self._skills[i] for i in among]
        records = numbered_skills(task, skills, self._settings.characters)
        request = f"Which of the {len(among)} skills are taken?" if len(among) > 1 else "Is the skill taken?"
        messages, doc_ids = asked_of(rules, records, request), [skill.doc_id for skill in skills]
        numbers = await self._llm.ask_numbers(prompt, "selected", len(among), messages, doc_ids)
        return None if numbers is None else [among[number - 1] for number in numbers]
