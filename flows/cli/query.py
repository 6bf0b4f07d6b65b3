"""Commands that query what is served: search, page and show skills, tell what changed, compose a plan."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.options import JsonOption, RootOption, given_or_wrong, print_json, root_of
from flows.cli.printing import run as printing
from flows.cli.printing.skill import print_differences, print_skill
from flows.commands.console import form_of, say_text
from flows.settings import Settings, load_settings
from storage.errors import WrongInput
from storage.root import Root

if TYPE_CHECKING:  # only queries pay for the index
    from tasks.retrieve.routing.search import SkillRanker

_OR_BATCH = ", or --batch and --out"


def search(
    query: Annotated[str | None, Argument(metavar="QUERY", help="The task.")] = None,
    k: Annotated[int, Option("-k", metavar="N", min=1, help="How many skills.")] = 10,
    kind: opt.KindOption = None,
    licence: opt.LicenceOption = None,
    source: opt.FromOption = None,
    risk: opt.RiskOption = None,
    explain: Annotated[bool, Option("--explain", help="Say what each score is the sum of.")] = False,
    min_fit: opt.MinFitOption = None,
    method: Annotated[
        str, Option(metavar="METHOD", help="How skills are ranked: default, skillflow, bm25-full ...")
    ] = "default",
    rerank: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="What puts the first in order: best (12 of them; default), fast (8), none, judge (the LLM), "
            "skillrouter, or a reranker's folder or hub id.",
        ),
    ] = None,
    batch: opt.BatchOption = None,
    out: opt.OutOption = None,
    allow_errors: opt.AllowErrorsOption = False,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Find the skills that fit a task."""
    from flows.commands.queries import open_index, search_batch, search_filters  # noqa: PLC0415
    from tasks.retrieve.routing.reranker import NONE, REACHES, RERANKS  # noqa: PLC0415 (only queries pay for it)

    settings = load_settings()
    where = root_of(settings, root)
    if rerank in REACHES and method != "default":
        msg = f"--rerank {rerank} is for the default method: leave out --method {method}, or name a model"
        raise WrongInput(msg)
    if rerank in RERANKS:
        settings, rerank = settings.model_copy(update={"rerank": rerank}), None
    elif rerank is not None:  # another one takes the place of the packaged one
        settings = settings.model_copy(update={"rerank": NONE})
    index = open_index(where, settings)
    filters = search_filters(kind, licence, source, risk, person=True)
    with _ranker(where, settings, method, rerank) as ranker:
        how: dict[str, Any] = {"filters": filters, "explain": explain, "min_fit": min_fit, "ranker": ranker}
        if batch is not None or out is not None:
            failed = search_batch(index, batch, out, k=k, **how)
            raise typer.Exit(1 if failed and not allow_errors else 0)
        answer = index.search(given_or_wrong(query, "QUERY", _OR_BATCH), k, **how)
    print_json(answer) if as_json else printing.print_search(answer)


def _ranker(
    root: Root, settings: Settings, method: str, reranker: str | None
) -> AbstractContextManager[SkillRanker | None]:
    """Return the context of what ranks skills otherwise than by default, or of None."""
    if method == "default" and reranker is None:
        return nullcontext()
    from flows.commands.routing.searching import other_ranker  # noqa: PLC0415 (loads what benches need)

    return other_ranker(root, settings, method=method, reranker=reranker)


