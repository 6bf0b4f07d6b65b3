"""What there is to crawl: repositories, the rows that list their skills, servers, and how services behave."""

from __future__ import annotations

import itertools
import posixpath
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias
from urllib.parse import quote

from tests.support.marketplace.repository import Blob, Commit, Repository, Tree

TimeForm: TypeAlias = Literal["text", "rotating"]
HasNext: TypeAlias = Literal["honest", "always", "never"]
Envelope: TypeAlias = Literal["nested", "flat", "bare"]
_FRONT = re.compile(rb"\A---\r?\n(.*?)^---", re.DOTALL | re.MULTILINE)
_SERIAL = itertools.count(1)
_FIRST_DAY = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp())


@dataclass(slots=True)
class SkillsMPSettings:
    """The marketplace's quirks; where None or 0 stands, there is none."""

    listing_times: TimeForm = "text"
    # Every n-th row has null for description, author and stars; every n-th has its stars as `1.2k`; no URL.
    nulls_every: int = 0
    written_stars_every: int = 0
    no_url_every: int = 0
    routes: bool = False
    most_rows: int = 100
    listing_depth: int | None = None
    has_next: HasNext = "honest"
    unstable_ties: bool = False
    search_envelope: Envelope = "nested"
    # The page of a challenge instead of JSON, on the endpoints named here, with this status.
    html_wall: frozenset[Literal["listing", "search"]] = frozenset()
    html_status: int = 403
    missing: frozenset[Literal["listing", "search"]] = frozenset()
    key_required: bool = False
    # None: every key is as good as another.
    keys: frozenset[str] | None = None
    # A day and a minute, of the search endpoint; the recorded figures with a key are 500 and 30.
    key_quota: tuple[int, int] | None = None
    # Called with the number of a page before it is made up: what it changes, the page already shows.
    before_page: Callable[[int], None] | None = None


@dataclass(slots=True)
class GitHubSettings:
    """Limits of the API an hour, and where it stops telling everything."""

    anonymous_limit: int = 60
    # None: every token is as good as another.
    tokens: frozenset[str] | None = None
    tree_entries: int = 100_000
    commits_route: bool = True
    # Whether archives and raw files under an old name lead to the new one, or are missing.
    files_follow_renames: bool = True


@dataclass(slots=True)
class RegistrySettings:
    """How the registry writes its cursor, and its page sizes."""

    cursor_key: Literal["nextCursor", "next_cursor"] = "nextCursor"
    last_cursor: Literal["null", "empty", "absent"] = "null"
    most_rows: int = 100


@dataclass(slots=True, eq=False)
class Row:
    """One listed skill, as the marketplace knows it: names and places may have moved on since.

    Args:
        repository: Where its stars come from; None for a row about nothing.
        full_name: `owner/repo` when it was listed.
        ref: Branch or tag in its URL.
        folder: Below the repository's root; empty for the root.
        updated_at: Seconds since 1970.
        url: Stands instead of the URL that the other fields make; may be empty.
    """

    repository: Repository | None
    full_name: str
    ref: str
    folder: str
    name: str
    description: str
    updated_at: int
    url: str | None = None
    serial: int = field(default_factory=lambda: next(_SERIAL))

    @property
    def author(self) -> str:
        return self.full_name.partition("/")[0]

    @property
    def slug(self) -> str:
        """The marketplace's id: lossy, so that two rows may share one."""
        parts = [self.full_name, self.folder, "skill-md"]
        return re.sub(r"[^a-z0-9]+", "-", "-".join(p for p in parts if p).lower())

    @property
    def github_url(self) -> str:
        if self.url is not None:
            return self.url
        if not self.folder:
            return f"https://github.com/{self.full_name}"
        return f"https://github.com/{self.full_name}/tree/{self.ref}/{quote(self.folder)}"

    @property
    def stars(self) -> int:
        return self.repository.stars if self.repository else 0


def skill_folders(commit: Commit) -> dict[str, Blob]:
    """Return the SKILL.md of each folder that has one."""
    return {
        posixpath.dirname(path): blob
        for path, blob in commit.files.items()
        if posixpath.basename(path).lower() == "skill.md"
    }


def touched(before: Commit | None, after: Commit) -> Iterator[str]:
    """Yield the skill folders below which something is new."""
    for folder in skill_folders(after):
        old = before.tree.at(folder) if before else None
        new = after.tree.at(folder)
        if isinstance(new, Tree) and (not isinstance(old, Tree) or old.sha != new.sha):
            yield folder


def make_row(repository: Repository, ref: str, folder: str, commit: Commit) -> Row:
    """Read a row off the skill's front matter, as loosely as a marketplace does."""
    blob = skill_folders(commit).get(folder)
    front = _FRONT.match(blob.content) if blob else None
    lines = front[1].decode("utf-8", "replace").splitlines() if front else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("name") or posixpath.basename(folder) or repository.repo
    description = fields.get("description", "").strip("\"'")
    return Row(repository, repository.name, ref, folder, name, description, commit.at)


@dataclass(slots=True)
class Server:
    """One version of an MCP server in the registry; times in seconds since 1970."""

    name: str
    version: str
    description: str
    published_at: int
    updated_at: int
    latest: bool = True
    status: str = "active"


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
        self, name: str, *, default_branch: str = "main", repo_id: int | None = None, stars: int = 12,
        licence: str | None = "MIT",
    ) -> Repository:  # fmt: skip
        """Return the repository of this name; where none has it, or a deleted one, it is made."""
        with self.lock:
            known = self._named(name)
            if known and known.fate != "deleted":
                return known
            made = Repository(
                name, repo_id=repo_id or 700_000 + len(self.repositories), default_branch=default_branch,
                stars=stars, licence=licence, lock=self.lock, clock=self._tick, committed=self._list_commit,
            )  # fmt: skip
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
        self, repository: Repository | None, folder: str, *, ref: str | None = None, url: str | None = None,
        name: str | None = None, description: str | None = None, updated_at: int | None = None,
    ) -> Row:  # fmt: skip
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

    def register(self, name: str, *, version: str = "1.0.0", description: str = "") -> Server:
        """Publish a version of an MCP server, which becomes the latest of its name."""
        with self.lock:
            time = self._tick()
            for server in self.servers:
                if server.name == name and server.latest:
                    server.latest, server.updated_at = False, time
            made = Server(name, version, description, time, time)
            self.servers.append(made)
            return made

    def unregister(self, name: str) -> None:
        """Mark every version of a server as deleted."""
        with self.lock:
            time = self._tick()
            for server in self.servers:
                if server.name == name:
                    server.status, server.updated_at = "deleted", time
