"""Teaching: who judges trajectories, who induces skills of them, and the LLM that both may ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.induce.library.drafts import Inducer
from tasks.induce.library.judge import DeclaredJudge, Judge
from tasks.induce.trajectories.record import Trajectory
from tasks.models.llm.ask import Llm

DECLARED, RECURRENCE = "declared", "recurrence"


@dataclass(frozen=True, slots=True)
class Teaching:
    """A judge and an inducer (None: recurrence alone), and the LLM that they ask, if they do."""

    judge: Judge = DeclaredJudge()  # noqa: RUF009 (it has no state)
    inducer: Inducer | None = None
    llm: Llm | None = None

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
        """Return what the LLM was asked, as `Llm.report` has it; None without one."""
        return self.llm.report() if self.llm else None


BY_FILES = Teaching()
