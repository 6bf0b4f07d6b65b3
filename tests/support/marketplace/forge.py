"""What the API, the archive host and the host of raw files have in common: who may be told what."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.marketplace.messages import Reply, json_reply, text_reply
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World


@dataclass(frozen=True, slots=True)
class Place:
    """A repository found by its name, and whether the name is an old one."""

    repository: Repository
    moved: bool


def locate(world: World, owner: str, repo: str) -> Place | None:
    """Return the repository of this name unless it is hidden; blocked ones are found."""
    found, moved = world.find(f"{owner}/{repo}")
    return Place(found, moved) if found and found.fate not in {"private", "deleted"} else None


def blocked_text(repository: Repository) -> Reply | None:
    """Return how a host of files refuses a repository, None where it does not."""
    if repository.fate == "dmca":
        return text_reply("Repository unavailable due to a DMCA takedown notice.", 403)
    if repository.fate == "denied":
        return text_reply("Forbidden", 403)
    return text_reply("Unavailable For Legal Reasons", 451) if repository.fate == "blocked" else None


def blocked_json(repository: Repository) -> Reply | None:
    """Return how the API refuses a repository, None where it does not."""
    if repository.fate == "dmca":
        block = {"reason": "dmca", "created_at": "2026-01-05T10:00:00Z", "html_url": None}
        return json_reply({"message": "Repository access blocked", "block": block}, 403)
    if repository.fate == "denied":
        return json_reply({"message": "Forbidden", "status": "403"}, 403)
    if repository.fate == "blocked":
        block = {"reason": "legal", "created_at": "2026-01-05T10:00:00Z", "html_url": None}
        return json_reply({"message": "Repository access blocked", "block": block}, 451)
    return None


def not_found() -> Reply:
    return json_reply({"message": "Not Found", "documentation_url": "", "status": "404"}, 404)
