"""The sources that a project's lock names: repositories and folders, each read once for all skills of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain, islice
from pathlib import Path

from storage.errors import SkilleryError, WrongInput
from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.source.identity import hide_credentials
from tasks.crawl.sources import open_source
from tasks.retrieve.install.skills_lock import Entry, folder_hash
from tasks.retrieve.install.verification import skill_files

_DEEPEST, _MOST_LOOKED_INTO = 3, 1_000  # folders below a folder of skills; folders of skills in it
# How a source is read: by the type that the lock gives it.
_SPECS = {
    "github": "github:{source}{at}", "gitlab": "git+https://gitlab.com/{source}{at}", "git": "git+{url}{at}",
}  # fmt: skip


def folder_of(entry: Mapping[str, object]) -> str:
    """Return the folder of a skill within its source; "" is the whole source."""
    return str(entry.get("skillPath", "")).removesuffix("SKILL.md").strip("/")


class LockedSources:
    """Reads what entries of a lock name, at the commit that they name.

    `project`: where the lock lies, to which its folders are relative.
    """

    def __init__(
        self, settings: CrawlSettings, now: datetime, project: Path, entries: Iterable[Entry]
    ) -> None:
        self._settings, self._now, self._project = settings, now, project
        self._wanted: dict[str, set[str]] = {}
        for entry in entries:
            if (spec := self._spec(entry)) is not None:
                self._wanted.setdefault(spec, set()).add(folder_of(entry))
        self._read: dict[str, dict[str, RawDocument] | SkilleryError] = {}

    def skill(self, entry: Entry) -> RawDocument | None:
        """Return the skill that an entry names; None: it names no repository and no folder.

        Raises `SkilleryError` if the source cannot be read, or holds no such skill.
        """
        if (spec := self._spec(entry)) is None:
            return None
        folder = folder_of(entry)
        if spec not in self._read:
            try:
                self._read[spec] = self._skills(spec, self._wanted.get(spec, {folder}))
            except SkilleryError as error:
                self._read[spec] = error
        found = self._read[spec]
        if isinstance(found, SkilleryError):
            raise found
        if folder not in found:
            raise WrongInput(f"{hide_credentials(spec)} holds no skill in {folder or 'its first folder'}")
        return found[folder]

    def _spec(self, entry: Entry) -> str | None:
        kind, source, ref = (entry.get(name) for name in ("sourceType", "source", "ref"))
        if not isinstance(source, str) or not isinstance(kind, str):
            return None
        if kind == "local":
            place = self._project / source / folder_of(entry)
            return f"dir:{place if 'skillPath' in entry else _skill_in(place, entry.get('computedHash'))}"
        url, at = entry.get("sourceUrl") or source, f"@{ref}" if ref else ""
        return _SPECS[kind].format(source=source, url=url, at=at) if kind in _SPECS else None

    def _skills(self, spec: str, folders: set[str]) -> dict[str, RawDocument]:
        local = spec.startswith("dir:")
        if local and not Path(spec.removeprefix("dir:"), "SKILL.md").is_file():
            return {}
        found: dict[str, RawDocument] = {}
        with tempfile.TemporaryDirectory(prefix="skillery-locked-") as scratch:
            for item in open_source(
                spec, CrawlContext(Root(scratch), self._now, settings=self._settings)
            ).read():
                if isinstance(item, RawDocument):
                    at = (item.path or "").removesuffix("SKILL.md").strip("/")
                    found |= dict.fromkeys(folders if local and not at else {at} & folders, item)
        return found


def _skill_in(place: Path, said: object) -> Path:
    """Return the folder of the skill with this hash: of a folder of skills some clients lock that alone.

    It lies there or a few folders below it, and nothing else than folders of skills is looked into.
    """
    if (place / "SKILL.md").is_file():
        return place
    found = chain.from_iterable(place.glob("*/" * depth + "SKILL.md") for depth in range(1, _DEEPEST + 1))
    folders = (path.parent for path in islice(found, _MOST_LOOKED_INTO))
    return next((folder for folder in folders if folder_hash(skill_files(folder)) == said), place)
