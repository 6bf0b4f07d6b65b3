"""`state/served.json`, the one pointer to what readers may open, and `state/published/`, where it pointed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias, get_args

from storage.errors import NotPublished, StorageError, Withheld
from storage.lance.tables import INDUCED, NODES, SKILLS, TableAt
from storage.lance.versions import table_names, tag, tagged, untag, versions_of
from storage.root import Root

_UNDER_WAY = "state/anew.json"


def begin_anew(root: Root) -> None:
    """Note that the next version is to be made of nothing that is served, until `end_anew`."""
    root.write_json(_UNDER_WAY, {})


def is_anew(root: Root) -> bool:
    """Tell whether the next version is to be made of nothing that is served."""
    return root.exists(_UNDER_WAY)


def end_anew(root: Root) -> None:
    """Note that a version made of nothing that was served before is served."""
    root.delete(_UNDER_WAY)


def mend_tags(root: Root) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Tag the published versions again whose tags are missing, damaged or on another version; drop others.

    Files of a version with a tag are never removed, so tags go that are of what is gone or was never
    published to its end. The caller holds the root's writer lock. Returned is each table and tag that was
    made again, and each that was dropped.
    """
    served, mended, stray = read_served(root), list[tuple[str, str]](), list[tuple[str, str]]()
    kept = {v.version: v for v in [*published_versions(root), *([served] if served else [])]}
    known = published_names(root)
    for name in table_names(root):
        try:
            tags = tagged(root, name)
        except (RuntimeError, OSError, ValueError):
            # Lance reads all tags or none, so that it names no damaged one: all are made again.
            for file in root.files(f"lance/{name}.lance/_refs/tags", ".json"):
                root.delete(file)
            tags = {}
        there = versions_of(root, name)
        for label, version in kept.items():
            wanted = version.needed(name)
            if wanted is not None and wanted in there and tags.get(label) != wanted:
                tag(root, name, label, wanted)
                mended.append((name, label))
                tags[label] = wanted
        stray += [(name, t) for t, version in sorted(tags.items()) if t not in known or version not in there]
    for name, label in stray:
        untag(root, name, label)
    return mended, stray


