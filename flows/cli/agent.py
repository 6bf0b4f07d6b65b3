"""The commands for an agent's host: the hook that it runs at every prompt, and the plugin that names it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import JsonOption, MinFitOption, RootOption, print_json, root_of
from flows.hook.run import Options, answer_prompt
from flows.settings import load_settings


class Host(str, Enum):  # noqa: UP042 (a StrEnum changes how the option's default is printed)
    """An agent that runs hooks."""

    claude = "claude"
    codex = "codex"
    gemini = "gemini"


_HostOption = Annotated[Host, typer.Option("--agent", help="Whose events are read and answered.")]
_UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="A running serve  [the one that runs for the root]"),
]


def hook(
    agent: _HostOption,
    url: _UrlOption = None,
    min_fit: MinFitOption = None,
    budget: Annotated[
        int, typer.Option("--budget", metavar="N", min=1, help="Tokens that are told, at most.")
    ] = 400,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="After which nothing is told.")
    ] = 2.0,
    root: RootOption = None,
) -> None:
    """Answer a prompt's event of an agent's host with facts on skills that fit it.

    The event is JSON on standard input. Told are the part of the best skill that the prompt needs, or the
    names of up to three, and whose they are; nothing where none fits, or a session was told before. Without
    --url it asks the server that runs for the root, else it answers by itself. It ends with 0 whatever goes
    wrong, and says why on stderr.
    """
    answer_prompt(Options(agent.value, url, root or "", min_fit, budget, timeout))


def plugin(
    agent: _HostOption,
    out: Annotated[Path, typer.Option("--out", help="A folder, empty or not there yet.")],
    url: _UrlOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the plugin of an agent's host: the hook, the MCP server, a README.

    It prints the command that installs it, and the one that removes it.
    """
    from flows.hook.plugin import write_plugin  # noqa: PLC0415

    found = write_plugin(agent.value, out, root=root_of(load_settings(), root).uri, url=url)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['out']} holds the plugin for {found['agent']}, version {found['version']}")
    typer.echo(f"install it:  {found['install']}\nremove it:   {found['remove']}")
