"""The changes of a repository since the last crawl: documents, and the rows to remember."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from storage.schemas import Dropped, Finding, RawDocument
from tasks.crawl.github.archive import Archive, ArchiveRefused
from tasks.crawl.github.fetch import FetchResult, Snapshot
from tasks.crawl.github.repositories import (
    NO_MISSES,
    ListedRepository,
    ReferenceCounts,
    RepositoryIds,
    fate_of,
)
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.source.base import Gone, Item, Missed, Unchanged
from tasks.crawl.source.bundle import (
    BundledSkill,
    Content,
    DocumentLimits,
    SourceEntry,
    consume,
    plan,
    read_skill,
)
from tasks.crawl.source.bundle import wanted as wanted_files
from tasks.crawl.source.identity import RECREATED, doc_key, together
from tasks.crawl.source.project import without_copies
from tasks.crawl.source.unchanged import INCOMPLETE

_OK = "ok"
# Such a repository is not looked at again before its rows change or a recheck is due.
_FINAL = ("too-large", "refused")


@dataclass(slots=True)
class PendingState:
    """Rows for the tables of lists and repositories, and archives to remove, once documents are kept.

    `renamed` leads from an old doc_id to the new one.
    """

    listed: list[dict[str, Any]] = field(default_factory=list)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    archives: list[Path] = field(default_factory=list)


class ChangeReader:
    """Turns what was fetched of repositories into the items of a source, and notes what to remember of them.

    The reading began at `now`; an ETag holds only for the credential that `etag_key` identifies.
    """

    def __init__(
        self, spec: str, now: datetime, limits: DocumentLimits, etag_key: str, references: ReferenceCounts,
        ids: RepositoryIds,
    ) -> None:  # fmt: skip
        self._spec, self._now, self._limits, self._etag_key = spec, now, limits, etag_key
        self._references, self._ids = references, ids
        # Repository that was read last, and the documents that its refs have brought so far.
        self._last_read: tuple[str, frozenset[str]] = ("", frozenset())
        self.pending = PendingState()

    def items(self, result: FetchResult) -> Iterator[Item]:
        """Yield the items of one repository; `pending` is complete when the iterator ends."""
        if result.error is not None:
            yield from self._failed(result.repository, result.error)
        elif not result.snapshots:
            yield from _as_found(result.repository, self._spec)
            row = {**NO_MISSES, "state": _OK, "etag": result.etag, "etag_key": self._etag_key}
            self._remember(result.repository, row)
        else:
            try:
                yield from self._read_all(result)
            except ArchiveRefused as error:
                yield from self._refused(result, error)

    def _failed(self, repository: ListedRepository, error: HttpTerminal | HttpTransient) -> Iterator[Item]:
        fate, row = fate_of(error.reason, repository.known, self._now)
        lost: dict[str, None] = {}
        if fate != "stale":
            held = _found_rows(repository)
            self._references.release(held)
            # A law withdraws a document whatever other rows lead to it.
            rows = held if fate == "withdrawn" else self._references.unreferenced(held)
            lost = dict.fromkeys(r["doc_id"] for r in rows)
            yield Gone(tuple(lost), fate, str(error))
            self.pending.listed += [{**r, "outcome": error.reason, "digest": None} for r in held]
        yield Missed(tuple(d for d in _ids(repository) if d not in lost), error.reason, str(error))
        if error.reason in _FINAL:
            row = {"state": error.reason}
        if repository.known.get("listed") != repository.digest:
            # A later "not modified" would say nothing of rows that were listed since.
            row |= {"commit": None, "etag": None}
        self._remember(repository, {**row, "detail": str(error), "listed": repository.digest})

    def _refused(self, result: FetchResult, error: ArchiveRefused) -> Iterator[Item]:
        repository = result.repository
        detail = f"the archive of {repository.name} is refused: {error.detail}"
        yield Missed(tuple(_ids(repository)), error.reason, detail)
        self._remember_archives(result)
        self._remember(repository, {"state": "refused", "detail": detail, "listed": repository.digest})

    def _read_all(self, result: FetchResult) -> Iterator[Item]:
        repository = result.repository
        last, brought = self._last_read
        if last == repository.name.lower():  # what an earlier ref has just brought is left to it
            repository = replace(repository, earlier=repository.earlier | brought)
        rows: list[dict[str, Any]] = []  # of LISTED, as they are now
        for snapshot in result.snapshots:
            if snapshot.refused:
                yield Dropped(snapshot.name, self._spec, *snapshot.refused)
            outcomes: dict[str, str] = {}
            own = replace(snapshot, changed=snapshot.changed - repository.earlier)
            for missed in self._left(own):
                outcomes[missed.doc_ids[0]] = missed.reason
                yield missed
            own = replace(own, changed=own.changed.difference(outcomes))
            with Archive(snapshot.archive) if snapshot.archive else contextlib.nullcontext() as archive:
                for item in self._documents(repository, own, archive):
                    if isinstance(item, RawDocument) or item.lost_to is None:
                        outcomes[item.doc_id] = _OK if isinstance(item, RawDocument) else item.reason
                    yield item
            yield from self._compare(repository, snapshot, outcomes, rows)
        self._remember_found(result, repository, rows)

    def _left(self, snapshot: Snapshot) -> Iterator[Missed]:
        """Yield the changed skills of which some files are left to the next run."""
        left = {path: e for path, e in snapshot.failed.items() if isinstance(e, HttpTransient)}
        for skill in (wanted.skill for wanted in snapshot.skills if left and wanted.skill):
            why = next((left[e.path] for e in wanted_files(skill, self._limits) if e.path in left), None)
            if why is not None and skill.doc_id in snapshot.changed:
                yield Missed((skill.doc_id,), why.reason, str(why))

    def _remember_found(
        self, result: FetchResult, repository: ListedRepository, rows: list[dict[str, Any]]
    ) -> None:
        first = result.snapshots[0]
        self.pending.listed += rows
        held = {r["doc_id"] for r in rows if r["outcome"] == _OK}
        self._last_read = repository.name.lower(), repository.earlier | held
        self._remember_archives(result)
        # A document that is left to another ref may fall to this one later, though nothing changes here.
        shared = not repository.earlier.isdisjoint(row["doc_id"] for row in rows)
        commit = first.commit if len(result.snapshots) == 1 else None
        left = any(isinstance(e, HttpTransient) for s in result.snapshots for e in s.failed.values())
        known = {"etag": None, "commit": None} if left or shared else {"etag": result.etag, "commit": commit}
        changed = {"changed_at": self._now} if any(s.changed for s in result.snapshots) else {}
        meta = first.metadata
        first_id = self._ids.first(repository.name, meta.repo_id)
        if not self._ids.knows(meta.full_name):  # each name that a renamed one ever had stays its own
            known_as = {"repository": meta.full_name.lower(), "ref": "", "source": repository.source}
            self._ids.first(meta.full_name, meta.repo_id)
            self.pending.repositories.append({**known_as, "repo_id": meta.repo_id})
        row = {
            "state": INCOMPLETE if left else _OK, "listed": repository.digest, "stars": meta.stars,
            "full_name": meta.full_name, "repo_id": first_id,
            "licence": meta.licence, "etag_key": self._etag_key,
        }  # fmt: skip
        self._remember(repository, {**NO_MISSES, **row, **known, **changed})

    def _documents(
        self, repository: ListedRepository, snapshot: Snapshot, archive: Archive | None
    ) -> Iterator[RawDocument | Dropped]:
        by_id = {wanted.skill.doc_id: wanted.row for wanted in snapshot.skills if wanted.skill}
        for raw in self._read(snapshot, archive):
            if isinstance(raw, RawDocument):
                yield self._completed(raw, snapshot, by_id[raw.doc_id])
            # A list of skills is not concerned with what else its repositories hold.
            elif repository.whole or {raw.doc_id, raw.lost_to} & snapshot.changed:
                yield raw

    def _completed(self, raw: RawDocument, snapshot: Snapshot, listed: dict[str, Any] | None) -> RawDocument:
        meta, listing, found = snapshot.metadata, listed or {}, list(raw.findings)
        folder = raw.path.rpartition("/")[0] if raw.path else ""
        url = f"https://github.com/{meta.full_name}/tree/{snapshot.commit}/{quote(folder)}".rstrip("/")
        if snapshot.name != meta.full_name:
            first = self._ids.first(meta.full_name, meta.repo_id)
            message = f"{meta.full_name} was repository {first}, is {meta.repo_id}"
            found.append(Finding(RECREATED, "warning", message))
        return replace(
            raw, repo=meta.full_name, repo_id=meta.repo_id, ref=snapshot.ref, commit=snapshot.commit,
            tree_sha=snapshot.tree.folders.get(folder), url=url, author=meta.full_name.partition("/")[0],
            stars=meta.stars if listing.get("stars") is None else listing["stars"],
            category=listing.get("category"), tags=tuple(listing.get("tags") or ()),
            repo_licence=meta.licence or snapshot.project.licence, findings=tuple(found),
        )  # fmt: skip

    def _read(self, snapshot: Snapshot, archive: Archive | None) -> Iterator[RawDocument | Dropped]:
        held = {entry.path: entry for entry in archive.entries()} if archive else {}

        def read(entry: SourceEntry, keep: int) -> Content:
            if file := snapshot.files.get(entry.path):
                return consume([file.read_bytes()], keep)
            if error := snapshot.failed.get(entry.path):
                raise OSError(f"it could not be fetched: {error}")
            if archive is None or entry.path not in held:
                raise OSError("it was not fetched")
            return archive.read(held[entry.path], keep)

        # A tree does not tell where a link leads; an archive does.
        entries = (held.get(e.path, e) if e.kind == "link" else e for e in snapshot.tree.entries)
        rows = plan(entries, snapshot.name, self._spec) if archive else snapshot.rows
        for row in without_copies(rows, snapshot.project.copies, self._spec):
            if isinstance(row, BundledSkill):
                if row.doc_id in snapshot.changed:
                    yield read_skill(row, read, self._limits, self._spec)
            elif archive or row.reason != "symlink":
                yield row

    def _compare(
        self, repository: ListedRepository, snapshot: Snapshot, outcomes: dict[str, str],
        rows: list[dict[str, Any]],
    ) -> Iterator[Item]:  # fmt: skip
        """Yield the items of skills that were not read again; add every row as it is now to `rows`."""
        taken = set[str]()
        for listed, skill, digest in snapshot.skills:
            if skill is None:
                yield from self._lost(listed or {}, snapshot)
                rows.append({**(listed or {}), "outcome": "not-found", "digest": None})
                continue
            doc_id, row = skill.doc_id, listed or _row_of(repository, skill)
            of_earlier_ref = doc_id in repository.earlier
            if doc_id in taken or of_earlier_ref:
                why = "listed twice, the first counts"
                why = why if doc_id in taken else "listed at another ref too, which counts"
                detail = f"{row['source_id']}: {why}"
                yield Dropped(doc_id, self._spec, "duplicate_id", detail, lost_to=doc_id)
            elif doc_id not in snapshot.changed:
                yield Unchanged((doc_id,))
            taken.add(doc_id)
            yield from self._renamed(snapshot, row, doc_id)
            known = {"outcome": outcomes.get(doc_id, _OK), "doc_id": doc_id}
            rows.append({**row, **known, "digest": None if of_earlier_ref else digest})
        if repository.whole:
            gone = [r for r in repository.listed if r["doc_id"] not in taken]
            rows += [{**r, "outcome": "not-found", "digest": None} for r in gone]

    def _renamed(self, snapshot: Snapshot, row: dict[str, Any], doc_id: str) -> Iterator[Item]:
        """Retire the former id of a row's document; if it was of this repository, add an alias for it."""
        old = row["doc_id"]
        if old in (None, doc_id) or row["outcome"] != _OK:
            return
        self._references.release([row])
        if not self._references.unreferenced([row]):
            return
        name = "/".join(old.split("/")[:2])
        if doc_key(self._ids.name_of(together(name), snapshot.metadata.repo_id)) != doc_key(name):
            yield Gone((old,), "retired", f"another repository has taken its place: {doc_id}")
        else:
            yield Gone((old,), "retired", f"renamed to {doc_id}")
            self.pending.renamed[old] = doc_id

    def _lost(self, row: dict[str, Any], snapshot: Snapshot) -> Iterator[Item]:
        """Retire a row's document, if no other row leads to it: its folder holds no skill now."""
        place = f"{snapshot.metadata.full_name}@{snapshot.commit}"
        detail = f"no SKILL.md in {row['rest'] or 'the root'} of {place}"
        held = [row] if row["outcome"] == _OK else []
        self._references.release(held)
        if self._references.unreferenced(held):
            yield Gone((row["doc_id"],), "retired", detail)
        else:
            yield Dropped(_provisional_id(row), self._spec, "not-found", detail)

    def _remember_archives(self, result: FetchResult) -> None:
        self.pending.archives += [path for s in result.snapshots for path in s.on_disk]

    def _remember(self, repository: ListedRepository, values: dict[str, Any]) -> None:
        key = {
            "repository": repository.name.lower(), "ref": repository.ref, "source": repository.source,
        }  # fmt: skip
        self.pending.repositories.append({**repository.known, **key, "checked_at": self._now, **values})


