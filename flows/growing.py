"""Grows a bench for the command: requests with evidence about served skills, written by a language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.llm_settings import llm_options
from flows.options import folder_at
from flows.progress import progress
from flows.settings import Settings
from storage.answers import Answers
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.grounded import Written, document_line, grow, query_line, read_written
from tasks.evaluate.grounded_prompt import PROMPT
from tasks.evaluate.grounded_sample import namespace_of, served_skill_ids, served_skills, stratified
from tasks.evaluate.skill_files import Growth
from tasks.models.llm_answers import open_book
from tasks.models.llm_budget import Ledger
from tasks.parse.choose import LlmOptions

_AT_ONCE = 8  # SkillPager, section 4.1
_LONGEST = 4096  # tokens of five requests with their evidence


def grow_paging_bench(root: Root, settings: Settings, skills: int, out: Path) -> dict[str, Any]:
    """Write requests with evidence about served skills to a folder, and return what came of it.

    The folder gets `queries/` with a file a skill, and from all files there `documents.jsonl` and
    `queries.jsonl`. What is there is kept: a rerun, or one for more skills, asks about the others alone.

    Args:
        root: What it serves; answers are kept below it.
        settings: Which language model, its prices and its ceiling.
        skills: How many; drawn over namespaces by seed 42.
        out: The folder.

    Returns:
        `out`, `skills`, `queries`, `documents`, `by_breadth`, `namespaces` and `rejected` (requests by
        reason), `failed` (skills by reason) of the whole folder; `wanted`, `asked`, `kept` and `unfinished`
        (by reason) of this call; `model`, `prompt`, and `llm` with what was asked and what that cost.

    Raises:
        WrongInput: No language model is set up, or the folder cannot be used; nothing has been asked then.
        NotPublished: Nothing is served.
        LlmDenied: The server lets nobody in, or has no such model.
    """
    llm = _patient(settings)
    chosen = served_skills(root, stratified(served_skill_ids(root), skills))
    folder = folder_at(out)
    ledger = Ledger(llm.prices, llm.ceiling)
    with Answers(root) as answers, progress("asked about") as report:
        book = open_book(llm.endpoint, answers, ledger)
        growth = grow(chosen, folder, book, sampling=llm.sampling, report=report)
    written = read_written(folder)
    good = [w for w in written if w.queries]
    write_lines(out / "documents.jsonl", (document_line(w.skill) for w in good))
    write_lines(out / "queries.jsonl", (query_line(q) for w in good for q in w.queries))
    return {
        "out": str(out), "wanted": skills, **_counted(written, growth), "model": llm.endpoint.model,
        "prompt": PROMPT, "llm": ledger.report(),
    }  # fmt: skip


def _patient(settings: Settings) -> LlmOptions:
    """Return how the model is asked: side by side as the paper does, answers as long as five requests are."""
    llm = llm_options(settings, "llm")
    assert llm is not None  # noqa: S101 - None is for `local`
    at_once = settings.llm_concurrency if "llm_concurrency" in settings.model_fields_set else _AT_ONCE
    sampling = replace(llm.sampling, max_tokens=max(llm.sampling.max_tokens, _LONGEST))
    return replace(llm, endpoint=replace(llm.endpoint, concurrency=at_once), sampling=sampling)


def _counted(written: Iterable[Written], growth: Growth) -> dict[str, Any]:
    written = list(written)
    good = [w for w in written if w.queries]
    queries = [q for w in good for q in w.queries]
    rejected = sum((Counter(w.rejected) for w in written), Counter[str]())
    return {
        "skills": len(written), "asked": growth.asked, "kept": growth.kept,
        "unfinished": dict(growth.unfinished), "documents": len(good), "queries": len(queries),
        "by_breadth": dict(Counter(q.breadth for q in queries)),
        "namespaces": len({namespace_of(w.skill.doc_id) for w in good}),
        "rejected": dict(rejected), "failed": dict(Counter(w.failed for w in written if w.failed)),
    }  # fmt: skip
