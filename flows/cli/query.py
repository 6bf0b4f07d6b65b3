"""Commands that query what is served: `search` finds skills, `page` reads a part of one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import (
    AllowErrorsOption,
    BatchOption,
    BudgetOption,
    FromOption,
    JsonOption,
    KindOption,
    LicenceOption,
    MinFitOption,
    OutOption,
    PageForm,
    PresetOption,
    RerankOption,
    RiskOption,
    RootOption,
    given_or_wrong,
    print_json,
    root_of,
)
from flows.cli.printing import run as printing
from flows.commands.console import say_text
from flows.settings import Settings, load_settings
from storage.errors import WrongInput
from storage.root import Root

if TYPE_CHECKING:  # only queries pay for the index
    from tasks.retrieve.routing.search import SkillRanker

_OR_BATCH = ", or --batch and --out"


def search(
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="The task.")] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="How many skills.")] = 10,
    kind: KindOption = None,
    licence: LicenceOption = None,
    source: FromOption = None,
    risk: RiskOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each score is the sum of.")] = False,
    min_fit: MinFitOption = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="METHOD", help="How skills are ranked: default, skillflow, bm25-full ..."
        ),
    ] = "default",
    rerank: Annotated[
        str | None,
        typer.Option(
            "--rerank",
            metavar="MODEL",
            help="What puts the first in order: best (12 of them; default), fast (8), none, judge (the LLM), "
            "skillrouter, or a reranker's folder or hub id.",
        ),
    ] = None,
    batch: BatchOption = None,
    out: OutOption = None,
    allow_errors: AllowErrorsOption = False,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
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
        str | None, typer.Argument(metavar="DOC_ID", help="A skill's id, as search prints it.")
    ] = None,
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="The request.")] = None,
    budget: BudgetOption = None,
    method: Annotated[
        str, typer.Option("--method", metavar="METHOD", help="How parts are chosen.")
    ] = "facets",
    rerank: RerankOption = False,
    batch: BatchOption = None,
    out: OutOption = None,
    allow_errors: AllowErrorsOption = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print these parts alone; stderr says whose they are.")
    ] = False,
    form: Annotated[PageForm | None, typer.Option("--format", help="The same as --json, --markdown.")] = None,
    _preset: PresetOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return the parts of a skill that a request needs."""
    from flows.commands.queries import open_index, page_batch, reranker_of  # noqa: PLC0415

    if as_json and markdown:
        msg = "--json and --markdown are two forms of one answer: give one of them"
        raise WrongInput(msg)
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
    if as_json or form == PageForm.json:
        print_json(answer)
        return
    printing.print_notes(answer)
    if markdown or form == PageForm.markdown:
        say_text(answer["context"])
        printing.print_origin(answer)
    else:
        printing.print_page(answer)
