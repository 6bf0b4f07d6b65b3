"""Print the schema of the tables of a root, for a person or as Markdown."""

from __future__ import annotations

from typing import Any

import typer

from flows.commands.console import say

_WIDE = 21  # the widest name of a table, and a blank


def print_schema(found: dict[str, Any], *, whole: bool, markdown: bool = False) -> None:
    """Print what `flows.commands.schema.schema_told` returns; not `whole`: what each table holds alone."""
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
