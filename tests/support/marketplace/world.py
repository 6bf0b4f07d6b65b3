"""What there is to crawl: repositories, the rows that list their skills, and registered MCP servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.marketplace.objects import Commit
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.rows import Row, make_row, skill_folders, touched
from tests.support.marketplace.settings import GitHubSettings, RegistrySettings, SkillsMPSettings

_FIRST_DAY = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp())


@dataclass(slots=True)
class Server:
    """One version of an MCP server in the registry; times in seconds since 1970."""

    name: str
    version: str
    description: str
    repository: str | None
    repository_id: str | None
    published_at: int
    updated_at: int
    latest: bool = True
    status: str = "active"
    extra: dict[str, object] = field(default_factory=dict)


class World:
    """Everything the services tell of; may be changed from any thread while they serve.

    Args:
        now: Gives the seconds since 1970 that limits and quotas count by.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self.lock = threading.RLock()
        self.now = now
        # The time of the next commit; it goes on by a minute a commit, so that ids are the same every run.
        self.time = _FIRST_DAY
        self.repositories: list[Repository] = []
        self.rows: list[Row] = []
        self.servers: list[Server] = []
        self.lists_new_skills = True
        self.skillsmp = SkillsMPSettings()
        self.github = GitHubSettings()
        self.registry = RegistrySettings()

    def _tick(self) -> int:
        self.time += 60
        return self.time

    def repository(
        self,
        name: str,
        *,
        default_branch: str = "main",
        repo_id: int | None = None,
        stars: int = 12,
        licence: str | None = "MIT",
    ) -> Repository:
        """Return the repository of this name; where none has it, or a deleted one, it is made."""
        with self.lock:
            known = self._named(name)
            if known and known.fate != "deleted":
                return known
            made = Repository(
                name,
                repo_id=repo_id or 700_000 + len(self.repositories),
                default_branch=default_branch,
                stars=stars,
                licence=licence,
                lock=self.lock,
                clock=self._tick,
                committed=self._list_commit,
            )
            self.repositories.append(made)
            return made

    def _named(self, name: str) -> Repository | None:
        # The newest first: it has taken the name of one that was deleted.
        return next((r for r in reversed(self.repositories) if r.name.lower() == name.lower()), None)

    def find(self, name: str) -> tuple[Repository | None, bool]:
        """Return who has a name, in any letter case, or had it before, and whether it was before."""
        if known := self._named(name):
            return known, False
        past = [r for r in self.repositories if name.lower() in [old.lower() for old in r.names_before]]
        return (past[-1], True) if past else (None, False)

    def by_id(self, repo_id: int) -> Repository | None:
        return next((r for r in self.repositories if r.repo_id == repo_id), None)

    def _list_commit(self, repository: Repository, branch: str, before: Commit | None, after: Commit) -> None:
        if not self.lists_new_skills or branch != repository.default_branch:
            return
        held = {row.folder: row for row in self.rows if row.repository is repository and row.ref == branch}
        for folder in touched(before, after):
            new = make_row(repository, branch, folder, after)
            if old := held.get(folder):
                old.name, old.description, old.updated_at = new.name, new.description, new.updated_at
            else:
                self.rows.append(new)
        gone = held.keys() - skill_folders(after).keys()
        self.rows = [row for row in self.rows if row not in [held[folder] for folder in gone]]

    def list_skill(
        self,
        repository: Repository | None,
        folder: str,
        *,
        ref: str | None = None,
        url: str | None = None,
        name: str | None = None,
        description: str | None = None,
        updated_at: int | None = None,
    ) -> Row:
        """Add a row by hand: on another branch or tag, with a URL of its own, or about nothing at all.

        Without `updated_at` it is as old as the commit that its skill is in, and new where there is no skill.
        """
        with self.lock:
            if repository is None:
                row = Row(None, "nobody/nothing", ref or "main", folder, folder, "", self._tick(), url)
            else:
                ref = ref or repository.default_branch
                commit = repository.find(ref) or repository.head
                row = make_row(repository, ref, folder, commit)
                if folder not in skill_folders(commit):
                    row.updated_at = self._tick()
            row.url = url
            row.name = row.name if name is None else name
            row.description = row.description if description is None else description
            row.updated_at = row.updated_at if updated_at is None else updated_at
            self.rows.append(row)
            return row

    def unlist(self, row: Row) -> None:
        with self.lock:
            self.rows.remove(row)

    def relist(self, repository: Repository) -> None:
        """Bring the rows of a renamed repository up to its new name."""
        with self.lock:
            for row in self.rows:
                if row.repository is repository:
                    row.full_name = repository.name

    def rows_of(self, repository: Repository) -> list[Row]:
        with self.lock:
            return [row for row in self.rows if row.repository is repository]

    def register(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        description: str = "",
        repository: str | None = None,
        repository_id: str | None = None,
        **extra: object,
    ) -> Server:
        """Publish a version of an MCP server, which becomes the latest of its name."""
        with self.lock:
            time = self._tick()
            for server in self.servers:
                if server.name == name and server.latest:
                    server.latest, server.updated_at = False, time
            made = Server(name, version, description, repository, repository_id, time, time, extra=extra)
            self.servers.append(made)
            return made

    def unregister(self, name: str) -> None:
        """Mark every version of a server as deleted."""
        with self.lock:
            time = self._tick()
            for server in self.servers:
                if server.name == name:
                    server.status, server.updated_at = "deleted", time
