"""Generates benches for the command: requests, distractors and plans that an LLM writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, progress
from flows.commands.queries import SkillPagerSettings
from flows.settings import Settings, asked_llm, load
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.lance.served import require_served
from storage.root import Root
from tasks.evaluate.corpus.read import read_categories
from tasks.evaluate.corpus.skill_sample import namespace_of, served_skill_ids, served_skills, stratified
from tasks.evaluate.generate.distractors import PROMPT as DISTRACTORS
from tasks.evaluate.generate.distractors import write_distractors
from tasks.evaluate.generate.plans import WRITE as PLANS_PROMPT
from tasks.evaluate.generate.plans import (
    PlanDraws,
    WrittenPlans,
    paraphrase,
    plan_words,
    served_rows,
    templated_plans,
    write_plans,
)
from tasks.evaluate.generate.requests import PROMPT as REQUESTS
from tasks.evaluate.generate.requests import write_requests
from tasks.evaluate.routing.data import read_qrels, read_skills, read_tasks
from tasks.models.llm.ask import Llm, LlmOptions, open_llm
from tasks.retrieve.routing.skill import Skill
from tasks.train.written_requests import PROMPT as TASKS
from tasks.train.written_requests import write_pairs

_AT_ONCE = 8  # SkillPager, section 4.1
_LONGEST_REQUESTS = 4096  # tokens of five requests with their evidence
_LONGEST_PLAN = 1024  # tokens of one request, or of its steps
_LONGEST_TASK = 1024  # tokens of the description of a task
_LONGEST_DISTRACTORS = 8192  # tokens of three skills


def grow_paging_bench(root: Root, settings: Settings, skills: int, out: Path) -> dict[str, Any]:
    """Write requests with evidence about served skills to a folder, and return what came of it.

    The folder gets `queries/` with a file for each skill, and from all of them `documents.jsonl` and
    `queries.jsonl`. A rerun, or one for more skills, asks only about skills without a file.

    So many `skills` of what the root serves are drawn by seed 42 over namespaces, or over categories where
    these are set and named; answers are kept below the root.

    Returns `out`, `skills`, `queries`, `documents`, `by_breadth`, `namespaces` and `rejected` (requests by
    reason), `failed` (skills by reason) of the whole folder; `wanted`, `asked`, `kept` and `unfinished` (by
    reason) of this call; `model`, `prompt`, and `llm` with what was asked and what that cost. Before
    the model is asked, raises `WrongInput` if none is set up, or the folder cannot be used, and
    `NotPublished` if nothing is served; then `LlmDenied` if the server denies access, or has no such model.
    """
    options = _options(settings, _LONGEST_REQUESTS)
    if "llm_concurrency" not in settings.model_fields_set:
        options = replace(options, endpoint=replace(options.endpoint, concurrency=_AT_ONCE))
    own, held = load(SkillPagerSettings), served_skill_ids(root)

    def stratum(doc_id: str) -> str:
        return (own.request_categories and held[doc_id]) or namespace_of(doc_id)

    chosen = served_skills(root, stratified(held, skills, stratum=stratum))
    folder = folder_at(out)
    with open_llm(root, options) as llm, progress("asked about") as report:
        longest, exactly = own.request_characters, own.request_exactly
        done = write_requests(chosen, folder, llm, report, longest=longest, exactly=exactly)
    return {"out": str(out), "wanted": skills, **done, **_spent(llm, REQUESTS.name)}


def grow_distractors(
    root: Root, settings: Settings, documents: Path, queries: Path, qrels: Path, out: Path
) -> dict[str, Any]:
    """Write distractors of every relevant skill of a bench, and return what came of it.

    The folder gets `distractors/` with a file for each skill, and from all of them `distractors.jsonl`, which
    `evaluate routing --documents` takes beside the bench's own. A rerun asks only about skills without a
    file.

    Returns `out`, `skills` (files in the folder), `distractors`, `by_kind` and `failed` (skills by reason) of
    the whole folder; the rest, and errors, as `grow_paging_bench`.
    """
    options = _options(settings, _LONGEST_DISTRACTORS)
    tasks = _tasks_of(queries, qrels)
    skills = (Skill(*row) for row in read_skills([documents]).select(Skill._fields).iter_rows())
    relevant = [skill for skill in skills if skill.doc_id in tasks]
    if not relevant:
        msg = f"{documents}: holds no skill that {qrels} calls relevant; give the corpus that does"
        raise WrongInput(msg)
    folder = folder_at(out)
    with open_llm(root, options) as llm, progress("asked about") as report:
        done = write_distractors(relevant, tasks, folder, llm, report)
    return {"out": str(out), "wanted": len(relevant), **done, **_spent(llm, DISTRACTORS.name)}


def grow_requests(
    root: Root, settings: Settings, corpora: Sequence[Path], pairs: int, out: Path
) -> dict[str, Any]:
    """Write a task about each of so many skills of corpora, and return what came of it.

    The folder gets `tasks/` with a file for each skill, and from all of them `pairs.parquet`, which
    `train routing --requests` takes.

    Returns `out`, `wanted`, and what `write_pairs` does; `model`, `prompt` and `llm` as `grow_paging_bench`.
    Errors are those of `grow_paging_bench`, and of `read_skills`.
    """
    options = _options(settings, _LONGEST_TASK)
    with progress("skills read") as report:
        frame = read_skills(corpora, report).sort("doc_id")
    skills = [Skill(*row) for row in frame.select(Skill._fields).iter_rows()]
    categories, folder = read_categories(corpora), folder_at(out)
    with open_llm(root, options) as llm, progress("asked about") as report:
        done = write_pairs(skills, categories, pairs, folder, llm, report)
    return {"out": str(out), "wanted": pairs, **done, **_spent(llm, TASKS.name)}


def grow_compose_bench(
    root: Root, settings: Settings, queries: int, seed: int, out: Path, *, templates: bool = False,
    paraphrases: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Write requests of several steps that served rows can do to a folder, and return what came of it.

    The folder gets `requests.jsonl`, which `evaluate compose --queries` reads, and `bench.json`, which says
    how they were made. A rerun asks only what was not answered before. An index that is too small gives fewer
    than so many `queries`. With `templates`, SkillWeaver's way, `categories.json` says which count.

    Returns `out`, `seed`, `index_version`, `wanted`, `queries`, `steps`, `edges`, `by_difficulty`, `by_tag`,
    `rows`, `rows_used`, `left_out` (rows by reason), `model`, `prompt`, `discarded` and `unfinished`
    (requests by reason), and `llm`: what was asked and what that cost, which `bench.json` leaves out; it and
    `model` are None where none was asked. Raises `WrongInput` if no language model is set up and one is
    asked, or the folder cannot be used; `NotPublished` if nothing is served; `LlmDenied` if the server denies
    access, or has no such model.
    """
    options = _options(settings, _LONGEST_PLAN) if paraphrases or not templates else None
    served, words = require_served(root), plan_words() if templates else {}
    rows, withheld = served_rows(root, served)
    draws = PlanDraws(rows, words.get("categories"))
    plans = draws.drawn(queries, seed)
    folder, spent = folder_at(out), None
    made = templated_plans(draws, plans, seed) if templates else WrittenPlans()
    if options is not None:
        with open_llm(root, options) as llm, progress("asked about") as report:
            made = made if templates else write_plans(draws, plans, llm, report)
            made.unfinished += paraphrase(made.lines, paraphrases, llm, report)
            spent = llm.ledger.report()
    left_out = {**draws.left_out, **({"licence": withheld} if withheld else {})}
    card = {
        "seed": seed, "index_version": served.version, "wanted": queries, "queries": len(made.lines),
        "steps": sum(len(line["steps"]) for line in made.lines),
        "edges": sum(len(line["edges"]) for line in made.lines),
        "by_difficulty": dict(Counter(line["difficulty"] for line in made.lines)),
        "by_tag": dict(sorted(Counter(tag for line in made.lines for tag in line["tags"]).items())),
        "rows": len(rows) + withheld, "rows_used": len(draws.uses),
        "left_out": dict(sorted(left_out.items())),
        "model": options and options.endpoint.model,
        "prompt": "templates" if templates else PLANS_PROMPT.name,
        "discarded": dict(made.discarded), "unfinished": dict(made.unfinished),
    }  # fmt: skip
    write_lines(out / "requests.jsonl", made.lines)
    folder.write_json("bench.json", card)
    if templates:
        folder.write_json("categories.json", words["categories"])
    return {"out": str(out), **card, "llm": spent}


def _options(settings: Settings, longest: int) -> LlmOptions:
    """Return how the model is asked for answers of up to `longest` tokens, or more if the settings say so."""
    llm = asked_llm(settings)
    sampling = replace(llm.sampling, max_tokens=max(llm.sampling.max_tokens, longest))
    return replace(llm, sampling=sampling)


def _spent(llm: Llm, prompt: str) -> dict[str, Any]:
    return {"model": llm.model, "prompt": prompt, "llm": llm.ledger.report()}


def _tasks_of(queries: Path, qrels: Path) -> dict[str, list[str]]:
    """Return the texts of the tasks that each relevant skill serves."""
    texts = {task.query_id: task.text for task in read_tasks(queries)}
    found: dict[str, list[str]] = {}
    for query_id, doc_id, relevance in read_qrels(qrels):
        if relevance > 0 and query_id in texts:
            found.setdefault(doc_id, []).append(texts[query_id])
    return found
