"""The judge of paging for the command: evidence, an LLM, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, progress
from flows.settings import Settings, asked_llm
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.judge.judge import PROMPT, VOTES, Label, read_labels, require_labelled
from tasks.evaluate.judge.label_form import SUFFIX, form_of, read_form, require_same_contexts
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.judged import (
    Measured,
    Speaker,
    compare_judges,
    draw_label_sample,
    judge_measured,
    judged_rows,
    with_verdicts,
)
from tasks.evaluate.paging.outcomes import Setting
from tasks.models.llm.ask import LlmOptions, open_llm


def require_speaker(name: str, settings: Settings) -> tuple[Speaker, LlmOptions | None]:
    """Return who judges, and how the LLM is asked if it judges; raise `WrongInput` if that cannot be."""
    speakers: dict[str, Speaker] = {"evidence": "evidence", "llm": "llm", "both": "both"}
    if name not in speakers:
        raise WrongInput(f"--judge {name!r} is not known: choose one of {', '.join(speakers)}")
    speaker = speakers[name]
    return speaker, None if speaker == "evidence" else asked_llm(settings)


def labels_for(
    path: Path | None, queries: Sequence[EvidenceQuery], settings: Sequence[Setting]
) -> list[Label]:
    """Return people's labels on what will be measured, of a form or of JSON lines; none without a file.

    Raises `WrongInput` if a line cannot be used, or its context is not measured; the message names the line.
    """
    if path is None:
        return []
    query_ids = [query.query_id for query in queries]
    if path.suffix == SUFFIX:
        return read_form(path, query_ids, settings)
    labels = read_labels(path)
    require_labelled(labels, query_ids, settings)
    return labels


def require_form(form: Path | None, llm: LlmOptions | None) -> None:
    """Raise `WrongInput` if a form for people's labels cannot be drawn or written."""
    if form is None:
        return
    if llm is None:
        raise WrongInput("--sample-labels draws by the votes of an LLM: add --judge llm or --judge both")
    if form.suffix != SUFFIX:
        raise WrongInput(f"--sample-labels {form}: the form is Markdown; end its name with {SUFFIX}")
    if form.exists():
        msg = f"--sample-labels {form} exists, and may be filled in: give another name, or delete it"
        raise WrongInput(msg)
    folder_at(form.parent, "--sample-labels")


def judge_paging(
    measured: Measured, *, root: Root, queries: Sequence[EvidenceQuery], speaker: Speaker,
    llm: LlmOptions | None, labels: Sequence[Label], form: Path | None, sampled: Sequence[Setting],
) -> tuple[list[dict[str, Any]] | None, dict[str, Any], Measured]:  # fmt: skip
    """Judge what was measured, and report who judged.

    Outcomes have their contexts, and stand in the order of the queries. A row's `sufficient` is the verdict
    of the `speaker`; `both` takes evidence and reports the other. Without an LLM only evidence judges.
    `labels` are of people, on some of the same contexts; a `form` is the file for a sample of judged
    contexts, drawn from the methods and budgets that are `sampled`.

    Returns the rows, or None if only evidence judges; and `spoke` (the speaker), `agreement` of two judges
    (`compare_judges`), and for an LLM `model`, `prompt`, `votes`, `patterns`, `failed` (votes by reason),
    `llm` (what was asked, and what that cost) and, if wanted, `sample`, the form's file and cells. Last the
    outcomes, with the verdicts of the model. Before the LLM is asked, raises `WrongInput` if the context
    of a label is another one now; then `LlmDenied` or `NothingJudged` as `judge_measured`.
    """
    contexts = {(o.query_id, *setting): o.context for setting in measured for o in measured[setting]}
    require_same_contexts(labels, contexts)
    if llm is None:
        return None, {"spoke": speaker, **_agreement(compare_judges(measured, None, labels))}, measured
    with open_llm(root, llm) as asked, progress("judged") as report:
        verdicts = judge_measured(measured, queries, asked, report)
    found = compare_judges(measured, verdicts, labels)
    if speaker == "llm":
        found.pop("evidence_llm", None)
    said = {
        "spoke": speaker, "model": llm.endpoint.model, "prompt": PROMPT.name, "votes": VOTES,
        "patterns": verdicts.patterns(), "failed": dict(verdicts.failed), **_agreement(found),
        "llm": asked.ledger.report(),
    }  # fmt: skip
    if form is not None:
        sample = draw_label_sample(measured, verdicts, queries, sampled)
        form.write_text(form_of(sample.pairs, _options(sampled)), "utf-8")
        said["sample"] = {"file": str(form), "pairs": len(sample.pairs), "cells": sample.cells}
    return judged_rows(measured, verdicts, speaker), said, with_verdicts(measured, verdicts)


def _options(sampled: Sequence[Setting]) -> str:
    methods = [f"--method {method}" for method in dict.fromkeys(m for m, _ in sampled)]
    budgets = [
        f"--budget {budget:g}" for budget in dict.fromkeys(b for _, b in sampled) if budget is not None
    ]
    return " ".join(["--documents ... --queries ...", *methods, *budgets])


def _agreement(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"agreement": dict(found)} if found else {}
