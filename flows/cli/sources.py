"""The commands `skillery sources [add|remove]`: which sources a run reads, and in which state they are."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument, Option

from flows.cli.helps import SOURCE_FORMS, GroupedHelp
from flows.cli.options import JsonOption, RootOption, WaitOption, print_json, root_of
from flows.commands.console import minute, say, table
from flows.settings import load_settings
from storage.errors import WrongInput

sources_app = typer.Typer(cls=GroupedHelp, invoke_without_command=True, rich_markup_mode=None)


@sources_app.callback()
def list_all(context: typer.Context, root: RootOption = None, as_json: JsonOption = False) -> None:
    """List the sources that a run reads, with their state; add and remove them."""
    from flows.commands.operate import source_rows  # noqa: PLC0415

    if context.invoked_subcommand is not None:
        if root is not None or as_json:
            msg = f"options stand after the command: skillery sources {context.invoked_subcommand} --root ..."
            raise WrongInput(msg)
        return
    rows = source_rows(root_of(load_settings(), root))
    print_json({"sources": rows}) if as_json else _print_sources(rows)


@sources_app.command(help=f"Add a source: every run without --source reads it.\n\n{SOURCE_FORMS}")
def add(
    spec: Annotated[str, Argument(metavar="SPEC", help="The source, as listed above.")],
    wait: WaitOption = 0,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a source."""
    from flows.commands.operate import add_source  # noqa: PLC0415

    found = add_source(root_of(load_settings(), root), spec, wait)
    if as_json:
        print_json(found)
        return
    say(f"{found['source']}: {'added; the next run reads it' if found['added'] else 'is listed already'}")


@sources_app.command()
def remove(
    spec: Annotated[str, Argument(metavar="SPEC", help="The source, as the list names it.")],
    retire: Annotated[
        bool, Option("--retire", help="Retire its documents too, but for those that others have.")
    ] = False,
    wait: WaitOption = 0,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a source: no run reads it any more, and its documents stay."""
    from flows.commands.operate import remove_listed  # noqa: PLC0415

    found = remove_listed(root_of(load_settings(), root), spec, wait, retire=retire)
    print_json(found) if as_json else _print_removed(found)


def _print_sources(rows: list[dict[str, Any]]) -> None:
    """Print a row a source, and below them why sources are stale or were never read."""
    cells = [[r["source"], r["state"], r["documents"], (minute(r["last_complete"]) or "never")] for r in rows]
    table("sources", ["spec", "state", "documents", "read whole at"], cells)
    for row in rows:
        since = f"stale since {minute(row['stale_since'])}: " if row["stale_since"] else ""
        if since or (row["message"] and row["state"] == "unlisted"):
            say(f"{since}{row['message']}", style="red" if since else None)
    if any(row["state"] == "unlisted" for row in rows):
        say("no run reads an unlisted source; skillery sources add SPEC lists it")
    if not rows:
        say("none yet: skillery sources add SPEC adds one; a run of an empty root reads the sample")


def _print_removed(found: dict[str, Any]) -> None:
    say(f"{found['source']}: {'removed' if found['removed'] else 'is on the list no more'}")
    if found["documents"]:
        say(f"{found['documents']} documents stay; with --retire they go")
    if found["retired"]:
        say(f"{found['retired']} documents retire with the next run, but for those that another source has")
        say("the gate may find this too great a loss: SKILLERY_GATE_MAX_SHRINK=1 allows it to that run")
