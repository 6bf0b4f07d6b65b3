"""Teaching: who judges trajectories and who induces their skills, for the command; and who sums up states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from flows.commands.induction.settings import load_induction
from flows.commands.llm.opened import is_set_up, opened_llm
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.induce.judge.llm import LlmTrajectoryJudge
from tasks.induce.judge.protocol import DeclaredJudge, Judge
from tasks.induce.library.drafts import Inducer
from tasks.induce.llm_inducer.inducer import LlmInducer
from tasks.induce.skills.wording import summed_up
from tasks.induce.summaries import LlmSummaries
from tasks.induce.trajectories.record import Trajectory
from tasks.models.llm.fallbacks import FallbackLlm

DECLARED, RECURRENCE, LLM = "declared", "recurrence", "llm"
JUDGES, INDUCERS = (DECLARED, LLM), (RECURRENCE, LLM)
_INSTEAD = "such runs wait, such windows are left to recurrence"
_BY_RULE = "such states are summed up by rule"


@dataclass(frozen=True, slots=True)
class Teaching:
    """A judge and an inducer (None: recurrence alone), and the LLM that they ask, if they do."""

    judge: Judge = DeclaredJudge()  # noqa: RUF009 (it has no state)
    inducer: Inducer | None = None
    llm: FallbackLlm | None = None

    @property
    def name(self) -> str:
        """All that decides what is learned of the same trajectories."""
        return f"{self.judge.name} {self.inducer.name if self.inducer else RECURRENCE}"

    @property
    def is_declared(self) -> bool:
        """Whether the files' verdicts are taken."""
        return self.judge.name == DECLARED

    @property
    def unfinished(self) -> bool:
        """Whether the next run may learn more of the same, because the LLM gave no answer this time."""
        return self.llm is not None and self.llm.unfinished

    def judged(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return trajectories with the judge's verdicts in place of theirs."""
        verdicts = self.judge.verdicts(trajectories)
        return [replace(one, success=said) for one, said in zip(trajectories, verdicts, strict=True)]

    def report(self) -> dict[str, Any] | None:
        """Return what the LLM was asked, as `FallbackLlm.report` has it; None without one."""
        return self.llm.report() if self.llm else None


@contextmanager
def teaching(root: Root, settings: Settings, judge: str | None, inducer: str) -> Iterator[Teaching]:
    """Yield who teaches; an LLM is opened only if it is to be asked.

    Args:
        root: Keeps the LLM's answers.
        settings: The LLM.
        judge: `declared` or `llm`; None: the LLM where one is set up.
        inducer: `recurrence` or `llm`.

    Raises:
        WrongInput: A name is not known, or the LLM is to be asked and none is set up.
    """
    by = judge or (LLM if is_set_up(settings) else DECLARED)
    for option, name, known in (("--judge", by, JUDGES), ("--inducer", inducer, INDUCERS)):
        if name not in known:
            msg = f"{option} {name!r} is not known: choose one of {', '.join(known)}"
            raise WrongInput(msg)
    if LLM not in (by, inducer):
        yield Teaching()
        return
    windows = load_induction().windows
    with opened_llm(root, settings, _INSTEAD) as llm:
        yield Teaching(
            LlmTrajectoryJudge(llm) if by == LLM else DeclaredJudge(),
            LlmInducer(llm, windows) if inducer == LLM else None,
            llm,
        )


@contextmanager
def state_summaries(root: Root, settings: Settings) -> Iterator[Callable[[str, str, str], str]]:
    """Yield what sums up a state, given its observation, address and title; raises as `opened_llm`."""
    own = load_induction()
    if own.summaries != LLM:
        yield summed_up
        return
    with opened_llm(root, settings, _BY_RULE) as llm:
        yield LlmSummaries(llm, own.summary_tokens, own.summary_characters).summary
