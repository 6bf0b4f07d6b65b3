"""The command `skillery`: every flow and every query is reachable from here."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from flows import printing
from flows.settings import Settings, load_settings
from storage.errors import SkilleryError, UnknownDocument, Withheld, WrongInput
from storage.root import Root

app = typer.Typer(
    invoke_without_command=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
evaluate_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(evaluate_app, name="evaluate")


_OR_BATCH = ", or --batch and --out"
_INTERRUPTED = 130  # what Typer itself returns for Ctrl-C


class IndexMode(str, Enum):  # noqa: UP042 (a StrEnum changes how the option's default is printed)
    """How much of the index a run makes."""

    all = "all"
    skills = "skills"


class ExportForm(str, Enum):  # noqa: UP042
    """How an export holds its documents."""

    parquet = "parquet"
    jsonl = "jsonl"
    folder = "folder"


class PageForm(str, Enum):  # noqa: UP042
    """How a page is printed."""

    json = "json"
    markdown = "markdown"


RootOption = Annotated[Path | None, typer.Option("--root", help="Folder of all that Skillery keeps [data].")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
BatchOption = Annotated[Path | None, typer.Option("--batch", help="JSON lines of queries.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Where their answers go, a line each.")]
BudgetOption = Annotated[
    float | None, typer.Option("--budget", help="Up to 1 a share of the document's tokens, else a number.")
]

ClassifierOption = Annotated[
    str, typer.Option("--classifier", help="local, llm, or hybrid: the LLM where the local one is unsure.")
]


def _root(settings: Settings, given: Path | None) -> Root:
    return Root(given or settings.root)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


@app.callback()
def _skillery(context: typer.Context) -> None:
    """Skillery, the refinery for agent skills."""
    _require_command(context)


@evaluate_app.callback()
def _evaluate(context: typer.Context) -> None:
    """Measure what is served, or methods on a bench."""
    _require_command(context)


def _require_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(2)


@app.command()
def run(
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Where skills come from; repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="First N documents of each.")] = None,
    index: Annotated[IndexMode, typer.Option("--index", help="Whether to index nodes too.")] = IndexMode.all,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Crawl, refine, parse, index, check and publish, in this process."""
    settings = load_settings()
    from flows.run import run_nightly  # noqa: PLC0415 (Prefect: seconds and megabytes, only runs pay them)

    record = run_nightly(_root(settings, root), source, limit, index.value)
    _print_json(record) if as_json else printing.print_run(record)
    raise typer.Exit(0 if record["state"] in ("complete", "partial") else 1)


