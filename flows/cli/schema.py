"""The command that prints the schema of each table of a root."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument, Option

from flows.cli.options import JsonOption, print_json
from flows.commands.console import say
from storage.errors import WrongInput


def schema(
    table: Annotated[
        str | None, Argument(metavar="TABLE", help="Its folder below the root  [list all tables]")
    ] = None,
    markdown: Annotated[bool, Option("--markdown", help="As tables of Markdown, columns and all.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the tables that lie on disk, and the columns of each with type, unit and meaning."""
    from flows.commands.open_formats.schema import schema_told  # noqa: PLC0415

    if as_json and markdown:
        raise WrongInput("--json and --markdown are two forms of one answer: give one of them")
    found = schema_told(table)
    if as_json:
        print_json(found)
    else:
        _print(found, whole=table is not None or markdown, markdown=markdown)


_WIDE = 21  # the widest name of a table, and a blank


def _print(found: dict[str, Any], *, whole: bool, markdown: bool = False) -> None:
    """Print what `schema_told` returns, for a person or as Markdown; not `whole`: what each table holds."""
    for one in found["tables"]:
        if not whole:
            say(one["holds"], indent=_WIDE, mark=one["table"].ljust(_WIDE))
        elif markdown:
            _print_markdown(one)
        else:
            say(f"{one['table']}: {one['holds']}", style="bold")
            for column in one["columns"]:
                say(f"{column['column']}: {', '.join(_facts(column))}", indent=2)
                say(column["meaning"], indent=4)


def _facts(column: dict[str, Any]) -> list[str]:
    unit = [f"in {column['unit']}"] if column["unit"] else []
    null = ["may be null"] if column["nullable"] else []
    return [column["type"], *unit, *null, f"since schema version {column['since']}"]


def _print_markdown(one: dict[str, Any]) -> None:
    typer.echo(f"## {one['table']}\n\n{one['holds']}\n")
    typer.echo("| column | type | unit | null | since | meaning |\n|---|---|---|---|---|---|")
    for column in one["columns"]:
        null, unit = "yes" if column["nullable"] else "no", column["unit"] or ""
        cells = (f"`{column['column']}`", f"`{column['type']}`", unit, null, column["since"])
        typer.echo(f"| {' | '.join(map(str, cells))} | {column['meaning']} |")
    typer.echo("")
