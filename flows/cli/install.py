"""The commands that install for an agent: skills in its folder, kept up to date, and a hook of its host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import JsonOption, MinFitOption, RootOption, print_json, root_of
from flows.cli.printing import skill as printing
from flows.hook.run import Options, answer_prompt
from flows.settings import load_settings
from storage.errors import WrongInput


class Agent(str, Enum):  # noqa: UP042 (a StrEnum changes how an option's default is printed)
    """An agent that reads folders of skills."""

    claude = "claude"
    codex = "codex"
    cursor = "cursor"
    gemini = "gemini"
    copilot = "copilot"


# Of each agent, the folder in a project and the one in a user's home.
FOLDERS = {
    Agent.claude: (".claude/skills", ".claude/skills"),
    Agent.codex: (".agents/skills", ".agents/skills"),
    Agent.cursor: (".cursor/skills", ".cursor/skills"),
    Agent.gemini: (".gemini/skills", ".gemini/skills"),
    Agent.copilot: (".github/skills", ".copilot/skills"),
}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a person wants skills: a folder `to`, or that of an agent, in the user's home or the project."""

    to: Path | None = None
    agent: Agent | None = None
    user: bool = False

    def folder(self, *, installed: bool = False) -> Path:
        """Return the folder of skills.

        `to` comes first, then the agent's. Without both it is the one folder of an agent that is there.

        Args:
            installed: Whether folders in which something is installed come before others then.

        Raises:
            WrongInput: There is no such folder, or several.
        """
        from tasks.retrieve.install.lock import LOCK_FILE  # noqa: PLC0415

        if self.to is not None:
            return self.to.expanduser().absolute()
        base = Path.home() if self.user else Path.cwd()
        places = {agent: base / folders[self.user] for agent, folders in FOLDERS.items()}
        if self.user:
            places[Agent.claude] = Path(os.environ.get("CLAUDE_CONFIG_DIR") or base / ".claude") / "skills"
            if installed and not (places[Agent.codex] / LOCK_FILE).exists():
                old = base / ".codex/skills"  # where older versions installed for Codex, which reads it still
                places[Agent.codex] = old if (old / LOCK_FILE).exists() else places[Agent.codex]
        if self.agent is not None:
            return places[self.agent]
        found = {agent: place for agent, place in places.items() if place.is_dir()}
        locked = {agent: place for agent, place in found.items() if (place / LOCK_FILE).exists()}
        found = locked if installed and locked else found
        if len(found) != 1:
            said = f"{_listed(found)} have one" if found else f"none of {_listed(places)} has one"
            msg = (
                f"which folder of skills in {base} is meant? {said}: name one by --agent, or a folder by --to"
            )
            raise WrongInput(msg)
        return next(iter(found.values()))


def _listed(agents: Iterable[Agent]) -> str:
    return ", ".join(agent.value for agent in agents)


_ToOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="PATH", help="The folder of skills; comes before --agent."),
]
_AgentOption = Annotated[
    Agent | None,
    typer.Option("--agent", help="The folder of this agent  [the one agent whose folder is there]"),
]
_UserOption = Annotated[
    bool, typer.Option("--user", help="The agent's folder in your home, not in the project.")
]
_AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept-risk", metavar="RULE", help="Accept what this rule finds now; repeatable."),
]
_PublisherOption = Annotated[
    bool, typer.Option("--accept-publisher", help="Also from another publisher than the lock names.")
]


def install(
    doc_ids: Annotated[list[str], typer.Argument(metavar="DOC_ID", hidden=True)],
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    revision: Annotated[
        str | None,
        typer.Option("--revision", metavar="HASH", help="As it was: a hash, a commit, a day or a run."),
    ] = None,
    accept_risk: _AcceptOption = None,
    accept_publisher: _PublisherOption = False,
    called: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The folder of the one skill  [its name]")
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install skills, with their files, into the folder of an agent.

    DOC_ID is an id, the end of one, or a name. Each skill is a folder under its name; skillery.lock beside
    them says what was installed, from where. Nothing is executed, and no file is executable. A skill with
    risks of a class in SKILLERY_INSTALL_REFUSE is refused unless each rule is accepted. What was edited by
    hand, or is not from Skillery, is never overwritten.
    """
    from flows.commands.installing import install_skills, load_installing  # noqa: PLC0415
    from flows.commands.usage import note_once  # noqa: PLC0415

    settings = load_settings()
    place, folder = root_of(settings, root), Destination(to, agent, user).folder()
    if called is not None and len(doc_ids) != 1:
        msg = f"--as {called} names the folder of one skill: give one DOC_ID"
        raise WrongInput(msg)
    found = install_skills(
        place, folder, doc_ids, revision, accept_risk or [], load_installing(),
        any_publisher=accept_publisher, called=called,
    )  # fmt: skip
    note_once(place, settings, "command", "install", [skill["doc_id"] for skill in found["skills"]])
    print_json(found) if as_json else printing.print_installed(found)


def outdated(
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which installed skills the corpus holds otherwise by now, and which were edited.

    It completes, or undoes, what a killed command left, and says so.
    """
    from flows.commands.updating import outdated_skills  # noqa: PLC0415

    folder = Destination(to, agent, user).folder(installed=True)
    found = outdated_skills(root_of(load_settings(), root), folder)
    print_json(found) if as_json else printing.print_outdated(found)


def update(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", hidden=True)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the differences, and write nothing.")
    ] = False,
    theirs: Annotated[
        bool, typer.Option("--theirs", help="Take the corpus's where you changed the same lines.")
    ] = False,
    ours: Annotated[
        bool, typer.Option("--ours", help="Keep yours where you changed the same lines.")
    ] = False,
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    accept_risk: _AcceptOption = None,
    accept_publisher: _PublisherOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put what the corpus holds now in place of installed skills, and show the differences.

    NAME is a folder's name or an id; without one, all are updated, those installed with --revision too. Into
    what was edited by hand it is merged by lines; where both changed the same lines it stays, and NAME.rej
    beside it lists them. What is refused, or gone from the corpus, stays too; then it ends with 1, and says
    why.
    """
    from flows.commands.installing import load_installing  # noqa: PLC0415
    from flows.commands.updating import DONE, update_skills  # noqa: PLC0415

    place, folder = root_of(load_settings(), root), Destination(to, agent, user).folder(installed=True)
    if theirs and ours:
        msg = "--theirs and --ours exclude each other: give one of them"
        raise WrongInput(msg)
    prefer = "theirs" if theirs else "ours" if ours else None
    how: dict[str, Any] = {"dry_run": dry_run, "any_publisher": accept_publisher, "prefer": prefer}
    found = update_skills(place, folder, names or [], accept_risk or [], load_installing(), **how)
    print_json(found) if as_json else printing.print_updated(found)
    raise typer.Exit(0 if all(skill["state"] in DONE for skill in found["skills"]) else 1)


def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME", hidden=True)],
    yes: Annotated[
        bool, typer.Option("--yes", help="Also what was edited by hand: the edits are lost.")
    ] = False,
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove installed skills; one that was edited by hand stays unless --yes is given.

    NAME is a folder's name or an id.
    """
    from flows.commands.installing import remove_skills  # noqa: PLC0415

    found = remove_skills(Destination(to, agent, user).folder(installed=True), names, edited=yes)
    print_json(found) if as_json else printing.print_removed(found)


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


INSTALLING: tuple[Callable[..., None], ...] = (install, outdated, update, remove, hook, plugin)
