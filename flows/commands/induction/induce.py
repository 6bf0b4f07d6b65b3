"""Induces skills of trajectories for the command: keeps what is new, learns, checks and publishes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.commands.console import progress
from flows.commands.induction.teaching import state_summaries
from flows.run_record import new_run_id
from flows.settings import Settings
from storage.locks import writer_lock
from storage.root import Root
from tasks.induce.library.learn import Learning, domains_held, keep_new, learn, summed, to_learn
from tasks.induce.library.teaching import BY_FILES, Teaching
from tasks.induce.trajectories.read import DOMAIN, Format
from tasks.models.onnx_export import export_below
from tasks.retrieve.versions.learned import serve_learned


@dataclass(frozen=True, slots=True)
class InduceWishes:
    """What to induce, and how."""

    paths: Sequence[Path]
    form: Format = "trajectories"  # what a row of the files is
    domain: str = DOMAIN  # of chats that name none
    how: Learning = field(default_factory=Learning)


def induce(root: Root, settings: Settings, wishes: InduceWishes, by: Teaching = BY_FILES) -> dict[str, Any]:
    """Keep the trajectories of files that are new, learn the libraries of their domains, and serve them.

    Args:
        root: Where all is kept.
        settings: The encoder, and the limits of the gate.
        wishes: What to induce.
        by: Who judges and induces. An LLM judges all runs of a domain that is learned: `waiting` counts them.

    Returns:
        `run_id`, `state`, `published`, `served`, `trajectories` (read, new, judged, unchanged, waiting,
        redacted, failed by reason), `windows`, `skills` (new, changed, unchanged, retired), `dropped` by
        reason, `verified` by how, `inducers` (skills by who found them), `llm` (`FallbackLlm.report`, or
        null), `domains`, `vectors_new`, `checks`, `seconds`.

    Raises:
        WrongInput: A path, the granularity or the way to verify cannot be used; nothing was kept.
        EnvironmentUnusable, EnvironmentStopped: The command or application that skills are verified with
            cannot be used.
    """
    began, run_id = time.monotonic(), new_run_id()
    with writer_lock(root), wishes.how.opened() as replay:
        read = keep_new(root, wishes.paths, wishes.form, wishes.domain)
        todo = to_learn(root, wishes.how, by)
        learned = []
        with progress("domains learned") as report:
            for number, (domain, made_of) in enumerate(todo.items(), 1):
                learned.append(learn(root, domain, made_of, replay, wishes.how, by))
                report(number, len(todo))
        encoder = export_below(root, settings.encoder, settings.encoder_precision)
        policy = settings.licence_policies()["serve"]
        with progress("rows written") as report, state_summaries(root, settings) as words:
            served = serve_learned(root, encoder, settings.gate(), policy, run_id, words=words, report=report)
    if not by.is_declared:
        read["waiting"] = sum(one["waiting"] for one in learned)
    return {
        "run_id": run_id, "trajectories": read, **summed(learned), "domains": domains_held(root), **served,
        "llm": by.report(), "state": _state(read, served, by), "seconds": round(time.monotonic() - began, 2),
    }  # fmt: skip


def _state(read: dict[str, Any], served: dict[str, Any], by: Teaching) -> str:
    refused = not all(check["passed"] for check in served["checks"])
    return "refused" if refused else "partial" if read["failed"] or by.unfinished else "complete"