@app.command()
def status(
    max_age: Annotated[float | None, typer.Option("--max-age", help="Hours; older fails.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is served, how old it is, and how the last runs went."""
    from flows.status import root_status  # noqa: PLC0415

    if max_age is not None and not max_age >= 0:
        msg = f"--max-age {max_age} is no age: give hours, 0 or more"
        raise WrongInput(msg)
    found = root_status(_root(load_settings(), root))
    _print_json(found) if as_json else printing.print_status(found)
    age = found["age_hours"]
    if max_age is not None and (age is None or age > max_age):
        raise typer.Exit(1)


@app.command()
def search(
    query: Annotated[str | None, typer.Argument(help="The task.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many skills.")] = 10,
    batch: BatchOption = None,
    out: OutOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the skills that fit a task."""
    from flows.queries import open_index, search_batch  # noqa: PLC0415

    settings = load_settings()
    index = open_index(_root(settings, root), settings)
    if batch is not None or out is not None:
        search_batch(index, batch, out, k=k)
        return
    answer = index.search(_given(query, "QUERY", _OR_BATCH), k)
    _print_json(answer) if as_json else printing.print_search(answer)


@app.command()
def page(
    doc_id: Annotated[str | None, typer.Argument(help="A skill's id, as search prints it.")] = None,
    query: Annotated[str | None, typer.Argument(help="The request.")] = None,
    budget: BudgetOption = None,
    method: Annotated[str, typer.Option("--method", help="How nodes are chosen.")] = "facets",
    batch: BatchOption = None,
    out: OutOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the context alone.")] = False,
    form: Annotated[PageForm | None, typer.Option("--format", help="The same as --json, --markdown.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return the parts of a skill that a request needs."""
    from flows.queries import open_index, page_batch  # noqa: PLC0415

    settings = load_settings()
    index = open_index(_root(settings, root), settings)
    if batch is not None or out is not None:
        page_batch(index, batch, out, budget=budget, method=method)
        return
    answer = index.page(
        _given(doc_id, "DOC_ID", _OR_BATCH), _given(query, "QUERY", _OR_BATCH), budget=budget, method=method
    )
    if as_json or form == PageForm.json:
        _print_json(answer)
    elif markdown or form == PageForm.markdown:
        sys.stdout.write(answer["context"] + "\n")
    else:
        printing.print_page(answer)


def _given(value: str | None, name: str, instead: str = "") -> str:
    if value is None:
        msg = f"{name} is missing: give it{instead}"
        raise WrongInput(msg)
    return value


@app.command()
def classify(
    fragments: Annotated[Path, typer.Argument(help="JSON lines of fragments.")],
    out: Annotated[Path, typer.Option("--out", help="Where their types go, a line each.")],
    classifier: ClassifierOption = "local",
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Type fragments: step, example, param, precondition, error_handling or concept."""
    from flows.classifying import classify_file  # noqa: PLC0415

    settings = load_settings()
    found = classify_file(_root(settings, root), settings, fragments, out, classifier)
    _print_json(found) if as_json else printing.print_classified(found)


@app.command()
def graph(
    doc_id: Annotated[str, typer.Argument(help="A skill's id, as search prints it.")],
    out: Annotated[Path, typer.Option("--out", help="The picture: a file named .svg, .png or .pdf.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw one skill's graph: its typed nodes in order, and the edges between them."""
    from flows.graph import draw_graph  # noqa: PLC0415

    settings = load_settings()
    found = draw_graph(_root(settings, root), settings, doc_id, out)
    _print_json(found) if as_json else printing.print_graph(found)


@app.command()
def forget(
    target: Annotated[str, typer.Argument(help="A document's id, or OWNER/REPO.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a text everywhere, for good: raw, corpus, caches and every version of the index."""
    from flows.forgetting import forget_target  # noqa: PLC0415

    found = forget_target(_root(load_settings(), root), target)
    _print_json(found) if as_json else printing.print_forgotten(found)


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="A folder, empty or not there yet.")],
    form: Annotated[
        ExportForm, typer.Option("--format", help="How documents are written.")
    ] = ExportForm.parquet,
    licence: Annotated[
        list[str] | None, typer.Option("--licence", help="allow or metadata-only; repeatable [allow].")
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the clean corpus with a datasheet, by what its licences allow."""
    from flows.exporting import export_root  # noqa: PLC0415

    settings = load_settings()
    policy = settings.licence_policies()["export"]
    found = export_root(_root(settings, root), out, form.value, licence or ["allow"], policy)
    _print_json(found) if as_json else printing.print_export(found)


@evaluate_app.command("paging")
def evaluate_paging(
    documents: Annotated[Path, typer.Option("--documents", help="JSON lines {doc_id, content}.")],
    queries: Annotated[Path, typer.Option("--queries", help="JSON lines with evidence.")],
    method: Annotated[list[str] | None, typer.Option("--method", help="Repeatable.")] = None,
    budget: Annotated[list[float] | None, typer.Option("--budget", help="Repeatable.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Folder for tables and a picture of all methods.")
    ] = None,
    all_methods: Annotated[bool, typer.Option("--all", help="All methods; goes with --report.")] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure evidence sufficiency, coverage and token reduction of paging methods on a bench."""
    from flows.bench import paging_bench  # noqa: PLC0415

    settings = load_settings()
    methods = ["all"] if all_methods else method
    found = paging_bench(_root(settings, root), settings, documents, queries, methods, budget, report)
    _print_json(found) if as_json else printing.print_paging(found)


@evaluate_app.command("nodes")
def evaluate_nodes(
    gold: Annotated[Path, typer.Argument(help="JSON lines of fragments with their node_type.")],
    classifier: ClassifierOption = "local",
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a classifier on labelled fragments: accuracy, F1, confusion, calibration, thresholds."""
    from flows.evaluating_nodes import nodes_bench  # noqa: PLC0415

    settings = load_settings()
    found = nodes_bench(_root(settings, root), settings, gold, classifier)
    _print_json(found) if as_json else printing.print_nodes(found)


@evaluate_app.command("look-alikes")
def evaluate_look_alikes(
    threshold: Annotated[float, typer.Option("--threshold", help="Cosine, above 0, at most 1.")] = 0.95,
    out: Annotated[Path | None, typer.Option("--out", help="Parquet file for all pairs.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report served skills that mean nearly the same in other words; nothing is folded for it."""
    from flows.look_alikes import served_look_alikes  # noqa: PLC0415

    found = served_look_alikes(_root(load_settings(), root), threshold, out)
    _print_json(found) if as_json else printing.print_look_alikes(found)


@evaluate_app.command("corpus")
def evaluate_corpus(
    a: Annotated[str | None, typer.Argument(help="A corpus: a root, a Parquet file or JSON lines.")] = None,
    b: Annotated[str | None, typer.Argument(help="Another, to be compared with it.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the structure of two corpora; without them, run the evaluation flow on what is served."""
    if a is not None:
        from flows.comparing import compare_corpora  # noqa: PLC0415

        compared = compare_corpora(a, _given(b, "B"))
        _print_json(compared) if as_json else printing.print_comparison(compared)
        return
    from flows.run import run_evaluation  # noqa: PLC0415

    found = run_evaluation(_root(load_settings(), root))
    _print_json(found) if as_json else printing.print_evaluation(found)


def main() -> None:
    """Run the command; errors are one line on stderr.

    Exit codes: 0 done, 1 a run failed, 2 wrong use, 130 interrupted.
    """
    try:
        code = app(standalone_mode=False)
    except (WrongInput, UnknownDocument, Withheld) as error:
        _fail(str(error), 2)
    except SkilleryError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except Exception as error:
        # Typer's own complaints about arguments; their class is not exported, its subclass is.
        if not isinstance(error, typer.BadParameter.__mro__[1]):
            raise
        _fail(getattr(error, "format_message", error.__str__)(), 2)
    if code == _INTERRUPTED:
        _fail("interrupted; a later run picks up where this one was", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"skillery: {' '.join(message.split())}\n")
    sys.exit(code)
