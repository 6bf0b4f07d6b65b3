"""The main module of the command `skillery`: all flows and queries are reachable from here."""

from __future__ import annotations

import os
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from typer import Argument, Option

from flows.cli import options as opt
from flows.cli.deleted import refuse_deleted_settings
from flows.cli.exits import DEBUG_OPTION, QUIET_OPTION, run_to_exit
from flows.cli.helps import ASK, FILL, INSTALL, MEASURE, REPAIR, RUN, WATCH, GroupedHelp
from flows.cli.install import INSTALLING
from flows.cli.learned import induce, library, suggest
from flows.cli.make import bench_app, train_app
from flows.cli.measure import evaluate_app
from flows.cli.operate import COMMANDS
from flows.cli.options import print_json, require_command, root_of
from flows.cli.printing import run as printing
from flows.cli.printing.cost import print_cost
from flows.cli.query import compose, diff, page, search, show
from flows.cli.sources import sources_app
from flows.settings import load_settings, unknown_settings
from storage.errors import WrongInput

if TYPE_CHECKING:
    from flows.settings import Stage

app = typer.Typer(
    cls=GroupedHelp, invoke_without_command=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

app.add_typer(sources_app, name="sources", rich_help_panel=FILL)
app.add_typer(evaluate_app, name="evaluate", rich_help_panel=MEASURE)
app.add_typer(bench_app, name="bench", rich_help_panel=MEASURE)
app.add_typer(train_app, name="train", rich_help_panel=MEASURE)

for asking in (search, page, show, diff, compose, suggest, library):
    app.command(rich_help_panel=ASK)(asking)
app.command(rich_help_panel=FILL)(induce)


@app.callback()
def _skillery(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
    _debug: Annotated[bool, Option(DEBUG_OPTION, help="Show the stack of an error; anywhere.")] = False,
    _quiet: Annotated[bool, Option(QUIET_OPTION, help="Show no progress; anywhere.")] = False,
) -> None:
    """Skillery, the refinery for agent skills."""
    if version:
        typer.echo(f"skillery {metadata.version('skillery')}")
        raise typer.Exit
    require_command(context)
    refuse_deleted_settings(os.environ)
    printing.print_unknown(unknown_settings())


@app.command(help=RUN, rich_help_panel=FILL)
def run(
    source: Annotated[list[str] | None, Option(metavar="SPEC", help="As listed above; repeatable.")] = None,
    limit: Annotated[
        int | None, Option(metavar="N", min=1, help="Read the first N documents of each source.")
    ] = None,
    index: opt.IndexOption = "all",
    dry_run: opt.DryRunOption = False,
    wait: opt.WaitOption = 0,
    _preset: opt.PresetOption = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Crawl, refine, parse, index, check and publish, in this process."""
    settings = load_settings()
    if dry_run:
        from flows.commands.runs import foresee_run  # noqa: PLC0415

        cost = foresee_run(root_of(settings, root), source, limit, index)
        print_json(cost) if as_json else print_cost(cost)
        return
    from flows.commands.runs import run_nightly  # noqa: PLC0415 (Prefect: seconds and megabytes, which only runs pay)

    record = run_nightly(root_of(settings, root), source, limit, index, wait)
    print_json(record) if as_json else printing.print_run(record)
    raise typer.Exit(0 if record["state"] in ("complete", "partial") else 1)


@app.command(rich_help_panel=WATCH)
def status(
    max_age: Annotated[
        float | None,
        Option(metavar="HOURS", help="End with 1 if the last good night is longer ago than that."),
    ] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Show what is served, how old it is, and how the last runs went."""
    from flows.commands.operate import root_status  # noqa: PLC0415

    if max_age is not None and not max_age >= 0:
        raise WrongInput(f"--max-age {max_age} is no age: give hours, 0 or more")
    found = root_status(root_of(load_settings(), root))
    print_json(found) if as_json else printing.print_status(found)
    # A quiet night publishes nothing: what it found unchanged is as fresh as the night.
    ages = [age for age in (found["age_hours"], found["good_age_hours"]) if age is not None]
    if max_age is not None and (found["served"] is None or min(ages) > max_age):
        raise typer.Exit(1)


@app.command(rich_help_panel=MEASURE)
def classify(
    fragments: Annotated[Path, Argument(metavar="FRAGMENTS", help="JSON lines of fragments.")],
    out: Annotated[Path, Option(help="Where their types go, a line each.")],
    classifier: opt.ClassifierOption = "local",
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Type fragments as step, example, param, precondition, error_handling or concept.

    An LLM is asked about 72 fragments of known type first, unless SKILLERY_LLM_ACCURACY says how often it is
    right. If it is right less often than the local classifier, nothing is typed.
    """
    from flows.commands.classify import classify_file  # noqa: PLC0415

    settings = load_settings()
    found = classify_file(root_of(settings, root), settings, fragments, out, classifier)
    print_json(found) if as_json else printing.print_classified(found)


@app.command(rich_help_panel=ASK)
def graph(
    doc_id: Annotated[str, Argument(metavar="DOC_ID", help="A skill's id, as search prints it.")],
    out: Annotated[Path, Option(help="The picture: a file named .svg.")],
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Draw one skill's graph: its typed nodes in order, and the edges between them."""
    from flows.commands.corpus import draw_graph  # noqa: PLC0415

    settings = load_settings()
    found = draw_graph(root_of(settings, root), settings, doc_id, out)
    print_json(found) if as_json else printing.print_graph(found)


@app.command(rich_help_panel=REPAIR)
def rollback(
    version: Annotated[
        str | None, Argument(metavar="VERSION", help="Its name  [the one before what is served]")
    ] = None,
    wait: opt.WaitOption = 0,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Serve an earlier version again; the one that is served now stays at hand too."""
    from flows.commands.operate import roll_back_root  # noqa: PLC0415

    found = roll_back_root(root_of(load_settings(), root), version, wait)
    print_json(found) if as_json else printing.print_rollback(found)


class _Stage(str, Enum):  # noqa: UP042 (Typer takes no list of literals, and prints a StrEnum otherwise)
    """What a backfill does of each day."""

    refine = "refine"
    parse = "parse"


@app.command(rich_help_panel=REPAIR)
def backfill(
    start: Annotated[str, Option("--from", metavar="DAY", help="First day, YYYY-MM-DD.")],
    end: Annotated[str, Option("--to", metavar="DAY", help="Last day, YYYY-MM-DD.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Tell what it would do, and do nothing.")] = False,
    publish: Annotated[
        bool, Option("--publish", help="Serve the last day's corpus, if it passes the gate.")
    ] = False,
    stage: Annotated[
        list[_Stage] | None, Option(metavar="STAGE", help="Only refine or parse; repeatable  [both]")
    ] = None,
    wait: opt.WaitOption = 0,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Rebuild the corpus of past days from raw snapshots, beside what is served."""
    from flows.commands.runs import foresee_backfill, run_backfill  # noqa: PLC0415

    place, stages = root_of(load_settings(), root), cast("list[Stage]", [one.value for one in stage or ()])
    if dry_run:
        found = foresee_backfill(place, start, end, publish=publish, stages=stages)
    else:
        found = run_backfill(place, start, end, publish=publish, stages=stages, wait=wait)
    print_json({"days": found}) if as_json else printing.print_backfill(found)


@app.command(rich_help_panel=REPAIR)
def doctor(wait: opt.WaitOption = 0, root: opt.RootOption = None, as_json: opt.JsonOption = False) -> None:
    """Find what a crash or a bad disk left, and repair it; end with 1 if something is left."""
    from flows.commands.operate import examine_root  # noqa: PLC0415

    found = examine_root(root_of(load_settings(), root), wait)
    print_json(found) if as_json else printing.print_findings(found)
    raise typer.Exit(0 if found["mended"] else 1)


@app.command(rich_help_panel=REPAIR)
def forget(
    target: Annotated[
        str,
        Argument(metavar="TARGET", help="A document's id, OWNER/REPO, trajectory:ID or learned:SKILL_ID."),
    ],
    dry_run: Annotated[bool, Option("--dry-run", help="Only list what would go.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    wait: opt.WaitOption = 0,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Remove a document, a repository, a run of an agent or a learned skill everywhere, for good.

    It goes from raw, corpus, caches and every version of the index.
    Documents that hold the same text now go too. On a terminal it lists them and asks; elsewhere it needs
    --yes.
    """
    from flows.commands.operate import foresee_forgetting, forget_target  # noqa: PLC0415

    place = root_of(load_settings(), root)
    if dry_run or not yes:
        foreseen = foresee_forgetting(place, target)
        if dry_run:
            print_json(foreseen) if as_json else printing.print_foreseen(foreseen)
            return
        printing.confirm_forgetting(foreseen)
    found = forget_target(place, target, wait)
    print_json(found) if as_json else printing.print_forgotten(found)


@app.command(rich_help_panel=ASK)
def export(
    out: Annotated[Path, Option(help="A folder, empty or not there yet.")],
    form: Annotated[
        Literal["parquet", "jsonl", "folder"], Option("--format", help="How documents are written.")
    ] = "parquet",
    licence: Annotated[
        list[str] | None, Option(metavar="CLASS", help="allow or metadata-only; repeatable  [allow]")
    ] = None,
    root: opt.RootOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Write the clean corpus, as far as licences allow, and a datasheet to a folder."""
    from flows.commands.operate import export_root  # noqa: PLC0415

    settings = load_settings()
    policy = settings.licence_policies()["export"]
    found = export_root(root_of(settings, root), out, form, licence or ["allow"], policy)
    print_json(found) if as_json else printing.print_export(found)


for command, group in {**COMMANDS, **dict.fromkeys(INSTALLING, INSTALL)}.items():
    app.command(rich_help_panel=group)(command)


def main() -> None:
    """Run the command."""
    run_to_exit(app)
