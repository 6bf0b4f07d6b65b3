"""The judge of paging for the command: evidence, an LLM, or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.commands.console import progress
from flows.settings import Settings, llm_options
from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.judge.agreement import Label, read_labels, require_labelled
from tasks.evaluate.judge.judge import VOTES, LlmJudge
from tasks.evaluate.judge.prompt import PROMPT
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.bench import Setting
from tasks.evaluate.paging.judged import Measured, Speaker, compare_judges, judge_measured, judged_rows
from tasks.models.llm.answer_cache import open_book
from tasks.models.llm.budget import Ledger
from tasks.parse.classify.options import LlmOptions


def require_speaker(name: str, settings: Settings) -> tuple[Speaker, LlmOptions | None]:
    """Return who judges, and how the LLM is asked if it judges; raise `WrongInput` if that cannot be."""
    speakers: dict[str, Speaker] = {"evidence": "evidence", "llm": "llm", "both": "both"}
    if name not in speakers:
        msg = f"--judge {name!r} is not known: choose one of {', '.join(speakers)}"
        raise WrongInput(msg)
    speaker = speakers[name]
    return speaker, None if speaker == "evidence" else llm_options(settings, "llm")


def labels_for(
    path: Path | None, queries: Sequence[EvidenceQuery], settings: Sequence[Setting]
) -> list[Label]:
    """Return people's labels on what will be measured; none without a file.

    Raises:
        WrongInput: A line cannot be used, or its context is not measured; the message names the line.
    """
    if path is None:
        return []
    labels = read_labels(path)
    require_labelled(labels, [query.query_id for query in queries], settings)
    return labels


def judge_paging(
    root: Root,
    llm: LlmOptions | None,
    speaker: Speaker,
    measured: Measured,
    queries: Sequence[EvidenceQuery],
    labels: Sequence[Label],
) -> tuple[list[dict[str, Any]] | None, dict[str, Any]]:
    """Judge what was measured, and report who judged.

    Args:
        root: The root below which answers are kept.
        llm: How the LLM is asked; None: only evidence judges.
        speaker: The judge whose verdict a row's `sufficient` is; `both` takes evidence and reports the other.
        measured: Outcomes with their contexts, one for each query.
        queries: The queries, in the order of the outcomes.
        labels: Labels of people on some of the same contexts.

    Returns:
        The rows, or None if only evidence judges; and `spoke` (the speaker), `agreement` of two judges
        (`compare_judges`), and for an LLM `model`, `prompt`, `votes`, `patterns`, `failed` (votes by reason)
        and `llm` (what was asked, and what that cost).

    Raises:
        LlmDenied, NothingJudged: As `judge_measured`.
    """
    if llm is None:
        return None, {"spoke": speaker, **_agreement(compare_judges(measured, None, labels))}
    with _judge(root, llm) as (judge, ledger), progress("judged") as report:
        verdicts = judge_measured(measured, queries, judge, report)
    found = compare_judges(measured, verdicts, labels)
    if speaker == "llm":
        found.pop("evidence_llm", None)
    said = {
        "spoke": speaker, "model": llm.endpoint.model, "prompt": PROMPT, "votes": VOTES,
        "patterns": verdicts.patterns(), "failed": dict(verdicts.failed), **_agreement(found),
        "llm": ledger.report(),
    }  # fmt: skip
    return judged_rows(measured, verdicts, speaker), said


@contextmanager
def _judge(root: Root, llm: LlmOptions) -> Iterator[tuple[LlmJudge, Ledger]]:
    ledger = Ledger(llm.prices, llm.ceiling)
    with Answers(root) as answers:
        yield LlmJudge(open_book(llm.endpoint, answers, ledger), llm.sampling), ledger


def _agreement(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"agreement": dict(found)} if found else {}
