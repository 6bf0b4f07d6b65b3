"""The project that skills lie in, by files at its root: which of them are installed copies, its licence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from storage.schemas import Dropped
from tasks.crawl.http.responses import json_object
from tasks.crawl.source.bundle import BundledSkill
from tasks.models.fields import mapping_of

LOCK, PLUGIN = PROJECT_FILES = ("skills-lock.json", "plugin.json")
PROJECT_BYTES = 2_000_000  # of such a file
_LONGEST_LICENCE = 200  # characters; it is kept with each skill
_PLUGIN_SCHEMA = "https://agent-plugins.org/schemas/"  # of Agent Plugins; its version stands behind it
# A folder of an agent: `.claude/skills/x`, `.agents/skills/x`, `.codeium/windsurf/skills/x`.
_AGENT = re.compile(r"\.[^/]+/(?:[^/]+/)?skills/([^/]+)")


class Project(NamedTuple):
    """What files at the root of a folder or repository say of the skills in it."""

    copies: frozenset[str] = frozenset()  # names of the skills that were installed into it
    licence: str | None = None  # that the plugin states which it is


def project_of(files: Mapping[str, bytes]) -> Project:
    """Return what those of `PROJECT_FILES` say that are there; one of another form says nothing."""
    plugin = json_object(files.get(PLUGIN, b""))
    ours = str(plugin.get("$schema")).startswith(_PLUGIN_SCHEMA)
    return Project(
        _locked(json_object(files.get(LOCK, b""))), stated_licence(plugin.get("license")) if ours else None
    )


def stated_licence(value: object) -> str | None:
    """Return the licence that a manifest states; None if it is no text, or longer than any expression."""
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_LICENCE else None


def _locked(lock: Mapping[str, Any]) -> frozenset[str]:
    names = mapping_of(lock.get("skills") if lock.get("version") == 1 else None)
    # A skill that lies in the project is installed from itself: it is the source.
    local = {name for name, row in names.items() if mapping_of(row).get("sourceType") == "local"}
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
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")
