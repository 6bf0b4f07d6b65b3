"""The commands that install skills into the folder of an agent: install, verify, outdated, update, remove."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import JsonOption, RootOption, print_json, root_of
from flows.cli.printing import skill as printing
from flows.settings import load_settings
from storage.errors import WrongInput
from storage.root import Root


class Agent(str, Enum):  # noqa: UP042 (a StrEnum changes how an option's default is printed)
    """An agent that reads folders of skills."""

    claude = "claude"
    codex = "codex"
    cursor = "cursor"
    gemini = "gemini"
    copilot = "copilot"
    amp = "amp"
    antigravity = "antigravity"
    cline = "cline"
    continue_ = "continue"
    crush = "crush"
    devin = "devin"
    droid = "droid"
    goose = "goose"
    grok = "grok"
    hermes = "hermes"
    junie = "junie"
    kilo = "kilo"
    kimi = "kimi"
    kiro = "kiro"
    openclaw = "openclaw"
    opencode = "opencode"
    pi = "pi"
    qwen = "qwen"
    replit = "replit"
    roo = "roo"
    trae = "trae"
    universal = "universal"
    warp = "warp"
    windsurf = "windsurf"
    zed = "zed"


_SHARED = ".agents/skills"  # of a project, for all agents that follow the convention
# Of each agent, the folder in a project and the one in a user's home.
FOLDERS = {
    Agent.claude: (".claude/skills", ".claude/skills"),
    Agent.codex: (_SHARED, _SHARED),
    Agent.cursor: (".cursor/skills", ".cursor/skills"),
    Agent.gemini: (".gemini/skills", ".gemini/skills"),
    Agent.copilot: (".github/skills", ".copilot/skills"),
    Agent.antigravity: (_SHARED, ".gemini/antigravity/skills"),
    Agent.droid: (_SHARED, ".factory/skills"),
    Agent.kilo: (_SHARED, ".kilo/skills"),
    Agent.opencode: (_SHARED, ".config/opencode/skills"),
    Agent.openclaw: ("skills", ".openclaw/skills"),
    Agent.windsurf: (".windsurf/skills", ".codeium/windsurf/skills"),
    Agent.crush: (".crush/skills", ".config/crush/skills"),
    Agent.devin: (".devin/skills", ".config/devin/skills"),
    Agent.goose: (".goose/skills", ".config/goose/skills"),
    **{Agent(name): (_SHARED, _SHARED) for name in ("cline", "kimi", "pi", "warp", "zed")},
    **{Agent(name): (_SHARED, ".config/agents/skills") for name in ("amp", "replit", "universal")},
    **{
        Agent(name): (f".{name}/skills", f".{name}/skills")
        for name in ("continue", "grok", "hermes", "junie", "kiro", "qwen", "roo", "trae")
    },
}
# Where variables move what an agent, or all that keep to XDG, have in a user's home.
_MOVED = {
    ".claude": "CLAUDE_CONFIG_DIR",
    ".grok": "GROK_HOME",
    ".hermes": "HERMES_HOME",
    ".config": "XDG_CONFIG_HOME",
}
_FIRST = (Agent.claude, Agent.codex, Agent.cursor, Agent.gemini, Agent.copilot)


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
            places = {agent: _moved(base, folders[1]) for agent, folders in FOLDERS.items()}
            if installed and not (places[Agent.codex] / LOCK_FILE).exists():
                old = base / ".codex/skills"  # where older versions installed for Codex, which reads it still
                places[Agent.codex] = old if (old / LOCK_FILE).exists() else places[Agent.codex]
        if self.agent is not None:
            return places[self.agent]
        # A folder that several share is named by the first of them.
        own = {place: agent for agent, place in reversed(places.items())}
        found = {agent: place for place, agent in reversed(own.items()) if place.is_dir()}
        locked = {agent: place for agent, place in found.items() if (place / LOCK_FILE).exists()}
        found = locked if installed and locked else found
        if len(found) != 1:
            said = f"{_listed(found)} have one" if found else f"none of {_listed(_FIRST)} and others has one"
            msg = (
                f"which folder of skills in {base} is meant? {said}: name one by --agent, or a folder by --to"
            )
            raise WrongInput(msg)
        return next(iter(found.values()))

    def project(self) -> Path | None:
        """Return where the lock that clients share lies; in a user's home there is none."""
        if self.user:
            return None
        if self.to is None:
            return Path.cwd()
        folder = self.to.expanduser().absolute()
        places = (place for place, _ in FOLDERS.values() if "/" in place)
        ends = (place for place in places if folder.as_posix().endswith(f"/{place}"))
        return next((folder.parents[place.count("/")] for place in ends), folder)


