"""Makes the hard tier of a routing bench for the command: skills that look relevant and are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.llm_settings import llm_options
from flows.options import folder_at
from flows.progress import progress
from flows.settings import Settings
from storage.answers import Answers
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.distractors import make_distractors, read_made
from tasks.evaluate.distractors_prompt import PROMPT
from tasks.evaluate.routing_data import read_qrels, read_skills, read_tasks
from tasks.models.llm_answers import open_book
from tasks.models.llm_budget import Ledger
from tasks.retrieve.skill import Skill

_LONGEST = 8192  # tokens of three skills


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
    sampling = replace(llm.sampling, max_tokens=max(llm.sampling.max_tokens, _LONGEST))
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
        "model": llm.endpoint.model, "prompt": PROMPT, "llm": ledger.report(),
    }  # fmt: skip


def _tasks_of(queries: Path, qrels: Path) -> dict[str, list[str]]:
    """Return the texts of the tasks that each relevant skill serves."""
    texts = {task.query_id: task.text for task in read_tasks(queries)}
    found: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in read_qrels(qrels):
        if relevance > 0 and query_id in texts:
            found.setdefault(doc_id, []).append(texts[query_id])
    return found
