"""What the commands share: options, the root they name, and how an answer is printed."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from flows.commands.console import say_aside
from flows.settings import Index, Settings
from storage.errors import WrongInput
from storage.root import Root

IndexOption = Annotated[Index, Option("--index", help="Whether to index nodes too.")]
RevisionOption = Annotated[
    str | None, Option("--revision", metavar="HASH", help="As it was: a hash, a commit, a day or a run.")
]
DryRunOption = Annotated[
    bool, Option("--dry-run", help="Tell what it would read, make and take, and do nothing.")
]
RootOption = Annotated[
    str | None,
    Option("--root", metavar="FOLDER", help="All that Skillery keeps, or s3://bucket/prefix  [data]"),
]
KindOption = Annotated[
    list[str] | None, Option("--kind", metavar="KIND", help="Only skill or mcp-server; repeatable  [both]")
]
LicenceOption = Annotated[
    list[str] | None,
    Option("--licence", metavar="SPDX", help="Only of this licence, or unknown; repeatable."),
]
FromOption = Annotated[
    list[str] | None,
    Option("--source", metavar="SPEC", help="Only from this source, as status names it; repeatable."),
]
RiskOption = Annotated[
    list[str] | None,
    Option(
        "--risk",
        metavar="CODE",
        help="Only with this risk found, or none; offer.internal finds what is kept back; repeatable.",
    ),
]
MinFitOption = Annotated[
    float | None,
    Option("--min-fit", metavar="P", help="Only skills that serve with at least this probability, 0 to 1."),
]
FormatOption = Annotated[
    Literal["trajectories", "messages", "claude", "codex"],
    Option("--format", help="Of rows: trajectories, messages (OpenAI chats), or sessions of claude, codex."),
]
TrajectoriesArgument = Annotated[
    list[Path], Argument(metavar="TRAJECTORIES", hidden=True)  # its line in the help would name Python's list
]
PublicUrlOption = Annotated[
    str | None,
    Option("--public-url", metavar="URL", help="Where others reach the registry, such as https://HOST."),
]
WaitOption = Annotated[
    float, Option("--wait", metavar="MINUTES", min=0, help="How long to wait for another run that writes.")
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON object.")]


@functools.cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the constants of the papers, by paper and by command.

    `asks` says which models a paper asks, which no setting chooses. `all` holds for every command, and the
    path of a command what holds for it alone. Keys are variables, or options of the command.
    """
    table = resources.files("tasks.evaluate").joinpath("data/presets.json")
    return json.loads(table.read_text("utf-8"))  # type: ignore[no-any-return]


def set_preset(name: str, command: str) -> dict[str, Any]:
    """Set a paper's variables that are not set, print all, and return its values of the command's options.

    `command` is its path, as `evaluate paging`. Raises `WrongInput` if no such preset speaks of the command.
    """
    fitting = [preset for preset, told in presets().items() if command in told]
    if name not in fitting:
        raise WrongInput(f"--preset {name!r} says nothing of {command}: choose one of {', '.join(fitting)}")
    preset = presets()[name]
    wanted = {**preset["all"], **preset[command]}
    say_aside(f"preset {name}; the paper asks {preset['asks']}")
    for key, value in wanted.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if key.startswith("-"):
            say_aside(f"  {key} {text}, unless you give another")
            continue
        own = os.environ.setdefault(key, text)
        say_aside(f"  {key}={text}" if own == text else f"  {key}={own} (yours; the paper's is {text})")
    return {key.strip("-").replace("-", "_"): v for key, v in wanted.items() if key.startswith("-")}


def _preset(context: typer.Context, name: str | None) -> None:
    """Let a paper's constants be the defaults of a command's options, and of its settings."""
    if name is not None:
        program = context.find_root().command_path
        context.default_map = set_preset(name, context.command_path.removeprefix(f"{program} "))


PresetOption = Annotated[
    str | None,
    Option(
        "--preset", metavar="PAPER", callback=_preset, is_eager=True,
        help="Its constants, where you set none: skillpager, skillflow, skillrouter, skillweaver or sgdr.",
    ),
]  # fmt: skip
BatchOption = Annotated[
    Path | None,
    Option(
        "--batch",
        metavar="FILE",
        help="Answer JSON lines {query_id, query}; page adds doc_id; suggest takes task, state, domain.",
    ),
]
AllowErrorsOption = Annotated[
    bool, Option("--allow-errors", help="End with 0 though lines of --batch failed.")
]
OutOption = Annotated[
    Path | None, Option("--out", metavar="FILE", help="Where their answers go, a line each.")
]
BudgetOption = Annotated[
    float | None,
    Option(
        "--budget",
        metavar="NUMBER",
        help="Up to 1 a share of the document's tokens, above 1 a number of tokens.",
    ),
]
RerankOption = Annotated[
    bool, Option("--rerank", help="Let the LLM's judgement count in the default method's scores.")
]
VariantsOption = Annotated[
    list[str] | None,
    Option("--method", metavar="METHOD", help="Repeatable; also a variant, as skillflow:deep_tokens=1024."),
]
SweepsOption = Annotated[
    list[str] | None,
    Option("--sweep", metavar="NAME", help="Variants a paper compares: a wrong name lists all; repeatable."),
]
BaselineOption = Annotated[
    str | None,
    Option(
        "--baseline",
        metavar="METHOD",
        help="The measured method that others are compared with  [zsum, or a sweep's first]",
    ),
]
AgentsOption = Annotated[
    str | None,
    Option(
        "--agents",
        metavar="FILE",
        help="How often would they pass? {agent, without, with}, skillsbench, or llm: measure it.",
    ),
]
DistractorsOption = Annotated[
    Path | None,
    Option("--distractors", help="Skills, as --corpus, that the pool hard has, and easy has not."),
]
ClassifierOption = Annotated[
    str,
    Option(
        "--classifier", metavar="NAME", help="local, llm, or hybrid: the LLM where the local one is unsure."
    ),
]


def root_of(settings: Settings, given: str | None) -> Root:
    """Return the root that was named, else the one of the settings."""
    return Root(given or settings.root)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def given_or_wrong(value: str | None, name: str, instead: str = "") -> str:
    """Return the argument; raises `WrongInput` naming it, and what goes instead, when it is missing."""
    if value is None:
        raise WrongInput(f"{name} is missing: give it{instead}")
    return value


def require_command(context: typer.Context) -> None:
    """Print the help and leave with exit code 2 when no command was named."""
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(2)
