"""Induces skills of trajectories for the command: keeps what is new, learns, checks and publishes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.console import progress, say_aside
from flows.commands.llm import opened_llm
from flows.run_record import new_run_id, recorded
from flows.settings import Settings, is_set_up, load
from storage.errors import WrongInput
from storage.locks import writer_lock
from storage.root import Root
from tasks.induce.library.judge import LlmTrajectoryJudge
from tasks.induce.library.learn import DECLARED, RECURRENCE, Learning, keep_new, learn, summed, to_learn
from tasks.induce.library.llm_inducer import LlmInducer
from tasks.induce.replay.verify import opened
from tasks.induce.skills.texts import BY_RULE, StateWords, summed_by
from tasks.induce.trajectories.read import DOMAIN, Format
from tasks.models.encoder import card_of
from tasks.models.onnx_export import export_below
from tasks.retrieve.versions.learned import require_model, serve_learned

Counted = Mapping[str, Any]  # counts by what they are of, as JSON holds them


class InductionSettings(BaseSettings):
    """What SGDR leaves open; the variable of `windows` is SKILLERY_INDUCE_WINDOWS."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_INDUCE_", extra="ignore", frozen=True)

    windows: int = Field(16, ge=1, description="Windows that one question to the LLM asks about at most.")
    granularity: str = Field("window", description="Of the bench of streams: as induce --granularity.")
    candidates: int | None = Field(None, ge=1, description="Of the bench: M; none: 20, or 3 k if more.")
    judge: Literal["declared", "llm"] = Field(
        "declared", description="Of the bench: whose verdict decides what is learned from."
    )
    summaries: Literal["rule", "llm"] = Field("rule", description="What sums up states.")
    summary_tokens: int = Field(160, ge=1, description="Tokens of a summary by the LLM at most.")
    summary_characters: int = Field(
        12_000, ge=1, description="Characters of a state that the LLM reads to sum it up."
    )


LLM = "llm"
JUDGES, INDUCERS = (DECLARED, LLM), (RECURRENCE, LLM)


@contextmanager
def taught(
    root: Root, settings: Settings, how: Learning, judge: str | None, inducer: str
) -> Iterator[Learning]:
    """Yield how skills are learned with who judges and induces; an LLM is opened only if it is to be asked.

    `judge` is `declared` or `llm`, None: the LLM where one is set up; `inducer` is `recurrence` or `llm`.

    Raises `WrongInput` if a name is not known, or the LLM is to be asked and none is set up.
    """
    by = judge or (LLM if is_set_up(settings) else DECLARED)
    for option, name, known in (("--judge", by, JUDGES), ("--inducer", inducer, INDUCERS)):
        if name not in known:
            raise WrongInput(f"{option} {name!r} is not known: choose one of {', '.join(known)}")
    if LLM not in (by, inducer):
        yield how
        return
    windows = load(InductionSettings).windows
    with opened_llm(root, settings, "such runs wait, such windows are left to recurrence") as llm:
        yield replace(
            how, llm=llm, judge=LlmTrajectoryJudge(llm) if by == LLM else None,
            inducer=LlmInducer(llm, windows) if inducer == LLM else None,
        )  # fmt: skip


@contextmanager
def state_summaries(root: Root, settings: Settings) -> Iterator[StateWords]:
    """Yield what sums up states by the settings; raises as `opened_llm`."""
    own = load(InductionSettings)
    if own.summaries != LLM:
        yield BY_RULE
        return
    with opened_llm(root, settings, "such states are summed up by rule") as llm:
        yield summed_by(llm, own.summary_tokens, own.summary_characters)


def induce(
    root: Root, settings: Settings, paths: Sequence[Path], how: Learning, form: Format = "trajectories",
    domain: str = DOMAIN, wait: float = 0,
) -> dict[str, Any]:  # fmt: skip
    """Keep the trajectories of files that are new, learn the libraries of their domains, and serve them.

    `domain` is that of chats that name none. An LLM judges all runs of a domain that is learned: `waiting`
    counts them.

    Returns `run_id`, `state`, `published`, `served`, `trajectories` (read, new, judged, unchanged, waiting,
    redacted, failed by reason), `windows`, `skills` (new, changed, unchanged, retired), `dropped` by reason,
    `verified` by how, `inducers` (skills by who found them), `llm` (`Llm.report`, or null), `domains`,
    `vectors_new`, `checks`, `seconds`. Before anything is kept, raises `WrongInput` if a path or the way to
    verify cannot be used; then `EnvironmentUnusable` or `EnvironmentStopped` if the command that skills are
    verified with cannot be used.
    """
    began, run_id = time.monotonic(), new_run_id()
    encoder = export_below(root, settings.encoder)
    require_model(root, card_of(encoder))
    with (
        writer_lock(root, 60 * wait, run=run_id, say=say_aside),
        recorded(root, run_id, [], flow="induce", mends=False) as noted,
        noted.stage("induce"),
        opened(how.verify, how.folder) as replay,
    ):
        read = keep_new(root, paths, form, domain)
        todo = to_learn(root, how)
        learned = []
        with progress("domains learned") as report:
            for number, (name, made_of) in enumerate(todo.items(), 1):
                learned.append(learn(root, name, made_of, replay, how))
                report(number, len(todo))
        with progress("rows written") as report, state_summaries(root, settings) as words:
            given = publishing(settings)
            served = serve_learned(root, encoder, run_id, how.told(), words=words, report=report, **given)
        found = record(root, run_id, read, learned, served, how, words)
        noted.end_as(found)
    return found | {"seconds": round(time.monotonic() - began, 2)}


def record(
    root: Root, run_id: str, read: Counted, learned: Sequence[Counted], served: Counted, how: Learning,
    words: StateWords,
) -> dict[str, Any]:  # fmt: skip
    """Return the record of a run that learned, which `induce` returns, but for `seconds`.

    `read` says what became of the runs of the files, `learned` what was learned of each domain, `served` what
    was published, `words` what summed up states.
    """
    waiting = sum(one["waiting"] for one in learned) if how.judge else read["waiting"]
    unfinished = read["failed"] or how.unfinished() or words.unfinished()
    state = "refused" if "message" in served else "partial" if unfinished else "complete"
    return {
        "run_id": run_id, "state": state, "trajectories": {**read, "waiting": waiting},
        **summed(root, learned), "llm": how.llm.report() if how.llm else words.report(), **served,
    }  # fmt: skip


def publishing(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what is published: the gate, licences, and versions that stay."""
    policy = settings.licence_policies()["serve"]
    return {"gate": settings.gate(), "policy": policy, "keep": settings.keep_versions}
