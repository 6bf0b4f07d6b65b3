"""The changes of a repository since the last crawl: documents, and the rows to remember."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from storage.schemas import Dropped, Finding, RawDocument
from tasks.crawl.github.archive import Archive
from tasks.crawl.github.archive_limits import ArchiveRefused
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Fetched, Part, skill_digest
from tasks.crawl.github.retirement import FOUND, Claims, fate_of
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.source.bundle import BundledSkill, SourceEntry, plan
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.protocol import Gone, Item, Missed, Unchanged
from tasks.crawl.source.skill import read_skill

OK = "ok"
# Such a repository is not looked at again before its rows change or a recheck is due.
_SETTLED = ("too-large", "refused")


@dataclass(slots=True)
class Remembered:
    """Rows for the tables of lists and repositories, and archives to remove, once documents are kept.

    `renamed` leads from an old doc_id to the new one.
    """

    listed: list[dict[str, Any]] = field(default_factory=list)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    archives: list[Path] = field(default_factory=list)


@dataclass(slots=True)
class _UnitState:
    """State of reading one unit: its rows of LISTED as they are now.

    `moved` is set when an archive holds a later commit than the tree that was looked at.
    """

    unit: Unit
    rows: list[dict[str, Any]] = field(default_factory=list)
    moved: bool = False

    def cedes_any(self) -> bool:
        """Return whether the unit cedes one of its documents to another ref."""
        return not self.unit.ceded.isdisjoint(row["doc_id"] for row in self.rows)


class ChangeReader:
    """Turns looks at repositories into the items of a source, and notes what to remember of them.

    The reading began at `now`; an ETag holds only for the credential that `etag_key` identifies.
    """

    def __init__(
        self, spec: str, now: datetime, limits: DocumentLimits, etag_key: str, claims: Claims
    ) -> None:
        self._spec, self._now, self._limits, self._etag_key = spec, now, limits, etag_key
        self._claims = claims
        # Repository that was read last, and the documents that its refs have brought so far.
        self._last_read: tuple[str, frozenset[str]] = ("", frozenset())
        self.remembered = Remembered()

    def items(self, look: Fetched) -> Iterator[Item]:
        """Yield the items of one look; `remembered` is complete when the iterator ends."""
        if look.error is not None:
            yield from self._failed(look.unit, look.error)
        elif not look.parts:
            yield from self._unchanged(look)
        else:
            try:
                yield from self._read_parts(look)
            except ArchiveRefused as error:
                yield from self._refused(look, error)

    def _failed(self, unit: Unit, error: HttpTerminal | HttpTransient) -> Iterator[Item]:
        fate, row = fate_of(error.reason, unit.known, self._now)
        lost: dict[str, None] = {}
        if fate != "stale":
            held = _found_rows(unit)
            self._claims.release(held)
            # A law withdraws a document whatever other rows lead to it.
            rows = held if fate == "withdrawn" else self._claims.unclaimed(held)
            lost = dict.fromkeys(r["doc_id"] for r in rows)
            yield Gone(tuple(lost), fate, str(error))
            self.remembered.listed += [{**r, "outcome": error.reason, "digest": None} for r in held]
        yield Missed(tuple(d for d in _ids(unit) if d not in lost), error.reason, str(error))
        if error.reason in _SETTLED:
            row = {"state": error.reason}
        if unit.known.get("listed") != unit.digest:
            # A later "not modified" would say nothing of rows that were listed since.
            row |= {"commit": None, "etag": None}
        self._remember(unit, {**row, "detail": str(error), "listed": unit.digest})

    def _refused(self, look: Fetched, error: ArchiveRefused) -> Iterator[Item]:
        unit = look.unit
        detail = f"the archive of {unit.repository} is refused: {error.detail}"
        yield Missed(tuple(_ids(unit)), error.reason, detail)
        self._remember_archives(look)
        self._remember(unit, {"state": "refused", "detail": detail, "listed": unit.digest})

    def _unchanged(self, look: Fetched) -> Iterator[Item]:
        yield from _as_found(look.unit, self._spec)
        self._remember(look.unit, {**FOUND, "state": OK, "etag": look.etag, "etag_key": self._etag_key})

    def _read_parts(self, look: Fetched) -> Iterator[Item]:
        state = _UnitState(self._ceding(look.unit))
        for part in look.parts:
            if part.refused:
                yield Dropped(part.metadata.full_name, self._spec, "archive-too-large", part.refused)
            outcomes: dict[str, str] = {}
            for item in self._changed_documents(part, state):
                outcomes[item.doc_id] = OK if isinstance(item, RawDocument) else item.reason
                yield item
            yield from self._compare(part, outcomes, state)
        self._remember_found(look, state)

    def _ceding(self, unit: Unit) -> Unit:
        """Return the unit, ceding what an earlier ref of its repository has just brought."""
        name, brought = self._last_read
        return replace(unit, ceded=unit.ceded | brought) if name == unit.repository.lower() else unit

    def _changed_documents(self, part: Part, state: _UnitState) -> Iterator[RawDocument | Dropped]:
        unit = state.unit
        with Archive(part.archive) if part.archive else contextlib.nullcontext() as archive:
            # An archive that could only be had by its ref may be of a later commit.
            commit = (archive and archive.commit) or part.commit
            state.moved |= commit != part.commit
            own = replace(part, commit=commit, changed=part.changed - unit.ceded)
            yield from self._documents(unit, own, archive)

    def _remember_found(self, look: Fetched, state: _UnitState) -> None:
        unit, rows, first = state.unit, state.rows, look.parts[0]
        self.remembered.listed += [{**row, "digest": None} for row in rows] if state.moved else rows
        held = {r["doc_id"] for r in rows if r["outcome"] == OK}
        self._last_read = unit.repository.lower(), unit.ceded | held
        self._remember_archives(look)
        # A document that is ceded to another ref may fall to this one later, though nothing changes here.
        unsettled = state.moved or state.cedes_any()
        changed = {"changed_at": self._now} if any(part.changed for part in look.parts) else {}
        commit = first.commit if len(look.parts) == 1 else None
        settled = {"etag": None, "commit": None} if unsettled else {"etag": look.etag, "commit": commit}
        meta = first.metadata
        row = {
            "state": OK, "listed": unit.digest, "full_name": meta.full_name, "repo_id": meta.repo_id,
            "licence": meta.licence, "stars": meta.stars, "etag_key": self._etag_key,
        }  # fmt: skip
        self._remember(unit, {**FOUND, **row, **settled, **changed})

    def _documents(self, unit: Unit, part: Part, archive: Archive | None) -> Iterator[RawDocument | Dropped]:
        """Yield the changed skills, completed, and those of them that could not be read."""
        by_id = {skill.doc_id: row for row, skill in part.skills if skill is not None}
        pending = set(part.changed)
        for raw in self._read(part, archive):
            if raw.doc_id in pending:
                pending.remove(raw.doc_id)
                yield raw if isinstance(raw, Dropped) else self._complete(raw, unit, part, by_id[raw.doc_id])
            # A list of skills is not concerned with what else its repositories hold.
            elif unit.whole and isinstance(raw, Dropped) and raw.doc_id not in part.changed:
                yield raw
        for doc_id in sorted(pending):
            detail = f"commit {part.commit} has it, its archive has not"
            yield Dropped(doc_id, self._spec, "not-in-archive", detail)

    def _read(self, part: Part, archive: Archive | None) -> Iterator[RawDocument | Dropped]:
        rows = plan(archive.entries(), part.metadata.full_name, self._spec) if archive else part.rows
        read = archive.read if archive else partial(_fetched_file, part)
        for row in rows:
            if isinstance(row, BundledSkill):
                if row.doc_id in part.changed:
                    yield read_skill(row, read, self._limits, self._spec)
            # A tree does not tell where a link leads; an archive does.
            elif archive or row.reason != "symlink":
                yield row

    def _complete(
        self, raw: RawDocument, unit: Unit, part: Part, listed: dict[str, Any] | None
    ) -> RawDocument:
        meta, listing = part.metadata, listed or {}
        folder = raw.path.rpartition("/")[0] if raw.path else ""
        url = f"https://github.com/{meta.full_name}/tree/{part.commit}/{quote(folder)}".rstrip("/")
        before = unit.known.get("repo_id")
        message = f"{meta.full_name} was repository {before}, is {meta.repo_id}"
        found = [Finding("repository.recreated", "warning", message)] if _recreated(unit, part) else []
        return replace(
            raw, repo=meta.full_name, repo_id=meta.repo_id, ref=part.ref, commit=part.commit,
            tree_sha=part.tree.folders.get(folder), url=url, author=meta.full_name.partition("/")[0],
            stars=meta.stars if listing.get("stars") is None else listing["stars"],
            category=listing.get("category"), tags=tuple(listing.get("tags") or ()),
            repo_licence=meta.licence, findings=(*raw.findings, *found),
        )  # fmt: skip

    def _compare(self, part: Part, outcomes: dict[str, str], state: _UnitState) -> Iterator[Item]:
        """Yield what is said of rows whose skill was not read again; add every row as it is now."""
        unit, taken = state.unit, set[str]()
        for listed, skill in part.skills:
            if skill is None:
                yield from self._lost(listed or {}, part, state)
                continue
            doc_id, row = skill.doc_id, listed or _row_of(unit, skill)
            yield from self._not_read(doc_id, row, part, unit, again=doc_id in taken)
            taken.add(doc_id)
            yield from self._renamed(unit, part, row, doc_id)
            digest = skill_digest(skill, part.tree.folders.get(skill.entry.folder, ""), self._limits)
            known = {"outcome": outcomes.get(doc_id, OK), "doc_id": doc_id}
            state.rows.append({**row, **known, "digest": None if doc_id in unit.ceded else digest})
        if unit.whole:
            gone = [r for r in unit.listed if r["doc_id"] not in taken]
            state.rows += [{**r, "outcome": "not-found", "digest": None} for r in gone]

    def _not_read(
        self, doc_id: str, row: dict[str, Any], part: Part, unit: Unit, *, again: bool
    ) -> Iterator[Item]:
        if again or doc_id in unit.ceded:
            why = "listed twice, the first counts" if again else "listed at another ref too, which counts"
            detail = f"{row['source_id']}: {why}"
            yield Dropped(doc_id, self._spec, "duplicate_id", detail, lost_to=doc_id)
        elif doc_id not in part.changed:
            yield Unchanged((doc_id,))

    def _renamed(self, unit: Unit, part: Part, row: dict[str, Any], doc_id: str) -> Iterator[Item]:
        """Retire the former id of a row's document; if its repository was renamed, add an alias for it."""
        old = row["doc_id"]
        if old in (None, doc_id) or row["outcome"] != OK:
            return
        self._claims.release([row])
        if not self._claims.unclaimed([row]):
            return
        if _recreated(unit, part):
            yield Gone((old,), "retired", f"another repository has taken its place: {doc_id}")
        else:
            yield Gone((old,), "retired", f"renamed to {doc_id}")
            self.remembered.renamed[old] = doc_id

    def _lost(self, row: dict[str, Any], part: Part, state: _UnitState) -> Iterator[Item]:
        """Retire a row's document, if no other row leads to it: its folder holds no skill now."""
        detail = f"no SKILL.md in {row['rest'] or 'the root'} of {part.metadata.full_name}@{part.commit}"
        held = [row] if row["outcome"] == OK else []
        self._claims.release(held)
        if self._claims.unclaimed(held):
            yield Gone((row["doc_id"],), "retired", detail)
        else:
            yield Dropped(provisional_id(row), self._spec, "not-found", detail)
        state.rows.append({**row, "outcome": "not-found", "digest": None})

    def _remember_archives(self, look: Fetched) -> None:
        self.remembered.archives += [p.archive for p in look.parts if p.archive is not None]

    def _remember(self, unit: Unit, values: dict[str, Any]) -> None:
        key = {"repository": unit.repository.lower(), "ref": unit.ref, "source": unit.source}
        self.remembered.repositories.append({**unit.known, **key, "checked_at": self._now, **values})


