"""The LLM inducer: a language model says which windows are skills, and names, describes and writes them.

After SGDR, section 4.1 and appendix A.3.2 (https://arxiv.org/abs/2606.04391). What it gives is never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from storage.answers import KeptAnswer
from tasks.induce.library.drafts import DroppedSkill, Rare, SkillDraft, merged
from tasks.induce.llm_inducer.checks import INDUCER, checked_skill
from tasks.induce.llm_inducer.windows import (
    PROMPT,
    WINDOWS,
    WINDOWS_ASKED,
    ShownWindow,
    batches,
    shown,
    values_of,
)
from tasks.induce.replay.verify import Replay
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected

Said = Mapping[str, Any]  # what is said of one window, or `{"error": reason}`
ROUNDS = 2  # each window is asked about, and once more with its error named


class WindowAnswers:
    """What a model said of each window, kept beside the answers as they came.

    Kept is what was said, right or wrong: whether it may be used depends on the runs that are known, and is
    decided anew each time.
    """

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    def find(self, window: ShownWindow) -> Said | None:
        """Return what was said of a window; None: it was not asked about yet."""
        kept = self._llm.cache.answers.find(window.key(self._llm.model, self._llm.sampling))
        if kept is None:
            return None
        self._llm.ledger.counts["cached"] += 1
        found: Said = json.loads(kept.text)
        return found

    def keep(self, window: ShownWindow, answer: Said) -> None:
        """Keep what was said of a window."""
        self._llm.cache.answers.keep(
            KeptAnswer(
                key=window.key(self._llm.model, self._llm.sampling), model=self._llm.model,
                prompt=PROMPT.name, attempt=window.attempt, text=json.dumps(answer),
                rejected=None, prompt_tokens=None, completion_tokens=None,
                made_at=datetime.now(UTC).isoformat(),
            ),
            (WINDOWS_ASKED,),
        )  # fmt: skip


class LlmInducer:
    """Asks about the windows of drafts, 16 a question; what it gives no skill for is left to recurrence.

    What is said of a window is kept by that window, so that the next run asks about new windows alone. A
    window in whose draft a value of a single task stands is not shown.

    Args:
        llm: Is asked; its `fallbacks` count windows that were left, by reason.
        windows: Windows of one question at most.
    """

    def __init__(self, llm: Llm, windows: int = WINDOWS) -> None:
        self._llm, self._windows = llm, windows
        self._kept = WindowAnswers(llm)

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
            self._llm.fell_back(PROMPT, "malformed", len(wrong))
        return merged(list(found.values()), INDUCER), dropped

    def _answers(self, windows: Sequence[ShownWindow]) -> dict[int, Said]:
        """Return by place what is said of windows, asking about those that were not asked about yet."""
        known = {one.place: said for one in windows if (said := self._kept.find(one)) is not None}
        new = [one for one in windows if one.place not in known]

        async def work(batch: Sequence[ShownWindow]) -> None:
            parts = await self._llm.answer_parts(
                PROMPT, batch, lambda part: values_of(part, self._llm.sampling), _halves, tries=1
            )
            for part, said in parts:
                rows: Sequence[Said]
                if not isinstance(said, Fallback):
                    rows = said.skills
                elif _is_of_all(said):
                    rows = [{"error": said.detail}] * len(part)
                else:
                    self._llm.fell_back(PROMPT, said, len(part))
                    continue
                for one, answer in zip(part, rows, strict=True):
                    self._kept.keep(one, answer)
                    known[one.place] = answer

        self._llm.gather(work(batch) for batch in batches(new, self._windows))
        return known


def _is_of_all(fallback: Fallback) -> bool:
    """Tell whether an answer was wrong as a whole: each of its windows is asked about once more."""
    return fallback.reason == "rejected" and not fallback.final


def _halves(batch: Sequence[ShownWindow], fallback: Fallback) -> list[Sequence[ShownWindow]]:
    middle = (len(batch) + 1) // 2
    return [batch[:middle], batch[middle:]] if len(batch) > 1 and not _is_of_all(fallback) else []


def _text(draft: SkillDraft) -> str:
    return f"{draft.skill.name} {draft.skill.description} {draft.skill.code}"


def _unused(draft: SkillDraft) -> DroppedSkill:
    skill = draft.skill
    return DroppedSkill(
        skill.skill_id, skill.domain, "not-reusable", "the language model finds no use for it"
    )
