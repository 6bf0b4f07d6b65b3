"""Teaching: who judges trajectories and who induces their skills, for the command; and who sums up states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.llm import is_set_up, opened_llm
from flows.settings import Settings, load
from storage.errors import WrongInput
from storage.root import Root
from tasks.induce.library.judge import DeclaredJudge, LlmTrajectoryJudge
from tasks.induce.library.learn import BY_FILES, DECLARED, RECURRENCE, Teaching
from tasks.induce.llm_inducer.inducer import LlmInducer
from tasks.induce.texts.summaries import LlmSummaries
from tasks.retrieve.suggest.stored import BY_RULE, StateWords


class InductionSettings(BaseSettings):
    """What SGDR leaves open; the variable of `windows` is SKILLERY_INDUCE_WINDOWS."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_INDUCE_", extra="ignore", frozen=True)

    windows: int = Field(16, ge=1, description="Windows that one question to the LLM asks about at most.")
    summaries: Literal["rule", "llm"] = Field("rule", description="What sums up states.")
    summary_tokens: int = Field(160, ge=1, description="Tokens of a summary by the LLM at most.")
    summary_characters: int = Field(
        12_000, ge=1, description="Characters of a state that the LLM reads to sum it up."
    )


def load_induction() -> InductionSettings:
    """Return the settings of inducing; raises `WrongInput` naming the variable that cannot be used."""
    return load(InductionSettings)


LLM = "llm"
JUDGES, INDUCERS = (DECLARED, LLM), (RECURRENCE, LLM)
_INSTEAD = "such runs wait, such windows are left to recurrence"
_INSTEAD_OF_SUMMARIES = "such states are summed up by rule"


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
        yield BY_FILES
        return
    windows = load_induction().windows
    with opened_llm(root, settings, _INSTEAD) as llm:
        yield Teaching(
            LlmTrajectoryJudge(llm) if by == LLM else DeclaredJudge(),
            LlmInducer(llm, windows) if inducer == LLM else None,
            llm,
        )


@contextmanager
def state_summaries(root: Root, settings: Settings) -> Iterator[StateWords]:
    """Yield what sums up states by the settings; raises as `opened_llm`."""
    own = load_induction()
    if own.summaries != LLM:
        yield BY_RULE
        return
    with opened_llm(root, settings, _INSTEAD_OF_SUMMARIES) as llm:
        summaries = LlmSummaries(llm, own.summary_tokens, own.summary_characters)
        yield StateWords(summaries.name, summaries.summary, llm)
