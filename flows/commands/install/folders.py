"""The folders in which agents look for skills, and the choice of one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from storage.errors import WrongInput
from tasks.retrieve.install.lock import LOCK_FILE


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
    Agent.codex: (".agents/skills", ".codex/skills"),
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
        if self.to is not None:
            return self.to.expanduser().absolute()
        base = Path.home() if self.user else Path.cwd()
        places = {agent: base / folders[self.user] for agent, folders in FOLDERS.items()}
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
