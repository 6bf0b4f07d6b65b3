"""The doctor of what is served: finds what is wrong with it, and serves a version that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from storage.errors import SchemaMismatch, StorageError
from storage.lance.served import (
    PUBLISHED,
    SERVED,
    Served,
    drop_published,
    drop_stray_tags,
    mend_tags,
    published_versions,
    read_published,
    read_served,
    write_served,
)
from storage.lance.tables import INDUCED, TableAt
from storage.lance.versions import manifest_reads, table_names
from storage.root import Root
from tasks.retrieve.routing.store import FOLDER, damaged_routing, drop_routing
from tasks.retrieve.versions.integrity import changed_file, number_of, require_intact


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect: what was found, where (relative to the root), what was done, and whether that mended it."""

    found: str
    where: str
    done: str
    mended: bool


def examine_served(root: Root) -> Iterator[Defect]:
    """Read the served version and the records of all published ones; mend and yield the defects found.

    Raises:
        SchemaMismatch: A newer version of this program wrote a table; it is not damaged.
        Unreachable: The bucket does not answer.
    """
    yield from _published(root)
    yield from _manifests(root, published_versions(root))
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
            yield Defect(found, path, "left: the next run exports it anew", mended=True)
            return
        why = _why_unreadable(root, served)
        if why is None:
            yield from _routing(root, served)
            yield from _tags(root)
            return
    others = [version for version in versions if version != served]
    yield _serve_another(root, served, why or f"{SERVED} is missing", others)


def _manifests(root: Root, versions: list[Served]) -> Iterator[Defect]:
    """Remove damaged manifests, newest first: one of them keeps every version of its table from opening."""
    for name in table_names(root):
        for file in root.files(f"lance/{name}.lance/_versions", ".manifest"):
            number = number_of(file) or 0
            try:
                TableAt(root, name, number).opened()
            except SchemaMismatch:
                raise
            except StorageError as error:
                if manifest_reads(file, root.read(file)):
                    continue  # something else failed, which may pass
                root.delete(file)
                gone = {v.version for v in versions if v.tables().get(name) == number}
                for version in gone:
                    drop_published(root, version)
                said = f"; {', '.join(sorted(gone))} can be gone back to no more" if gone else ""
                yield Defect(str(error), file, f"removed{said}", mended=True)


def _tags(root: Root) -> Iterator[Defect]:
    for name, label in mend_tags(root):
        found = f"the tag of {label} was missing, damaged or on another version"
        yield Defect(found, f"lance/{name}.lance", "it was made again", mended=True)
    for name, label in drop_stray_tags(root):
        found = f"version {label} is tagged, and was never published or is gone"
        yield Defect(found, f"lance/{name}.lance", "its tag was taken off", mended=True)


def _routing(root: Root, served: Served) -> Iterator[Defect]:
    if why := damaged_routing(root, served):
        done = "removed: each process makes it for itself until the next run, which keeps one"
        yield Defect(why, drop_routing(root, served), done, mended=True)


def _published(root: Root) -> Iterator[Defect]:
    """Remove damaged records of published versions."""
    for file in root.files(PUBLISHED, ".json"):
        try:
            read_published(root, file)
        except StorageError as error:
            root.delete(file)
            done = "removed: that version can be gone back to no more"
            yield Defect(str(error), file, done, mended=True)


def _why_unreadable(root: Root, served: Served) -> str | None:
    """Return why a version cannot be served, None if it can."""
    try:
        require_intact(root, served)
        changed = changed_file(root, served)
    except SchemaMismatch:
        raise
    except StorageError as error:
        return str(error)
    return changed and f"{root.at(changed)} is not as it was written"


def _serve_another(root: Root, served: Served | None, why: str, others: list[Served]) -> Defect:
    if served is not None and served.induced is not None:
        rest = replace(served, induced=None)
        if _why_unreadable(root, rest) is None:
            write_served(root, rest)
            done = "the rest is served without learned skills; the next `skillery induce` makes them anew"
            return Defect(why, f"lance/{INDUCED}.lance", done, mended=True)
    known = {version.version for version in published_versions(root)}
    for other in others:
        if _why_unreadable(root, other) is None:
            write_served(root, other)
            # Where the way back was dropped, publishing must not record it again: its table is gone, and a
            # later version of the table will have its number.
            for version in {v.version for v in published_versions(root)} - known:
                drop_published(root, version)
            return Defect(why, SERVED, f"{other.version} is served again", mended=True)
    # The next run rebuilds all of it from the corpus and from cached vectors.
    for place in (SERVED, PUBLISHED, FOLDER, "lance"):
        root.delete(place)
    done = "no version published can be read: the index is removed, the next run builds and serves it anew"
    return Defect(why, SERVED, done, mended=True)
