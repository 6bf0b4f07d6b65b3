"""Helps of the command: commands stand in their groups, each with its whole first sentence."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from typer.core import TyperGroup

# The groups of `skillery --help`, in its order.
ASK, INSTALL, FILL, REPAIR, WATCH, MEASURE = (
    "Ask what is served",
    "Install skills into the folder of an agent",
    "Read sources, and serve what changed",
    "Go back, rebuild, repair and remove",
    "Watch and set up",
    "Measure, and train",
)
_ORDER = (ASK, INSTALL, FILL, REPAIR, WATCH, MEASURE)
# Lines below a \b stay as they are; the forms are those of `tasks.crawl.sources`, which queries do not load.
SOURCE_FORMS = """\
\b
A source is given as one of these:
  dir:PATH or ./PATH               every skill of a folder
  github:OWNER/REPO or OWNER/REPO  every skill of a GitHub repository; @REF
                                   after it names a branch, tag or commit
  git+URL                          every skill of a git repository; @REF too
  parquet:PATH                     a table with id (or doc_id) and content
  skillsmp or skillsmp:QUERY       what the SkillsMP marketplace lists
  well-known:URL                   what a site lists under /.well-known
  marketplace:OWNER/REPO or URL    plugins' skills, for Claude Code or Codex
  clawhub or clawhub:QUERY         what ClawHub lists
  skillssh:QUERY                   what skills.sh finds, with a token of yours
  mcp:URL or mcp:stdio:COMMAND     what an MCP server lists as skills
  awesome:PATH or awesome:URL      a list of MCP servers, in Markdown
  mcp-registry                     the registry of MCP servers
  sample                           the 32 skills that come with Skillery
"""
RUN = f"""\
Run a night: read the sources, process what changed, check it and serve it.

{SOURCE_FORMS}
Without --source it reads all that `skillery sources` lists, and at first the
sample. With --source it reads only these, and adds them to that list.
"""


class _Formatter(Protocol):
    """What is used of Click's formatter, whose class Typer does not export."""

    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None: ...


class GroupedHelp(TyperGroup):
    """A group whose help lists commands by their `rich_help_panel`, in whole sentences.

    Typer cuts the sentence of a command off where the line ends, and groups commands in boxes alone.
    """

    def format_commands(self, ctx: object, formatter: _Formatter) -> None:  # noqa: ARG002 (Click gives it)
        """Write the commands, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            title = getattr(command, "rich_help_panel", None)
            sentence = " ".join((command.help or "").partition("\n\n")[0].split())
            groups.setdefault(title if title in _ORDER else "Commands", []).append((name, sentence))
        widest = max(map(len, self.commands))
        for title in sorted(groups, key=[*_ORDER, "Commands"].index):
            with formatter.section(title):
                # Groups have one column of names: each alone would have its own.
                formatter.write_dl([(name.ljust(widest), sentence) for name, sentence in groups[title]])
