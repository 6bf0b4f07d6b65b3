"""Blobs, trees and commits with the ids that git itself would give them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

_PIECE = 1_000_000


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
        self.entries = dict(sorted(entries.items(), key=lambda e: f"{e[0]}/" if _folder(e[1]) else e[0]))

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


def _folder(node: Node) -> bool:
    return isinstance(node, Tree)


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
