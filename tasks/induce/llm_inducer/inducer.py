"""The LLM inducer: a language model says which windows are skills, and names, describes and writes them.

After SGDR, section 4.1 and appendix A.3.2 (https://arxiv.org/abs/2606.04391). What it gives is never run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tasks.induce.library.drafts import DroppedSkill, Rare, SkillDraft, merged
from tasks.induce.llm_inducer.answers import Answer, WindowAnswers, aligned
from tasks.induce.llm_inducer.checks import INDUCER, checked_skill
from tasks.induce.llm_inducer.windows import PROMPT, WINDOWS, ShownWindow, batches, question_of, shown
from tasks.induce.replay.verify import Replay
from tasks.models.llm.ask import run_blocking
from tasks.models.llm.asking import together
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.fallbacks import FallbackLlm

ROUNDS = 2  # each window is asked about, and once more with its error named


class LlmInducer:
    """Asks about the windows of drafts, 16 a question; what it gives no skill for is left to recurrence.

    What is said of a window is kept by that window, so that the next run asks about new windows alone. A
    window in whose draft a value of a single task stands is not shown.

    Args:
        llm: Is asked; its `fallbacks` count windows that were left, by reason.
        windows: Windows of one question at most.
    """

    def __init__(self, llm: FallbackLlm, windows: int = WINDOWS) -> None:
        self._llm, self._windows = llm, windows
        self._kept = WindowAnswers(llm.book, llm.sampling)

    @property
    def name(self) -> str:
        """The model's name and the prompt's."""
        return f"{self._llm.name}:{PROMPT.name}"

    def induce(
        self, drafts: Sequence[SkillDraft], rare: Rare, replay: Replay
    ) -> tuple[list[SkillDraft], list[DroppedSkill]]:
        """Return the drafts with the model's skills in place of theirs, and those that it finds no use for.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        found = dict(enumerate(drafts))
        dropped: list[DroppedSkill] = []
        wrong: dict[int, str | None] = {
            place: None for place, draft in found.items() if not rare.stand_in(_text(draft))
        }
        for _ in range(ROUNDS):
            windows = [shown(place, drafts[place], complaint) for place, complaint in wrong.items()]
            answers, wrong = self._answers(windows), {}
            for place in sorted(answers):
                try:
                    skill = checked_skill(answers[place], drafts[place], rare, replay)
                except Rejected as rejection:
                    wrong[place] = rejection.reason
                    continue
                if skill is not None:
                    found[place] = SkillDraft(skill, drafts[place].windows)
                else:
                    dropped.append(_unused(found.pop(place)))
        if wrong:
            self._llm.fell_back_by(PROMPT, "malformed", len(wrong))
        return merged(list(found.values()), INDUCER), dropped

    def _answers(self, windows: Sequence[ShownWindow]) -> dict[int, Answer]:
        """Return by place what is said of windows, asking about those that were not asked about yet."""
        known = {one.place: answer for one in windows if (answer := self._kept.find(one)) is not None}
        new = [one for one in windows if one.place not in known]

        async def work(batch: list[ShownWindow]) -> None:
            known.update(await self._asked(batch))

        async def all_of_them() -> None:
            async with self._llm.book.opened():
                await together(work(batch) for batch in batches(new, self._windows))

        if new:
            run_blocking(all_of_them())
        return known

    async def _asked(self, batch: Sequence[ShownWindow]) -> dict[int, Answer]:
        """Return what is said of the windows of one question; none where there is no answer.

        What is too long for the model, or refused, is asked by halves.
        """
        question = question_of(batch, self._llm.sampling)
        said: Sequence[Answer]
        try:
            said = await self._llm.book.ask(question, aligned(len(batch)))
        except (Rejected, LlmRefused) as failure:
            if isinstance(failure, Rejected) and not failure.final:
                said = [{"error": failure.reason}] * len(batch)
            elif len(batch) > 1:
                middle = (len(batch) + 1) // 2
                halves = (self._asked(half) for half in (batch[:middle], batch[middle:]))
                first, second = await asyncio.gather(*halves)
                return {**first, **second}
            else:
                self._llm.fell_back_by(PROMPT, failure)
                return {}
        except (BudgetSpent, LlmUnavailable) as failure:
            self._llm.fell_back_by(PROMPT, failure, len(batch))
            return {}
        for one, answer in zip(batch, said, strict=True):
            self._kept.keep(one, answer)
        return {one.place: answer for one, answer in zip(batch, said, strict=True)}


def _text(draft: SkillDraft) -> str:
    return f"{draft.skill.name} {draft.skill.description} {draft.skill.code}"


def _unused(draft: SkillDraft) -> DroppedSkill:
    skill = draft.skill
    return DroppedSkill(
        skill.skill_id, skill.domain, "not-reusable", "the language model finds no use for it"
    )
