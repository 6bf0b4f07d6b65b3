"""The marketplace's own rows on skills, made when a commit touches a folder with a SKILL.md."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from tests.support.marketplace.objects import Blob, Commit, Tree
from tests.support.marketplace.repository import Repository

_FRONT = re.compile(rb"\A---\r?\n(.*?)^---", re.DOTALL | re.MULTILINE)
_SERIAL = itertools.count(1)


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
        hidden: It takes its place on a page but is not shown there.
    """

    repository: Repository | None
    full_name: str
    ref: str
    folder: str
    name: str
    description: str
    updated_at: int
    url: str | None = None
    hidden: bool = False
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
