"""Copies that an installer left in a repository, as its own lock tells: they are no source of a skill."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from storage.schemas import Dropped
from tasks.crawl.source.bundle import BundledSkill

LOCK = "skills-lock.json"
LOCK_BYTES = 2_000_000
# A folder of an agent: `.claude/skills/x`, `.agents/skills/x`, `.codeium/windsurf/skills/x`.
_AGENT = re.compile(r"\.[^/]+/(?:[^/]+/)?skills/([^/]+)")


def locked_names(lock: bytes) -> frozenset[str]:
    """Return the names of the skills that a `skills-lock.json` says were installed; none if it is no such."""
    try:
        found = json.loads(lock)
    except (ValueError, RecursionError):
        return frozenset()
    skills = found.get("skills") if isinstance(found, dict) and found.get("version") == 1 else None
    names = skills if isinstance(skills, dict) else {}
    # A skill that lies in the project is installed from itself: it is the source.
    local = {
        name for name, row in names.items() if isinstance(row, dict) and row.get("sourceType") == "local"
    }
    return frozenset(map(_folder_name, names.keys() - local))


def without_copies(
    rows: Iterable[BundledSkill | Dropped], names: frozenset[str], source: str
) -> Iterator[BundledSkill | Dropped]:
    """Yield the rows of a repository; a skill in an agent's folder that has one of the names is dropped."""
    for row in rows:
        folder = row.entry.folder if names and isinstance(row, BundledSkill) else ""
        match = _AGENT.fullmatch(folder)
        if isinstance(row, BundledSkill) and match and _folder_name(match[1]) in names:
            # `lost_to`, without which it would be kept as one that could not be read.
            why = f"{LOCK} of the repository names it"
            yield Dropped(row.doc_id, source, "installed-copy", why, lost_to=row.doc_id)
        else:
            yield row


def _folder_name(name: str) -> str:
    """Return the folder of a skill as installers name it."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")
