"""Repositories with the ids that git itself would give them, and archives of their commits."""

from __future__ import annotations

import hashlib
import random
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

_PIECE = 1_000_000
Fate: TypeAlias = Literal["open", "private", "denied", "deleted", "dmca", "blocked"]
ArchiveOverride: TypeAlias = bytes | Callable[[], Iterable[bytes]]
_UNIX = 3


def _digest(kind: str, size: int, pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha1(f"{kind} {size}\0".encode(), usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


class Blob:
    """A file's bytes and its git mode: 100644, 100755 executable, 120000 symbolic link."""

    kind = "blob"

    def __init__(self, content: bytes, mode: str = "100644") -> None:
        self.content, self.mode, self.size = content, mode, len(content)

    def pieces(self) -> Iterator[bytes]:
        yield self.content

    @cached_property
    def sha(self) -> str:
        return _digest("blob", self.size, self.pieces())


class RandomBlob(Blob):
    """Bytes that no compressor makes smaller, drawn when they are asked for and never kept."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(b"")
        self.size, self._seed = size, seed

    def pieces(self) -> Iterator[bytes]:
        drawn = random.Random(self._seed)  # noqa: S311 (no secret)
        for start in range(0, self.size, _PIECE):
            yield drawn.randbytes(min(_PIECE, self.size - start))


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
        content = b"".join(lines)
        return _digest("tree", len(content), iter([content]))

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
    """Make the tree that holds these files.

    Raises:
        ValueError: One path is a file and a folder of another.
    """
    here: dict[str, Node] = {}
    below: dict[str, dict[str, Blob]] = {}
    for path, blob in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = blob
        else:
            here[name] = blob
    if both := here.keys() & below.keys():
        msg = f"both a file and a folder: {sorted(both)}"
        raise ValueError(msg)
    return Tree({**here, **{name: grow(inner) for name, inner in below.items()}})


@dataclass(frozen=True)
class Commit:
    """One state of a repository; `at` in seconds since 1970."""

    files: Mapping[str, Blob]
    tree: Tree
    parent: str | None
    at: int
    message: str

    @cached_property
    def sha(self) -> str:
        parent = f"parent {self.parent}\n" if self.parent else ""
        who = f"Market Gardener <gardener@example.org> {self.at} +0000"
        text = f"tree {self.tree.sha}\n{parent}author {who}\ncommitter {who}\n\n{self.message}\n".encode()
        return _digest("commit", len(text), iter([text]))


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


class Shelf:
    """Makes each archive once and keeps it in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def archive(self, commit: Commit, root: str) -> Path:
        """Return the zip file of a commit, with one folder of this name at its root."""
        path = self._folder / f"{commit.sha}-{root}.zip"
        if not path.exists():
            _write(path, commit, root)
        return path


def _write(path: Path, commit: Commit, root: str) -> None:
    when = time.gmtime(commit.at)[:6]
    with ZipFile(path, "w") as archive:
        archive.comment = commit.sha.encode()
        archive.writestr(_folder(f"{root}/", when), b"")
        for name, node in commit.tree.walk(f"{root}/"):
            if isinstance(node, Tree) or node.kind == "commit":
                archive.writestr(_folder(f"{name}/", when), b"")
            else:
                _add(archive, name, node, when)


def _folder(name: str, when: tuple[int, ...]) -> ZipInfo:
    info = ZipInfo(name, _date(when))
    info.external_attr, info.create_system = 0x10, 0
    return info


def _date(when: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second = when
    return year, month, day, hour, minute, second


def _add(archive: ZipFile, name: str, blob: Blob, when: tuple[int, ...]) -> None:
    info = ZipInfo(name, _date(when))
    info.compress_type = ZIP_STORED if isinstance(blob, RandomBlob) else ZIP_DEFLATED
    info.file_size = blob.size
    with archive.open(info, "w", force_zip64=blob.size > zipfile.ZIP64_LIMIT) as member:
        for piece in blob.pieces():
            member.write(piece)
    # As git archive has it: links and executables carry their mode, plain files none at all. Set afterwards,
    # because opening a member puts a mode of its own in the place of none.
    info.create_system, info.external_attr = 0, 0
    if blob.mode != "100644":
        mode = int(blob.mode, 8) | (0o777 if blob.mode == "120000" else 0)
        info.create_system, info.external_attr = _UNIX, mode << 16


def root_name(repo: str, ref: str) -> str:
    """Return the root folder of an archive of this ref: tag `v1.2` gives `repo-1.2`, `a/b` `repo-a-b`."""
    short = ref.removeprefix("refs/heads/")
    if ref.startswith("refs/tags/"):
        tag = ref.removeprefix("refs/tags/")
        short = tag[1:] if tag[:1] == "v" and tag[1:2].isdigit() else tag
    return f"{repo}-{short.replace('/', '-')}"
