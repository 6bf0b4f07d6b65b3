"""Generates a bench for the command: an LLM writes requests with evidence about served skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, progress
from flows.settings import Settings, llm_options
from storage.answers import Answers
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.corpus.skill_sample import namespace_of, served_skill_ids, served_skills, stratified
from tasks.evaluate.generate.distractors import make_distractors, read_made
from tasks.evaluate.generate.distractors_prompt import PROMPT as DISTRACTORS_PROMPT
from tasks.evaluate.generate.requests import Written, document_line, grow, query_line, read_written
from tasks.evaluate.generate.requests_prompt import PROMPT as REQUESTS_PROMPT
from tasks.evaluate.generate.skill_files import Growth
from tasks.evaluate.routing.data import read_qrels, read_skills, read_tasks
from tasks.models.llm.answer_cache import open_book
from tasks.models.llm.budget import Ledger
from tasks.parse.classify.options import LlmOptions
from tasks.retrieve.routing.skill import Skill

_AT_ONCE = 8  # SkillPager, section 4.1
_LONGEST_REQUESTS = 4096  # tokens of five requests with their evidence


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
        "prompt": REQUESTS_PROMPT, "llm": ledger.report(),
    }  # fmt: skip


def _patient(settings: Settings) -> LlmOptions:
    """Return how the model is asked: side by side as the paper does, answers as long as five requests are."""
    llm = llm_options(settings, "llm")
    assert llm is not None  # noqa: S101 - None is for `local`
    at_once = settings.llm_concurrency if "llm_concurrency" in settings.model_fields_set else _AT_ONCE
    sampling = replace(llm.sampling, max_tokens=max(llm.sampling.max_tokens, _LONGEST_REQUESTS))
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


_LONGEST_DISTRACTORS = 8192  # tokens of three skills


def grow_distractors(
    root: Root, settings: Settings, documents: Path, queries: Path, qrels: Path, out: Path
) -> dict[str, Any]:
    """Make distractors of every relevant skill of a bench, and return what came of it.

    The folder gets `distractors/` with a file a skill, and from all files there `distractors.jsonl`, which
    `evaluate routing --documents` takes beside the bench's own. What is there is kept: a rerun asks about the
    other skills alone.

    Args:
        root: Answers are kept below it.
        settings: Which language model, its prices and its ceiling.
        documents: The corpus that holds the relevant skills.
        queries: The bench's tasks.
        qrels: Which skills each task needs.
        out: The folder.

    Returns:
        `out`, `skills` (files in the folder), `distractors`, `by_kind` and `failed` (skills by reason) of the
        whole folder; `wanted`, `asked`, `kept` and `unfinished` (by reason) of this call; `model`, `prompt`,
        and `llm` with what was asked and what that cost.

    Raises:
        WrongInput: No language model is set up, or a file or the folder cannot be used; nothing is asked.
        LlmDenied: The server lets nobody in, or has no such model.
    """
    llm = llm_options(settings, "llm")
    assert llm is not None  # noqa: S101 - None is for `local`
    tasks = _tasks_of(queries, qrels)
    skills = [Skill(*row) for row in read_skills([documents]).select(Skill._fields).iter_rows()]
    relevant = [skill for skill in skills if skill.doc_id in tasks]
    if not relevant:
        msg = f"{documents}: holds no skill that {qrels} calls relevant; give the corpus that does"
        raise WrongInput(msg)
    folder = folder_at(out)
    sampling = replace(llm.sampling, max_tokens=max(llm.sampling.max_tokens, _LONGEST_DISTRACTORS))
    ledger = Ledger(llm.prices, llm.ceiling)
    with Answers(root) as answers, progress("asked about") as report:
        book = open_book(llm.endpoint, answers, ledger)
        making = make_distractors(relevant, tasks, folder, book, sampling=sampling, report=report)
    made = read_made(folder)
    write_lines(out / "distractors.jsonl", (line for one in made for line in one.lines()))
    return {
        "out": str(out), "wanted": len(relevant), "asked": making.asked, "kept": making.kept,
        "unfinished": dict(making.unfinished), "skills": len(made),
        "distractors": sum(len(one.distractors) for one in made),
        "by_kind": dict(Counter(d.kind for one in made for d in one.distractors)),
        "failed": dict(Counter(one.failed for one in made if one.failed)),
        "model": llm.endpoint.model, "prompt": DISTRACTORS_PROMPT, "llm": ledger.report(),
    }  # fmt: skip


def _tasks_of(queries: Path, qrels: Path) -> dict[str, list[str]]:
    """Return the texts of the tasks that each relevant skill serves."""
    texts = {task.query_id: task.text for task in read_tasks(queries)}
    found: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in read_qrels(qrels):
        if relevance > 0 and query_id in texts:
            found.setdefault(doc_id, []).append(texts[query_id])
    return found