def _moved(home: Path, folder: str) -> Path:
    """Return the folder of an agent in a home, where variables may have moved it."""
    top, _, rest = folder.partition("/")
    return Path(os.environ.get(_MOVED.get(top, "")) or home / top) / rest


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
    doc_ids: Annotated[list[str] | None, typer.Argument(metavar="DOC_ID", hidden=True)] = None,
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
    registry: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="From this registry, where DOC_ID is a name in it."),
    ] = None,
    frozen: Annotated[
        bool,
        typer.Option("--frozen", help="Exactly what the locks say, without DOC_ID; else it ends with 1."),
    ] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install skills, with their files, into the folder of an agent.

    DOC_ID is an id, the end of one, or a name. Each skill is a folder under its name; skillery.lock beside
    them says what was installed, from where, and skills-lock.json in the project says it to other clients.
    Nothing is executed, and no file is executable. A skill with risks of a class in SKILLERY_INSTALL_REFUSE
    is refused unless each rule is accepted. What was edited by hand, or is not from Skillery, is never
    overwritten.
    """
    from flows.commands.installing import install_skills, load_installing  # noqa: PLC0415

    settings, where = load_settings(), Destination(to, agent, user)
    place, ids = root_of(settings, root), doc_ids or []
    if frozen:
        _frozen(place, where, ids, as_json=as_json)
        return
    if not ids or (called is not None and len(ids) != 1):
        said = "DOC_ID is missing" if not ids else f"--as {called} names the folder of one skill"
        raise WrongInput(f"{said}: give {'one' if ids else 'ids or names'}")
    if registry is not None and revision is not None:
        raise WrongInput("--revision is one of a root's: a registry of --from has each skill as it is now")
    folder, brought = where.folder(), None
    if registry is not None:
        from flows.commands.registries import editions_from  # noqa: PLC0415

        brought = editions_from(place, settings, registry, ids)
    found = install_skills(
        place, folder, ids, revision, accept_risk or [], load_installing(),
        any_publisher=accept_publisher, called=called, project=where.project(), brought=brought,
    )  # fmt: skip
    print_json(found) if as_json else printing.print_installed(found)


def _frozen(root: Root, where: Destination, ids: Sequence[str], *, as_json: bool) -> None:
    """Install what the locks say, and end with 1 where one skill cannot be had so."""
    from flows.commands.installing import load_installing  # noqa: PLC0415
    from flows.commands.verifying import install_frozen  # noqa: PLC0415

    if ids:
        raise WrongInput(f"--frozen installs what the locks say: leave out {ids[0]!r}")
    folder = where.folder(installed=True)
    found = install_frozen(root, folder, where.project(), load_settings(), load_installing())
    print_json(found) if as_json else printing.print_frozen(found)
    raise typer.Exit(int(any(skill["state"] == "failed" for skill in found["skills"])))


def verify(
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare every file of installed skills with the locks, offline; end with 1 on any difference.

    What lies in the folder and is in no lock is a difference too, and so is a file that may be executed.
    """
    from flows.commands.verifying import verify_skills  # noqa: PLC0415

    where = Destination(to, agent, user)
    project = where.project()
    others = [] if project is None else [project / place for place, _ in FOLDERS.values()]
    found = verify_skills(where.folder(installed=True), project, others)
    print_json(found) if as_json else printing.print_verified(found)
    raise typer.Exit(0 if found["verified"] else 1)


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
    to: _ToOption = None,
    agent: _AgentOption = None,
    user: _UserOption = False,
    accept_risk: _AcceptOption = None,
    accept_publisher: _PublisherOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put what the corpus holds now in place of installed skills, and show the differences.

    NAME is a folder's name or an id; without one, all are updated, those installed with --revision too. What
    was edited by hand stays, as does what is refused or gone from the corpus; then it ends with 1, and says
    why.
    """
    from flows.commands.installing import load_installing  # noqa: PLC0415
    from flows.commands.updating import DONE, update_skills  # noqa: PLC0415

    place, where = root_of(load_settings(), root), Destination(to, agent, user)
    found = update_skills(
        place, where.folder(installed=True), names or [], accept_risk or [], load_installing(),
        dry_run=dry_run, any_publisher=accept_publisher, project=where.project(),
    )  # fmt: skip
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

    where = Destination(to, agent, user)
    found = remove_skills(where.folder(installed=True), names, edited=yes, project=where.project())
    print_json(found) if as_json else printing.print_removed(found)


INSTALLING: tuple[Callable[..., None], ...] = (install, verify, outdated, update, remove)
