"""Commands that query what is served: `search` finds skills, `page` reads a part of one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.options import given_or_wrong, print_json, root_of
from flows.cli.printing import run as printing
from flows.commands.console import say_text
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
    form: Annotated[opt.PageForm | None, Option("--format", help="The same as --json, --markdown.")] = None,
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
    if as_json or form == opt.PageForm.json:
        print_json(answer)
        return
    printing.print_notes(answer)
    if markdown or form == opt.PageForm.markdown:
        say_text(answer["context"])
        printing.print_origin(answer)
    else:
        printing.print_page(answer)
