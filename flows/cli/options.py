"""What the commands share: options, the root they name, and how an answer is printed."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root


class IndexMode(str, Enum):  # noqa: UP042 (a StrEnum changes how the option's default is printed)
    """How much of the index a run makes."""

    all = "all"
    skills = "skills"


class BackfillStage(str, Enum):  # noqa: UP042 (as above)
    """What a backfill does of each day."""

    refine = "refine"
    parse = "parse"


class ExportForm(str, Enum):  # noqa: UP042
    """How an export holds its documents."""

    parquet = "parquet"
    jsonl = "jsonl"
    folder = "folder"


class PageForm(str, Enum):  # noqa: UP042
    """How a page is printed."""

    json = "json"
    markdown = "markdown"


RootOption = Annotated[
    str | None,
    typer.Option("--root", help="Folder of all that Skillery keeps, or s3://bucket/prefix [data]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
BatchOption = Annotated[Path | None, typer.Option("--batch", help="JSON lines of queries.")]
AllowErrorsOption = Annotated[
    bool, typer.Option("--allow-errors", help="End with 0 though lines of --batch failed.")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Where their answers go, a line each.")]
BudgetOption = Annotated[
    float | None, typer.Option("--budget", help="Up to 1 a share of the document's tokens, else a number.")
]
RerankOption = Annotated[
    bool, typer.Option("--rerank", help="Have the LLM a say in the default method's scores.")
]
ClassifierOption = Annotated[
    str, typer.Option("--classifier", help="local, llm, or hybrid: the LLM where the local one is unsure.")
]


SPECS = (
    "skillsmp[:QUERY], github:OWNER/REPO[@REF], git+URL[@REF], dir:PATH, parquet:PATH, "
    "awesome:PATH-or-URL, mcp-registry, sample"
)
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", help=f"Where skills come from; repeatable. One of: {SPECS} [the last run's]."),
]
_GROUPS = {
    "Bring in": ("run", "refresh", "backfill", "rebuild"),
    "Ask": ("search", "page", "graph", "export"),
    "Look after": (
        "status",
        "up",
        "settings",
        "doctor",
        "rollback",
        "forget",
        "compact",
        "serve-metrics",
        "alert",
    ),
    "Measure": ("evaluate", "bench", "train", "classify"),
}


class GroupedCommands(TyperGroup):
    """The commands in groups, as `--help` lists them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (classes that typer hides)
        """Write a list for each group, with the first sentence of each command."""
        listed = [name for names in _GROUPS.values() for name in names]
        others = [name for name in self.list_commands(ctx) if name not in listed]
        width = max(len(name) for name in self.commands)
        for title, names in {**_GROUPS, "Others": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            shown = [(f"{n:<{width}}", c.get_short_help_str(80)) for n, c in commands if c and not c.hidden]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


def root_of(settings: Settings, given: str | None) -> Root:
    """Return the root that was named, else the one of the settings."""
    return Root(given or settings.root)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def given_or_wrong(value: str | None, name: str, instead: str = "") -> str:
    """Return the argument; raises `WrongInput` naming it, and what goes instead, when it is missing."""
    if value is None:
        msg = f"{name} is missing: give it{instead}"
        raise WrongInput(msg)
    return value


def require_command(context: typer.Context) -> None:
    """Print the help and leave with exit code 2 when no command was named."""
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(2)