def page(
    doc_id: Annotated[
        str | None, Argument(metavar="DOC_ID", help="A skill's id, as search prints it.")
    ] = None,
    query: Annotated[str | None, Argument(metavar="QUERY", help="The request.")] = None,
    budget: opt.BudgetOption = None,
    method: Annotated[str, Option(metavar="METHOD", help="How parts are chosen.")] = "facets",
    rerank: opt.RerankOption = False,
    batch: opt.BatchOption = None,
    out: opt.OutOption = None,
    allow_errors: opt.AllowErrorsOption = False,
    markdown: Annotated[
        bool, Option("--markdown", help="Print these parts alone; stderr says whose they are.")
    ] = False,
    form: Annotated[
        Literal["json", "markdown"] | None, Option("--format", help="The same as --json, --markdown.")
    ] = None,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Return the parts of a skill that a request needs."""
    from flows.commands.queries import open_index, page_batch, reranker_of  # noqa: PLC0415

    if as_json and markdown:
        raise WrongInput("--json and --markdown are two forms of one answer: give one of them")
    settings = load_settings()
    where = root_of(settings, root)
    index = open_index(where, settings)
    with reranker_of(where, settings, wanted=rerank) as reranker:
        if batch is not None or out is not None:
            failed = page_batch(index, batch, out, budget=budget, method=method, reranker=reranker)
            raise typer.Exit(1 if failed and not allow_errors else 0)
        answer = index.page(
            given_or_wrong(doc_id, "DOC_ID", _OR_BATCH),
            given_or_wrong(query, "QUERY", _OR_BATCH),
            budget=budget,
            method=method,
            reranker=reranker,
        )
    if as_json or form == "json":
        print_json(answer)
        return
    printing.print_notes(answer)
    if markdown or form == "markdown":
        say_text(answer["context"])
        printing.print_origin(answer)
    else:
        printing.print_page(answer)


DocIdArgument = Annotated[str, Argument(metavar="DOC_ID", help="A skill's id, the end of it, or its name.")]


def show(
    doc_id: DocIdArgument,
    file: Annotated[str | None, Option(metavar="PATH", help="Print this file of its folder instead.")] = None,
    raw: Annotated[
        bool, Option("--raw", help="Print SKILL.md, or the file, as it is: bytes, keys redacted.")
    ] = False,
    revision: opt.RevisionOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a skill: its front matter, origin, licence, risks, findings and files."""
    from tasks.retrieve.revisions import show as revisions  # noqa: PLC0415
    from tasks.retrieve.revisions.edition import SKILL_FILE  # noqa: PLC0415

    if raw and as_json:
        raise WrongInput("--raw and --json are two forms of one answer: give one of them")
    place = root_of(load_settings(), root)
    edition, alias = revisions.open_edition(place, doc_id, revision)
    if raw:
        sys.stdout.buffer.write(edition.read(SKILL_FILE if file is None else file))
        sys.stdout.buffer.flush()
    elif file is not None:
        content = revisions.file_of(edition, file)
        print_json(content) if as_json else say_text(revisions.require_text(content))
    else:
        found = revisions.shown(edition, alias)
        print_json(found) if as_json else print_skill(found)


def diff(
    doc_id: DocIdArgument,
    a: Annotated[
        str | None,
        Argument(metavar="A", help="The earlier: a hash, a commit, a day or a run  [the one before B]"),
    ] = None,
    b: Annotated[str | None, Argument(metavar="B", help="The later  [the newest]")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what changed in a skill between two nights: its text, its files, its risks."""
    from tasks.retrieve.revisions.show import differences  # noqa: PLC0415

    found = differences(root_of(load_settings(), root), doc_id, a, b)
    print_json(found) if as_json else print_differences(found)


DecomposerOption = Annotated[
    str,
    Option(
        "--decomposer",
        metavar="NAME",
        help="local, llm, paper (SkillWeaver's words), or hybrid: an LLM where local is unsure.",
    ),
]
LlmRerankOption = Annotated[
    bool, Option("--rerank", help="Have a language model choose among a step's candidates.")
]
RoundsOption = Annotated[
    int, Option("--rounds", metavar="T", help="How often to cut again, by what is served.")
]
AlphaOption = Annotated[
    float, Option("--alpha", metavar="A", help="Weight of relevance; the rest is compatibility.")
]
PagesOption = Annotated[
    float | None,
    Option("--pages", metavar="B", help="Add the page of each step's skill, of a budget as page takes it."),
]
PlanOutOption = Annotated[
    Path | None,
    Option(
        "--out", metavar="FILE", help="Draw the plan: .svg or .mmd (Mermaid). With --batch: where answers go."
    ),
]


def compose(
    task: Annotated[str | None, Argument(metavar="TASK", help="What is to be done, in words.")] = None,
    k: Annotated[int, Option("-k", metavar="N", help="Candidates a step.")] = 5,
    kind: opt.KindOption = None,
    licence: opt.LicenceOption = None,
    source: opt.FromOption = None,
    risk: opt.RiskOption = None,
    max_steps: Annotated[int, Option(metavar="N", help="Steps at most.")] = 8,
    decomposer: DecomposerOption = "local",
    rerank: LlmRerankOption = False,
    rounds: RoundsOption = 1,
    hints: Annotated[int, Option(metavar="H", help="How many it is cut again by.")] = 15,
    alpha: AlphaOption = 1.0,
    explain: Annotated[bool, Option("--explain", help="Say what each round made of the task.")] = False,
    pages: PagesOption = None,
    batch: opt.BatchOption = None,
    out: PlanOutOption = None,
    allow_errors: opt.AllowErrorsOption = False,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Plan a task that needs several skills: its steps, their order, and what serves each."""
    from flows.cli.printing.plan import print_plan  # noqa: PLC0415 (as all below: other commands do without)
    from flows.commands.plans.llm import planner  # noqa: PLC0415
    from flows.commands.queries import (  # noqa: PLC0415
        PLAN_FORMS,
        compose_batch,
        open_index,
        put_plan,
        search_filters,
    )
    from tasks.retrieve.compose.compose import ComposeOptions  # noqa: PLC0415

    settings = load_settings()
    where = root_of(settings, root)
    index = open_index(where, settings)
    filters = search_filters(kind, licence, source, risk)
    options = ComposeOptions(k, max_steps, rounds, hints, explain, filters, alpha, pages=pages)
    batched = batch is not None or (out is not None and task is None)
    if out is not None and not batched:
        form_of(out, PLAN_FORMS)  # before the work that a wrong ending would waste
    with planner(where, settings, index, options, decomposer=decomposer, rerank=rerank) as planned:
        if batched:
            failed = compose_batch(planned, batch, out)
        else:
            plan = planned(given_or_wrong(task, "TASK", ", or --batch and --out"))
    if batched:
        raise typer.Exit(1 if failed and not allow_errors else 0)
    if out is not None:
        put_plan(plan, out)
        plan = {"out": str(out), **plan}
    print_json(plan) if as_json else print_plan(plan)
