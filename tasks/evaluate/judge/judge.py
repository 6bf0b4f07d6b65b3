"""A language model judges whether contexts suffice: three votes, their majority (SkillPager, section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tasks.evaluate.judge.prompt import checked_vote, judge_question
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.ask import run_blocking
from tasks.models.llm.asking import ask_until_right, together
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.question import Sampling

VOTES = 3
_WHY = {
    Rejected: "rejected", LlmRefused: "refused", BudgetSpent: "budget", LlmUnavailable: "unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A request and the context that it got from a document."""

    doc_id: str
    query: str
    context: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The votes on one case, True where the context is said to suffice; fewer than 3 where some failed."""

    votes: tuple[bool, ...] = ()

    @property
    def sufficient(self) -> bool | None:
        """What most of three votes say; None: too few are there to tell."""
        yes, no = self.votes.count(True), self.votes.count(False)
        return yes > no if max(yes, no) > VOTES // 2 else None

    @property
    def pattern(self) -> str:
        """How the votes are split, the larger side first: `3-0`, `2-1`, or shorter where votes failed."""
        yes, no = self.votes.count(True), self.votes.count(False)
        return f"{max(yes, no)}-{min(yes, no)}"


@dataclass(slots=True)
class Judged:
    """The verdicts on cases, in their order, and how many votes failed, by reason."""

    verdicts: list[Verdict]
    failed: Counter[str] = field(default_factory=Counter)


class LlmJudge:
    """Asks a language model three times about each case, and about equal cases once.

    The votes are attempts 0 to 2 of one question, so that each is kept under its own key and none is asked
    for twice. An answer that is no verdict is asked for again, its fault named. The paper decodes at
    temperature 0.
    """

    def __init__(self, book: AnswerCache, sampling: Sampling) -> None:
        self.book, self._sampling = book, sampling

    def judge(
        self, cases: Sequence[Case], report: Callable[[int, int], None] = lambda _done, _total: None
    ) -> Judged:
        """Return the verdict on each case; `report` is called with the different cases done and their total.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
        """
        votes: dict[Case, list[bool]] = {case: [] for case in cases}
        failed: Counter[str] = Counter()
        done = 0

        async def work(case: Case) -> None:
            nonlocal done
            for vote in range(VOTES):
                try:
                    votes[case].append(await self._vote(case, vote))
                except (Rejected, LlmRefused, BudgetSpent, LlmUnavailable) as error:
                    failed[next(why for kind, why in _WHY.items() if isinstance(error, kind))] += 1
            done += 1
            report(done, len(votes))

        async def all_of_them() -> None:
            async with self.book.opened():
                await together(work(case) for case in votes)

        if votes:
            run_blocking(all_of_them())
        return Judged([Verdict(tuple(votes[case])) for case in cases], failed)

    async def _vote(self, case: Case, vote: int) -> bool:
        return await ask_until_right(
            self.book,
            lambda _, said: judge_question(
                case.query,
                case.context,
                sampling=self._sampling,
                vote=vote,
                complaint=said,
                doc_id=case.doc_id,
            ),
            lambda _: checked_vote,
        )
