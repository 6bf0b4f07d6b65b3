"""The agents that read folders of skills: where each has them in a project, and in a user's home."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from storage.errors import WrongInput


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
            said = f"{_listed(found)} have one" if found else f"none of {_listed(_FIRST)} has one"
            raise WrongInput(
                f"which folder of skills in {base} is meant? {said}: name one by --agent, or a folder by --to"
            )
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