def as_listed(unit: Unit, spec: str) -> Iterator[Item]:
    """Yield what the last look found of a unit's rows; documents that it could not reach are missed."""
    state = unit.known.get("state")
    if state in (None, OK):
        yield from _as_found(unit, spec)
    else:
        yield Missed(tuple(_ids(unit)), str(state), unit.known.get("detail") or "as at the last look")


def _recreated(unit: Unit, part: Part) -> bool:
    return unit.known.get("repo_id") not in (None, part.metadata.repo_id)


def _found_rows(unit: Unit) -> list[dict[str, Any]]:
    return [row for row in unit.listed if row["outcome"] == OK]


def _as_found(unit: Unit, spec: str) -> Iterator[Item]:
    if known := dict.fromkeys(row["doc_id"] for row in _found_rows(unit)):
        yield Unchanged(tuple(known))
    for row in unit.listed:
        if row["outcome"] != OK and not unit.whole:
            yield Dropped(provisional_id(row), spec, row["outcome"] or "missing", "as at the last look")


def provisional_id(listed: dict[str, Any]) -> str:
    """Return the id that a row's document has, or would have by its URL."""
    return str(listed["doc_id"] or "/".join(p for p in (listed["written"], listed["rest"]) if p))


def _ids(unit: Unit) -> list[str]:
    return list(dict.fromkeys(provisional_id(row) for row in unit.listed)) or [unit.repository]


def _row_of(unit: Unit, skill: BundledSkill) -> dict[str, Any]:
    return {
        "repository": unit.repository.lower(), "ref": unit.ref, "rest": skill.entry.folder,
        "source": unit.source, "source_id": skill.doc_id, "written": unit.repository, "doc_id": None,
        "outcome": None,
    }  # fmt: skip


def _fetched_file(part: Part, entry: SourceEntry) -> Iterator[bytes]:
    if entry.path not in part.files:
        raise OSError("it was not fetched")
    yield part.files[entry.path]