def as_listed(repository: ListedRepository, spec: str) -> Iterator[Item]:
    """Yield what was found last of a repository's rows; documents that could not be reached are missed."""
    state = repository.known.get("state")
    if state in (None, _OK, INCOMPLETE):
        yield from _as_found(repository, spec)
    else:
        detail = repository.known.get("detail") or "as at the last look"
        yield Missed(tuple(_ids(repository)), str(state), detail)


def _found_rows(repository: ListedRepository) -> list[dict[str, Any]]:
    return [row for row in repository.listed if row["outcome"] == _OK]


def _as_found(repository: ListedRepository, spec: str) -> Iterator[Item]:
    if known := dict.fromkeys(row["doc_id"] for row in _found_rows(repository)):
        yield Unchanged(tuple(known))
    for row in repository.listed:
        # What a whole repository once held, and no longer does, is retired.
        if row["outcome"] != _OK and not (repository.whole and row["outcome"] in (None, "not-found")):
            yield Dropped(_provisional_id(row), spec, row["outcome"] or "missing", "as at the last look")


def _provisional_id(listed: dict[str, Any]) -> str:
    """Return the id that a row's document has, or would have by its URL."""
    return str(listed["doc_id"] or "/".join(p for p in (listed["written"], listed["rest"]) if p))


def _ids(repository: ListedRepository) -> list[str]:
    return list(dict.fromkeys(map(_provisional_id, repository.listed))) or [repository.name]


def _row_of(repository: ListedRepository, skill: BundledSkill) -> dict[str, Any]:
    return {
        "repository": repository.name.lower(), "ref": repository.ref, "rest": skill.entry.folder,
        "source": repository.source, "source_id": skill.doc_id, "written": repository.name, "doc_id": None,
        "outcome": None,
    }  # fmt: skip
