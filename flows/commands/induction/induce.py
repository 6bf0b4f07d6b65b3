"""Induces skills of trajectories for the command: keeps what is new, learns, checks and publishes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.commands.console import progress, say_aside
from flows.commands.induction.teaching import state_summaries
from flows.run_record import new_run_id
from flows.settings import Settings
from storage.locks import writer_lock
from storage.root import Root
from tasks.induce.library.learn import BY_FILES, Learning, Teaching, keep_new, learn, summed, to_learn
from tasks.induce.trajectories.read import DOMAIN, Format
from tasks.models.encoder import card_of
from tasks.models.onnx_export import export_below
from tasks.retrieve.suggest.stored import StateWords
from tasks.retrieve.versions.learned import require_model, serve_learned

Counted = Mapping[str, Any]  # counts by what they are of, as JSON holds them


@dataclass(frozen=True, slots=True)
class InduceWishes:
    """What to induce, and how."""

    paths: Sequence[Path]
    form: Format = "trajectories"  # what a row of the files is
    domain: str = DOMAIN  # of chats that name none
    how: Learning = field(default_factory=Learning)


def induce(
    root: Root, settings: Settings, wishes: InduceWishes, by: Teaching = BY_FILES, wait: float = 0
) -> dict[str, Any]:
    """Keep the trajectories of files that are new, learn the libraries of their domains, and serve them.

    Args:
        root: Where all is kept.
        settings: The encoder, and the limits of the gate.
        wishes: What to induce.
        by: Who judges and induces. An LLM judges all runs of a domain that is learned: `waiting` counts them.
        wait: Minutes to wait for another run that writes to the root.

    Returns:
        `run_id`, `state`, `published`, `served`, `trajectories` (read, new, judged, unchanged, waiting,
        redacted, failed by reason), `windows`, `skills` (new, changed, unchanged, retired), `dropped` by
        reason, `verified` by how, `inducers` (skills by who found them), `llm` (`Llm.report`, or
        null), `domains`, `vectors_new`, `checks`, `seconds`.

    Raises:
        WrongInput: A path, the granularity or the way to verify cannot be used; nothing was kept.
        EnvironmentUnusable, EnvironmentStopped: The command or application that skills are verified with
            cannot be used.
    """
    began, run_id = time.monotonic(), new_run_id()
    encoder = export_below(root, settings.encoder)
    require_model(root, card_of(encoder))
    with writer_lock(root, 60 * wait, run=run_id, say=say_aside), wishes.how.opened() as replay:
        read = keep_new(root, wishes.paths, wishes.form, wishes.domain)
        todo = to_learn(root, wishes.how, by)
        learned = []
        with progress("domains learned") as report:
            for number, (domain, made_of) in enumerate(todo.items(), 1):
                learned.append(learn(root, domain, made_of, replay, wishes.how, by))
                report(number, len(todo))
        with progress("rows written") as report, state_summaries(root, settings) as words:
            how, given = wishes.how.told(by), publishing(settings)
            served = serve_learned(root, encoder, run_id, how, words=words, report=report, **given)
    found = record(root, run_id, read, learned, served, by, words)
    return found | {"seconds": round(time.monotonic() - began, 2)}


def record(
    root: Root, run_id: str, read: Counted, learned: Sequence[Counted], served: Counted, by: Teaching,
    words: StateWords,
) -> dict[str, Any]:  # fmt: skip
    """Return the record of a run that learned: what `induce` returns, but for `seconds`.

    Args:
        root: Where all is kept.
        run_id: The run.
        read: What became of the runs of the files.
        learned: What was learned of each domain.
        served: What was published.
        by: Who judged and induced.
        words: Summed up states.
    """
    waiting = read["waiting"] if by.is_declared else sum(one["waiting"] for one in learned)
    unfinished = read["failed"] or by.unfinished or words.unfinished()
    state = "refused" if "message" in served else "partial" if unfinished else "complete"
    return {
        "run_id": run_id, "state": state, "trajectories": {**read, "waiting": waiting},
        **summed(root, learned), "llm": by.report() or words.report(), **served,
    }  # fmt: skip


def publishing(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what is published: the gate, licences, and versions that stay."""
    policy = settings.licence_policies()["serve"]
    return {"gate": settings.gate(), "policy": policy, "keep": settings.keep_versions}
