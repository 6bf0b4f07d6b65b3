"""Repositories with the ids that git itself would give them, and archives of their commits."""

from __future__ import annotations

import hashlib
import io
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

# How the forge answers: 404 for a private or deleted one, else 403, 403 that names the DMCA, 451.
Fate: TypeAlias = Literal["open", "private", "denied", "deleted", "dmca", "blocked"]


def _digest(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


class Blob:
    """A file's bytes and its git mode: 100644, 100755 executable, 120000 symbolic link."""

    kind = "blob"

    def __init__(self, content: bytes, mode: str = "100644") -> None:
        self.content, self.mode = content, mode

    @cached_property
    def sha(self) -> str:
        return _digest("blob", self.content)


class Submodule(Blob):
    """A commit of another repository, standing where a folder would."""

    kind = "commit"

    def __init__(self, sha: str) -> None:
        super().__init__(b"", "160000")
        self.sha = sha


def link(target: str) -> Blob:
    return Blob(target.encode(), "120000")


def executable(content: bytes) -> Blob:
    return Blob(content, "100755")


class Tree:
    """A folder; its id changes exactly when something below it does."""

    kind = "tree"
    mode = "040000"

    def __init__(self, entries: Mapping[str, Node]) -> None:
        # Git sorts a folder as if its name ended in a slash.
        self.entries = dict(
            sorted(entries.items(), key=lambda e: f"{e[0]}/" if isinstance(e[1], Tree) else e[0])
        )

    @cached_property
    def sha(self) -> str:
        lines = [
            f"{node.mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(node.sha)
            for name, node in self.entries.items()
        ]
        return _digest("tree", b"".join(lines))

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """Yield path and node of everything below, a folder before what is in it."""
        for name, node in self.entries.items():
            yield prefix + name, node
            if isinstance(node, Tree):
                yield from node.walk(f"{prefix}{name}/")

    def at(self, path: str) -> Node | None:
        """Return what lies at a path, this tree itself at the empty one."""
        node: Node | None = self
        for name in path.split("/") if path else []:
            node = node.entries.get(name) if isinstance(node, Tree) else None
        return node


Node: TypeAlias = Blob | Tree


def grow(files: Mapping[str, Blob]) -> Tree:
    """Make the tree that holds these files."""
    here: dict[str, Node] = {}
    below: dict[str, dict[str, Blob]] = {}
    for path, blob in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = blob
        else:
            here[name] = blob
    return Tree({**here, **{name: grow(inner) for name, inner in below.items()}})


@dataclass(frozen=True)
class Commit:
    """One state of a repository; `at` in seconds since 1970."""

    files: Mapping[str, Blob]
    tree: Tree
    parent: str | None
    at: int

    @cached_property
    def sha(self) -> str:
        parent = f"parent {self.parent}\n" if self.parent else ""
        who = f"Market Gardener <gardener@example.org> {self.at} +0000"
        text = f"tree {self.tree.sha}\n{parent}author {who}\ncommitter {who}\n\nTend the garden\n".encode()
        return _digest("commit", text)


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
        self, name: str, *, repo_id: int, default_branch: str, stars: int, licence: str | None,
        lock: threading.RLock, clock: Callable[[], int],
        committed: Callable[[Repository, str, Commit | None, Commit], None],
    ) -> None:  # fmt: skip
        self.name, self.repo_id, self.default_branch = name, repo_id, default_branch
        self.stars, self.licence = stars, licence
        self.fate: Fate = "open"
        self.names_before: list[str] = []
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.commits: dict[str, Commit] = {}
        self.archive_override: bytes | None = None  # what archives are answered with instead
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

    def commit(
        self, changes: Mapping[str, bytes | Blob | None], *, branch: str | None = None, at: int | None = None
    ) -> Commit:
        """Write files (None: remove) and move the branch; a new one is made off the default branch."""
        with self._lock:
            branch = branch or self.default_branch
            sha = self.branches.get(branch) or self.branches.get(self.default_branch)
            before = self.commits[sha] if sha else None
            files = dict(before.files) if before else {}
            for path, content in changes.items():
                files.pop(path, None)
                if content is not None:
                    files[path] = Blob(content) if isinstance(content, bytes) else content
            time = self._clock() if at is None else at
            new = Commit(files, grow(files), before.sha if before else None, time)
            self.commits[new.sha] = new
            self._nodes |= {node.sha: node for node in (new.tree, *(node for _, node in new.tree.walk()))}
            self.branches[branch] = new.sha
            self._committed(self, branch, before, new)
            return new

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
        heads, tags = bare.removeprefix("heads/"), bare.removeprefix("tags/")
        sha = self.branches.get(heads) or self.tags.get(tags)
        if not sha and len(ref) >= 7:
            sha = next((known for known in self.commits if known.startswith(ref)), None)
        return self.commits[sha] if sha else None

    def pad_to(self, size: int) -> Commit:
        """Commit a file of this many random bytes, so that no archive of the repository is smaller."""
        drawn = random.Random(self.repo_id)  # noqa: S311 (no secret)
        return self.commit({"assets/footage.bin": drawn.randbytes(size)})

    def rename(self, name: str) -> None:
        """Give it a new name (`owner/repo`); the old one leads to it until another repository takes it."""
        with self._lock:
            self.names_before.append(self.name)
            self.name = name

    def delete(self) -> None:
        """Answer 404; another repository may take the name."""
        self.fate = "deleted"


def archive_of(commit: Commit, root: str) -> bytes:
    """Return the zip file of a commit, with one folder of this name at its root."""
    packed, when = io.BytesIO(), time.gmtime(commit.at)[:6]
    with ZipFile(packed, "w") as archive:
        archive.comment = commit.sha.encode()
        for name, node in (("", commit.tree), *commit.tree.walk()):
            path = f"{root}/{name}"
            if isinstance(node, Tree) or node.kind == "commit":
                info = ZipInfo(f"{path.rstrip('/')}/", when)  # type: ignore[arg-type]
                info.external_attr, info.create_system = 0x10, 0
                archive.writestr(info, b"")
                continue
            info = ZipInfo(path, when)  # type: ignore[arg-type]
            info.compress_type = ZIP_DEFLATED
            with archive.open(info, "w") as member:
                member.write(node.content)
            # As git archive has it: links and executables carry their mode, plain files none at all. Set
            # afterwards, because opening a member puts a mode of its own in the place of none.
            mode = int(node.mode, 8) | (0o777 if node.mode == "120000" else 0)
            info.create_system, info.external_attr = (0, 0) if mode == 0o100644 else (3, mode << 16)
    return packed.getvalue()
