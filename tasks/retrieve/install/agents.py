"""The agents that read folders of skills: where each has them in a project, and in a user's home."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from storage.errors import WrongInput

# Of each agent, the folder in a project and the one in a user's home; many share one of a project.
FOLDERS: dict[str, tuple[str, str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "agents.json").read_text("utf-8")
)
# Where variables move what an agent, or all that keep to XDG, have in a user's home.
_MOVED = {
    ".claude": "CLAUDE_CONFIG_DIR",
    ".grok": "GROK_HOME",
    ".hermes": "HERMES_HOME",
    ".config": "XDG_CONFIG_HOME",
}
_FIRST = ("claude", "codex", "cursor", "gemini", "copilot")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a person wants skills: a folder `to`, or that of an agent, in the user's home or the project.

    Raises `WrongInput` if no agent of this name is known.
    """

    to: Path | None = None
    agent: str | None = None
    user: bool = False

    def __post_init__(self) -> None:
        if self.agent is not None and self.agent not in FOLDERS:
            known = ", ".join((*_FIRST, *sorted(FOLDERS.keys() - {*_FIRST})))
            raise WrongInput(f"--agent {self.agent!r} has no folder that is known: name one of {known}")

    def folder(self, *, installed: bool = False) -> Path:
        """Return the folder of skills.

        `to` comes first, then the agent's. Without both it is the one folder of an agent that is there.
        Raises `WrongInput` if there is no such folder, or several. `installed` says whether folders in which
        something is installed come before others then.
        """
        from tasks.retrieve.install.lock import LOCK_FILE  # noqa: PLC0415

        if self.to is not None:
            return self.to.expanduser().absolute()
        base = Path.home() if self.user else Path.cwd()
        places = {agent: base / folders[self.user] for agent, folders in FOLDERS.items()}
        if self.user:
            places = {agent: _moved(base, folders[1]) for agent, folders in FOLDERS.items()}
            if installed and not (places["codex"] / LOCK_FILE).exists():
                old = base / ".codex/skills"  # where older versions installed for Codex, which reads it still
                places["codex"] = old if (old / LOCK_FILE).exists() else places["codex"]
        if self.agent is not None:
            return places[self.agent]
        # A folder that several share is named by the first of them.
        named: dict[Path, str] = {}
        for agent, place in places.items():
            named.setdefault(place, agent)
        found = {agent: place for place, agent in named.items() if place.is_dir()}
        locked = {agent: place for agent, place in found.items() if (place / LOCK_FILE).exists()}
        found = locked if installed and locked else found
        if len(found) != 1:
            said = f"{', '.join(found)} have one" if found else f"none of {', '.join(_FIRST)} has one"
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
    top, _, rest = folder.partition("/")
    return Path(os.environ.get(_MOVED.get(top, "")) or home / top) / rest
