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
from tasks.crawl.github.archive import Archive, read_archive
from tasks.crawl.github.archive_limits import ArchiveRefused
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Fetched, Part, skill_digest
from tasks.crawl.github.retirement import FOUND, Claims, fate_of
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.source.bundle import BundledSkill, SourceEntry
from tasks.crawl.source.content import DocumentLimits, read_skill
from tasks.crawl.source.protocol import Gone, Item, Missed, Unchanged

OK = "ok"
# Looked at in vain: not again before something else is listed, or it is time to look again anyway.
_SETTLED = ("too-large", "refused")


@dataclass(slots=True)
class Remembered:
    """Rows to put into the tables of lists and repositories, and files to remove, once documents are kept."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    archives: list[Path] = field(default_factory=list)


class ChangeReader:
    """Turns looks into items, one at a time.

    Args:
        spec: The spec of the source.
        now: When the reading began.
        limits: What is taken of one document at most.
        etag_key: What an ETag is good for: the API's credential.
        claims: Which documents several rows of the list lead to.
    """

    def __init__(
        self, spec: str, now: datetime, limits: DocumentLimits, etag_key: str, claims: Claims
    ) -> None:
        self._spec, self._now, self._limits, self._etag_key = spec, now, limits, etag_key
        self._claims = claims
        self._brought: tuple[str, frozenset[str]] = ("", frozenset())  # of the repository read last
        self.remembered = Remembered()

    def items(self, look: Fetched) -> Iterator[Item]:
        """Yield what a look brought; what is to be remembered is complete when the iterator ends."""
        if look.error is not None:
            yield from self._failed(look.unit, look.error)
        elif not look.parts:
            yield from self._as_it_was(look)
        else:
            try:
                yield from self._found(look)
            except ArchiveRefused as error:
                yield from self._refused(look, error)

    def _failed(self, unit: Unit, error: HttpTerminal | HttpTransient) -> Iterator[Item]:
        fate, row = fate_of(error.reason, unit.known, self._now)
        if error.reason in _SETTLED:
            row = {"state": error.reason}
        if unit.known.get("listed") != unit.digest:
            row |= {"commit": None, "etag": None}  # that it is as it was says nothing of rows new since then
        lost: list[str] = []
        if fate != "stale":
            had = [r for r in unit.listed if r["outcome"] == OK]
            last = [r["doc_id"] for r in had if self._claims.lost(r)]
            lost = [r["doc_id"] for r in had] if fate == "withdrawn" else last
            yield Gone(tuple(dict.fromkeys(lost)), fate, str(error))
            self.remembered.listed += [{**r, "outcome": error.reason, "digest": None} for r in had]
        yield Missed(tuple(d for d in _ids(unit) if d not in lost), error.reason, str(error))
        self._remember(unit, {**row, "detail": str(error), "listed": unit.digest})

    def _refused(self, look: Fetched, error: ArchiveRefused) -> Iterator[Item]:
        unit = look.unit
        detail = f"the archive of {unit.repository} is refused: {error.detail}"
        yield Missed(tuple(_ids(unit)), error.reason, detail)
        self.remembered.archives += [p.archive for p in look.parts if p.archive is not None]
        self._remember(unit, {"state": "refused", "detail": detail, "listed": unit.digest})

    def _as_it_was(self, look: Fetched) -> Iterator[Item]:
        yield from _as_found(look.unit, self._spec)
        self._remember(look.unit, {**FOUND, "state": OK, "etag": look.etag, "etag_key": self._etag_key})

    def _found(self, look: Fetched) -> Iterator[Item]:
        unit = self._behind(look.unit)
        rows: list[dict[str, Any]] = []
        moved = False
        for part in look.parts:
            outcomes: dict[str, str] = {}
            if part.refused:
                yield Dropped(part.metadata.full_name, self._spec, "archive-too-large", part.refused)
            with contextlib.ExitStack() as stack:
                archive = stack.enter_context(Archive(part.archive)) if part.archive else None
                # Where the archive could only be had by its ref, that may have gone on since.
                commit = (archive and archive.commit) or part.commit
                moved |= commit != part.commit
                own = replace(part, commit=commit, changed=part.changed - unit.ceded)
                for item in self._documents(unit, own, archive):
                    outcomes[item.doc_id] = OK if isinstance(item, RawDocument) else item.reason
                    yield item
            yield from self._settle(unit, part, outcomes, rows)
        first = look.parts[0]
        # What is another ref's now may be this one's at the next look, though nothing changes here.
        again = moved or not unit.ceded.isdisjoint(r["doc_id"] for r in rows)
        self.remembered.listed += [{**row, "digest": None} for row in rows] if moved else rows
        held = frozenset(r["doc_id"] for r in rows if r["outcome"] == OK)
        self._brought = unit.repository.lower(), unit.ceded | held
        self.remembered.archives += [p.archive for p in look.parts if p.archive is not None]
        changed = any(p.changed for p in look.parts)
        row = {
            **FOUND, "state": OK, "listed": unit.digest, "full_name": first.metadata.full_name,
            "repo_id": first.metadata.repo_id, "licence": first.metadata.licence,
            "stars": first.metadata.stars, "etag": None if again else look.etag, "etag_key": self._etag_key,
            "commit": first.commit if len(look.parts) == 1 and not again else None,
        }  # fmt: skip
        self._remember(unit, {**row, "changed_at": self._now} if changed else row)

    def _behind(self, unit: Unit) -> Unit:
        """Return a unit that cedes what another ref of its repository has just brought."""
        name, brought = self._brought
        return replace(unit, ceded=unit.ceded | brought) if name == unit.repository.lower() else unit

    def _documents(self, unit: Unit, part: Part, archive: Archive | None) -> Iterator[RawDocument | Dropped]:
        """Yield the changed skills, completed, and those of them that could not be read."""
        by_id = {skill.doc_id: row for row, skill in part.skills if skill is not None}
        met = set()
        for raw in self._read(part, archive):
            if raw.doc_id in met or raw.doc_id not in part.changed:
                # What else a repository holds concerns a list of its skills as little as its other files.
                if unit.whole and isinstance(raw, Dropped) and raw.doc_id not in met:
                    yield raw
                continue
            met.add(raw.doc_id)
            yield raw if isinstance(raw, Dropped) else self._complete(raw, unit, part, by_id[raw.doc_id])
        for doc_id in sorted(part.changed - met):
            detail = f"commit {part.commit} has it, its archive has not"
            yield Dropped(doc_id, self._spec, "not-in-archive", detail)

    def _read(self, part: Part, archive: Archive | None) -> Iterator[RawDocument | Dropped]:
        if archive is not None:
            name = part.metadata.full_name
            yield from read_archive(
                archive, name, self._spec, self._limits, lambda s: s.doc_id in part.changed
            )
            return
        for row in part.rows:
            if isinstance(row, BundledSkill) and row.doc_id in part.changed:
                yield read_skill(row, lambda entry: _held(part, entry), self._limits, self._spec)
            # A tree does not tell where a link leads; an archive does.
            elif isinstance(row, Dropped) and row.reason != "symlink":
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

    def _settle(
        self, unit: Unit, part: Part, outcomes: dict[str, str], rows: list[dict[str, Any]]
    ) -> Iterator[Item]:
        """Yield what is said of skills that were not read again; add every row listed, as it is now."""
        taken: set[str] = set()
        for listed, skill in part.skills:
            if skill is None:
                yield from self._lost(listed or {}, part, rows)
                continue
            row = listed or _row_of(unit, skill)
            if skill.doc_id in taken:
                detail = f"{row['source_id']}: listed twice, the first counts"
                yield Dropped(skill.doc_id, self._spec, "duplicate_id", detail, lost_to=skill.doc_id)
            elif skill.doc_id in unit.ceded:
                detail = f"{row['source_id']}: listed at another ref too, which counts"
                yield Dropped(skill.doc_id, self._spec, "duplicate_id", detail, lost_to=skill.doc_id)
            elif skill.doc_id not in part.changed:
                yield Unchanged((skill.doc_id,))
            taken.add(skill.doc_id)
            yield from self._moved(unit, part, row, skill.doc_id)
            digest = skill_digest(skill, part.tree.folders.get(skill.entry.folder, ""))
            known = {"outcome": outcomes.get(skill.doc_id, OK), "doc_id": skill.doc_id}
            rows.append({**row, **known, "digest": None if skill.doc_id in unit.ceded else digest})
        if unit.whole:
            gone = [r for r in unit.listed if r["doc_id"] not in taken]
            rows += [{**r, "outcome": "not-found", "digest": None} for r in gone]

    def _moved(self, unit: Unit, part: Part, row: dict[str, Any], doc_id: str) -> Iterator[Item]:
        """Retire the id that a row's document had; where its repository was renamed, that leads on."""
        old = row["doc_id"]
        if old is None or old == doc_id or row["outcome"] != OK or not self._claims.lost(row):
            return
        if _recreated(unit, part):
            yield Gone((old,), "retired", f"another repository has taken its place: {doc_id}")
        else:
            yield Gone((old,), "retired", f"renamed to {doc_id}")
            self.remembered.renamed[old] = doc_id

    def _lost(self, listed: dict[str, Any], part: Part, rows: list[dict[str, Any]]) -> Iterator[Item]:
        detail = f"no SKILL.md in {listed['rest'] or 'the root'} of {part.metadata.full_name}@{part.commit}"
        if listed["outcome"] == OK and self._claims.lost(listed):
            yield Gone((listed["doc_id"],), "retired", detail)
        else:
            yield Dropped(provisional_id(listed), self._spec, "not-found", detail)
        rows.append({**listed, "outcome": "not-found", "digest": None})

    def _remember(self, unit: Unit, values: dict[str, Any]) -> None:
        key = {"repository": unit.repository.lower(), "ref": unit.ref, "source": unit.source}
        self.remembered.repositories.append({**unit.known, **key, "checked_at": self._now, **values})


def as_listed(unit: Unit, spec: str) -> Iterator[Item]:
    """Yield what is known of a unit's rows by the last look; what could not be had then is not there now."""
    state = unit.known.get("state")
    if state in (None, OK):
        yield from _as_found(unit, spec)
    else:
        yield Missed(tuple(_ids(unit)), str(state), unit.known.get("detail") or "as at the last look")


def _recreated(unit: Unit, part: Part) -> bool:
    return unit.known.get("repo_id") not in (None, part.metadata.repo_id)


def _as_found(unit: Unit, spec: str) -> Iterator[Item]:
    known = tuple(r["doc_id"] for r in unit.listed if r["outcome"] == OK)
    if known:
        yield Unchanged(tuple(dict.fromkeys(known)))
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


def _held(part: Part, entry: SourceEntry) -> Iterator[bytes]:
    if entry.path not in part.files:
        raise OSError("it was not fetched")
    yield part.files[entry.path]
