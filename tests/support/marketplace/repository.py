"""One repository of the forge: branches, tags, and what may befall it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from tests.support.marketplace.objects import Blob, Commit, Node, RandomBlob, grow

Fate: TypeAlias = Literal["open", "private", "denied", "deleted", "dmca", "blocked"]
ArchiveOverride: TypeAlias = bytes | Callable[[], Iterable[bytes]]


class Repository:
    """What the forge holds under one id; a name may pass from one repository to another.

    Args:
        name: `owner/repo`, as its owner writes it.
        repo_id: The forge's stable id.
        lock: The world's.
        clock: Gives the time of a commit whose time is not said, seconds since 1970.
        committed: Told of every commit: the repository, the branch, the state before and the new one.
    """

    def __init__(
        self,
        name: str,
        *,
        repo_id: int,
        default_branch: str,
        stars: int,
        licence: str | None,
        lock: threading.RLock,
        clock: Callable[[], int],
        committed: Callable[[Repository, str, Commit | None, Commit], None],
    ) -> None:
        self.name, self.repo_id, self.default_branch = name, repo_id, default_branch
        self.stars, self.licence = stars, licence
        self.fate: Fate = "open"
        self.names_before: list[str] = []
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.commits: dict[str, Commit] = {}
        # What archives are answered with instead, and the size in KB that the API announces instead.
        self.archive_override: ArchiveOverride | None = None
        self.announced_kb: int | None = None
        self._nodes: dict[str, Node] = {}
        self._lock, self._clock, self._committed = lock, clock, committed

    @property
    def owner(self) -> str:
        return self.name.partition("/")[0]

    @property
    def repo(self) -> str:
        return self.name.partition("/")[2]

    @property
    def head(self) -> Commit:
        """The newest commit of the default branch; KeyError where there is none."""
        return self.commits[self.branches[self.default_branch]]

    @property
    def size_kb(self) -> int:
        if self.announced_kb is not None:
            return self.announced_kb
        files = self.head.files.values() if self.branches else ()
        return sum(blob.size for blob in files) // 1024

    def commit(
        self,
        changes: Mapping[str, bytes | Blob | None],
        *,
        branch: str | None = None,
        at: int | None = None,
        message: str = "Tend the garden",
    ) -> Commit:
        """Write files (None: remove) and move the branch; a new one is made off the default branch."""
        with self._lock:
            branch = branch or self.default_branch
            before = self._start(branch)
            files = dict(before.files) if before else {}
            for path, content in changes.items():
                files.pop(path, None)
                if content is not None:
                    files[path] = Blob(content) if isinstance(content, bytes) else content
            time = self._clock() if at is None else at
            new = Commit(files, grow(files), before.sha if before else None, time, message)
            self._keep(new)
            self.branches[branch] = new.sha
            self._committed(self, branch, before, new)
            return new

    def _start(self, branch: str) -> Commit | None:
        sha = self.branches.get(branch) or self.branches.get(self.default_branch)
        return self.commits[sha] if sha else None

    def _keep(self, commit: Commit) -> None:
        self.commits[commit.sha] = commit
        self._nodes[commit.tree.sha] = commit.tree
        for _, node in commit.tree.walk():
            self._nodes[node.sha] = node

    def node(self, sha: str) -> Node | None:
        """Return a tree or blob of any commit by its id."""
        return self._nodes.get(sha)

    def branch(self, name: str, sha: str | None = None) -> None:
        """Put a branch on a commit; None: on the default branch's."""
        with self._lock:
            self.branches[name] = sha or self.head.sha

    def tag(self, name: str, sha: str | None = None) -> None:
        """Put a tag on a commit; None: on the default branch's."""
        with self._lock:
            self.tags[name] = sha or self.head.sha

    def drop_branch(self, name: str) -> None:
        with self._lock:
            del self.branches[name]

    def find(self, ref: str) -> Commit | None:
        """Return the commit that a branch, tag, full ref, id (7 digits or more) or HEAD names."""
        if ref == "HEAD":
            ref = self.default_branch
        bare = ref.removeprefix("refs/")
        sha = self.branches.get(ref) or self.tags.get(ref)
        sha = (
            sha or self.branches.get(bare.removeprefix("heads/")) or self.tags.get(bare.removeprefix("tags/"))
        )
        if not sha and len(ref) >= 7:
            sha = next((known for known in self.commits if known.startswith(ref)), None)
        return self.commits[sha] if sha else None

    def pad_to(self, size: int) -> Commit:
        """Commit a file of this many random bytes, so that no archive of the repository is smaller."""
        return self.commit({"assets/footage.bin": RandomBlob(size, self.repo_id)})

    def rename(self, name: str) -> None:
        """Give it a new name (`owner/repo`); the old one leads to it until another repository takes it."""
        with self._lock:
            self.names_before.append(self.name)
            self.name = name

    def make_private(self) -> None:
        """Answer 404, as if there were nothing."""
        self.fate = "private"

    def delete(self) -> None:
        """Answer 404; another repository may take the name."""
        self.fate = "deleted"

    def deny(self) -> None:
        """Answer a plain 403."""
        self.fate = "denied"

    def dmca(self) -> None:
        """Answer 403 with a body that names the DMCA."""
        self.fate = "dmca"

    def block_legally(self) -> None:
        """Answer 451."""
        self.fate = "blocked"

    def restore(self) -> None:
        """Answer as ever again."""
        self.fate = "open"
