"""Finds what is wrong with what is published, and has something sound served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from storage.errors import StorageError
from storage.lance import SKILLS, connect, open_at, table_names, tagged, untag
from storage.root import Root
from storage.served import (
    PUBLISHED,
    SERVED,
    Served,
    drop_published,
    published_versions,
    read_published,
    read_served,
    write_served,
)
from tasks.retrieve.routing_store import FOLDER, damaged_routing, drop_routing
from tasks.retrieve.sound import require_sound

_LAST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, where (relative to the root), what was done, and whether that mended it."""

    found: str
    where: str
    done: str
    mended: bool


def examine_served(root: Root) -> Iterator[Finding]:
    """Look at what is served and at what can be gone back to; yield what was found, and mend it."""
    versions, damaged = _published(root)
    yield from damaged
    yield from _manifests(root, versions)
    versions = published_versions(root)
    try:
        served, why = read_served(root), None
    except StorageError as error:
        served, why = None, str(error)
    if served is None and why is None and not versions:
        return
    if served is not None:
        path = str(served.model.get("path"))
        if not root.exists(path):
            found = f"the encoder of {served.version} is gone"
            yield Finding(found, path, "left: the next run exports it anew", mended=True)
            return
        why = _unsound(root, served)
        if why is None:
            yield from _routing(root, served)
            yield from _tags(root, {served.version, *(v.version for v in versions)})
            return
    yield _serve_another(root, why or f"{SERVED} is missing", [v for v in versions if v != served])


def _manifests(root: Root, versions: list[Served]) -> Iterator[Finding]:
    """Remove versions of tables that cannot be opened, newest first: one of them keeps all of a table shut.

    What Lance cannot read of a file that can be read is damaged, whichever version it is.
    """
    db = connect(root)
    for name in table_names(db):
        for file in root.files(f"lance/{name}.lance/_versions", ".manifest"):
            number = _number(file)
            try:
                open_at(db, name, number)
            except StorageError as error:
                root.read(file)
                root.delete(file)
                gone = {v.version for v in versions if (v.skills if name == SKILLS else v.nodes) == number}
                for version in gone:
                    drop_published(root, version)
                said = f"; {', '.join(sorted(gone))} can be gone back to no more" if gone else ""
                yield Finding(str(error), file, f"removed{said}", mended=True)


def _number(file: str) -> int:
    """Return the version that a manifest is of: Lance counts them down, so that the newest comes first."""
    number = int(PurePosixPath(file).stem)
    return _LAST - number if number > _LAST // 2 else number


def _tags(root: Root, known: set[str]) -> Iterator[Finding]:
    """Take off tags of versions whose publication was cut short: files that have one are never let go of."""
    db = connect(root)
    for name in table_names(db):
        for label in sorted(tagged(db, name) - known):
            untag(db, name, label)
            found = f"version {label} was tagged and never published"
            yield Finding(found, f"lance/{name}.lance", "its tag was taken off", mended=True)


def _routing(root: Root, served: Served) -> Iterator[Finding]:
    if why := damaged_routing(root, served):
        folder = drop_routing(root, served)
        done = "removed: each process makes it for itself until the next version is published"
        yield Finding(why, folder, done, mended=True)


def _published(root: Root) -> tuple[list[Served], list[Finding]]:
    """Return the versions published, after removing records of them that cannot be read."""
    damaged = []
    for file in root.files(PUBLISHED, ".json"):
        try:
            read_published(root, file)
        except StorageError as error:
            root.delete(file)
            done = "removed: that version can be gone back to no more"
            damaged.append(Finding(str(error), file, done, mended=True))
    return published_versions(root), damaged


def _unsound(root: Root, served: Served) -> str | None:
    try:
        require_sound(root, served)
    except StorageError as error:
        return str(error)
    return None


def _serve_another(root: Root, why: str, others: list[Served]) -> Finding:
    for other in others:
        if _unsound(root, other) is None:
            write_served(root, other)
            return Finding(why, SERVED, f"{other.version} is served again", mended=True)
    # All of it can be made anew of the corpus and of vectors that are kept beside it.
    for place in (SERVED, PUBLISHED, FOLDER, "lance"):
        root.delete(place)
    done = "no version published can be read: the index is removed, the next run builds and serves it anew"
    return Finding(why, SERVED, done, mended=True)