log = logging.getLogger(__name__)
SERVED = "state/served.json"
PUBLISHED = "state/published"
_TYPES: dict[str, Any] = {
    "version": str, "run_id": str, "skills": int, "nodes": int | None, "model": dict, "order": int,
    "nodes_base": int | None, "induced": int | None,
}  # fmt: skip
# What versions of before it was written are read with.
_LATER = {"order": 0, "nodes_base": None, "induced": None}


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: `version` is the tag of the tables, `skills`, `nodes` and `induced` their versions.

    `nodes` is None where the run left the nodes' vectors for later; `model` holds the encoder's `name`,
    `revision`, `dimension`, text `template` and `path` (its export, relative to the root). `order` counts
    publications: a clock may be set back. `nodes_base` is the version of `nodes` that the rows of `skills`
    belong to, as they say: `nodes` where that is served; None where it is not known. `induced` is None where
    nothing was learned.
    """

    version: str
    run_id: str
    skills: int
    nodes: int | None
    model: dict[str, Any]
    published_at: datetime
    order: int = 0
    nodes_base: int | None = None
    induced: int | None = None

    def tables(self) -> dict[str, int]:
        """Return the version of each table that is served, by its name."""
        found = {SKILLS: self.skills, NODES: self.nodes, INDUCED: self.induced}
        return {name: version for name, version in found.items() if version is not None}

    def table(self, root: Root, name: str) -> TableAt | None:
        """Return a table as it is served, None where the version has none of that name."""
        return self.tables_at(root).get(name)

    def tables_at(self, root: Root) -> dict[str, TableAt]:
        """Return each table as it is served, by its name; each is opened once, when it is first read."""
        return {name: TableAt(root, name, version) for name, version in self.tables().items()}

    def skills_table(self, root: Root) -> TableAt:
        """Return the table of skills, which every version has."""
        return TableAt(root, SKILLS, self.skills)

    def counts(self, root: Root) -> dict[str, int | None] | None:
        """Return how many documents and nodes are served; None where the tables cannot be read."""
        names = {"documents": SKILLS, "nodes": NODES}
        try:
            found = {what: self.table(root, name) for what, name in names.items()}
            return {what: table.count() if table else None for what, table in found.items()}
        except StorageError:
            return None

    def needed(self, table: str) -> int | None:
        """Return the version of a table that must stay: the one served, or the one to build on."""
        return self.tables().get(table, self.nodes_base if table == NODES else None)


def read_served(root: Root) -> Served | None:
    """Return the pointer, None if nothing has been published; a damaged one raises `StorageError`."""
    return read_published(root, SERVED)


def read_published(root: Root, relative: str) -> Served | None:
    """Return what the pointer, or a file of `state/published`, says; None if it is missing."""
    record = root.read_json(relative)
    if record is None:
        return None
    try:
        published_at = datetime.fromisoformat(record["published_at"])
        fields: dict[str, Any] = {k: record.get(k, _LATER[k]) if k in _LATER else record[k] for k in _TYPES}
        wrong = [k for k, v in fields.items() if not isinstance(v, _TYPES[k]) or isinstance(v, bool)]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{root.at(relative)} is damaged ({error!r})") from error
    if wrong:
        raise StorageError(f"{root.at(relative)} is damaged ({', '.join(wrong)} of another type)")
    return Served(**fields, published_at=published_at)


def require_served(root: Root) -> Served:
    """Return the pointer; raise `NotPublished` if nothing has been published below this root."""
    served = read_served(root)
    if served is None:
        msg = f"nothing is served below {root.uri}: publish with `skillery run --root {root.uri}`"
        raise NotPublished(msg)
    return served


def write_served(root: Root, served: Served) -> None:
    """Replace the pointer in one step; what it says is kept beside it first, as the way back."""
    with contextlib.suppress(StorageError):
        before = read_served(root)
        if before and not root.exists(_kept(before.version)):
            _keep(root, before)  # an older version of this program published it
    root.write_json(SERVED, _keep(root, served))


def _keep(root: Root, served: Served) -> dict[str, Any]:
    record = {**asdict(served), "published_at": served.published_at.isoformat()}
    root.write_json(_kept(served.version), record)
    return record


def published_versions(root: Root) -> list[Served]:
    """Return every version that was published and is still kept, newest first.

    A damaged record of one is passed over with a warning: no night fails for it, and `doctor` removes it.
    """
    found = []
    for file in root.files(PUBLISHED, ".json"):
        try:
            found.append(read_published(root, file))
        except StorageError as error:
            log.warning("a published version cannot be gone back to: %s", error)
    return sorted((s for s in found if s), key=lambda s: (s.order, s.published_at, s.version), reverse=True)


def published_names(root: Root) -> set[str]:
    """Return the names of what is served and of all versions with a record, even a damaged one."""
    names = {PurePosixPath(file).stem for file in root.files(PUBLISHED, ".json")}
    served = read_served(root)
    return names | ({served.version} if served else set())


def drop_published(root: Root, version: str) -> None:
    """Forget that a version was published; its tables are not touched."""
    root.delete(_kept(version))


def keep_published(root: Root, version: str) -> None:
    """Forget that any version but this one was published."""
    for file in root.files(PUBLISHED, ".json"):
        if file != _kept(version):
            root.delete(file)


def _kept(version: str) -> str:
    return f"{PUBLISHED}/{version}.json"


LICENCES = "state/licences.json"
LicenceClass: TypeAlias = Literal["allow", "metadata-only", "deny"]
CLASSES: tuple[LicenceClass, ...] = get_args(LicenceClass)


@dataclass(frozen=True, slots=True)
class Licences:
    """The class of each licence (SPDX) under the policy of the last run, also of versions no longer served.

    `unknown` is the class of documents whose licence is not known.
    """

    classes: Mapping[str, LicenceClass]
    unknown: LicenceClass

    def class_of(self, licence: str | None) -> LicenceClass:
        """Return the class of a licence (None: unknown); one that no run has classed may not be shown."""
        return self.unknown if licence is None else self.classes.get(licence, "metadata-only")


def read_licences(root: Root) -> Licences | None:
    """Return what the last run wrote, None if none has; a damaged file raises `StorageError`."""
    record = root.read_json(LICENCES)
    if record is None:
        return None
    classes, unknown = record.get("classes"), record.get("unknown")
    if not isinstance(classes, dict) or any(c not in CLASSES for c in (unknown, *classes.values())):
        msg = f"{root.at(LICENCES)} is damaged: delete it, then `skillery run --root {root.uri}`"
        raise StorageError(msg)
    return Licences(**record)


def require_licences(root: Root) -> Licences:
    """Return what the last run wrote; if it is damaged or missing, raise `StorageError`."""
    found = read_licences(root)
    if found is None:
        raise StorageError(f"{root.at(LICENCES)} is missing: `skillery run --root {root.uri}` works it out")
    return found


def require_shown(doc_id: str, licence: str | None, licence_class: str) -> None:
    """Raise `Withheld`, naming the setting to change, if a document's class is not `allow`."""
    if licence_class == "allow":
        return
    by = "UNKNOWN_SERVE" if licence is None else "ALLOW, ..._DENY and ..._OTHER_SERVE"
    raise Withheld(
        f"{doc_id} is withheld: its licence, {licence or 'unknown'}, is of class {licence_class} by "
        f"SKILLERY_LICENCES_{by}; another setting counts from the next run on"
    )


def write_licences(root: Root, licences: Licences) -> None:
    """Replace the file in one step."""
    root.write_json(LICENCES, asdict(licences))
