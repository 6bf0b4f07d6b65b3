"""Fetches the changed skills of a repository over GitHub's API."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from storage.schemas import Dropped
from tasks.crawl.github.api import GitHub
from tasks.crawl.github.due import OPEN, Unit
from tasks.crawl.github.responses import Metadata, NotModified, Tree
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.source.bundle import BundledSkill, plan
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.github_url import split_by_refs
from tasks.crawl.source.identity import path_key
from tasks.crawl.source.skill import wanted as wanted_files

_FEW_FILES = 3  # up to so many files are fetched one by one; more come as one archive
_LARGE_FEW = 30  # the same, of a repository whose archive is too large
_MOST_FAILURES = 20  # in a row; then the forge is down or tells us to stop, and is asked no more
_OF_REPOSITORY = ("missing", "denied", "unauthorised")  # reasons that speak of the repository itself
# Git's id of an empty folder, as SHA-1 and as SHA-256.
_EMPTY_TREES = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
)


@dataclass(frozen=True, slots=True)
class Part:
    """One ref of a repository as it was looked at."""

    ref: str  # resolved; `HEAD` for the default branch
    commit: str
    metadata: Metadata
    tree: Tree
    rows: tuple[BundledSkill | Dropped, ...]  # everything the repository holds, from `plan`
    # The wanted skills: a listed row and the skill in its folder, None if there is none.
    skills: tuple[tuple[dict[str, Any] | None, BundledSkill | None], ...]
    changed: frozenset[str]  # doc_ids of wanted skills whose files differ from the last look
    archive: Path | None = None  # of the commit, if more than a few files had to be fetched
    files: dict[str, bytes] = field(default_factory=dict)  # by path, if there is no archive
    refused: str | None = None  # why `files` were fetched in place of the archive


@dataclass(frozen=True, slots=True)
class Fetched:
    """The outcome of looking at a unit: parts, or an error; neither if it has not changed."""

    unit: Unit
    parts: tuple[Part, ...] = ()
    error: HttpTerminal | HttpTransient | None = None
    etag: str | None = None  # for the next look


class _Ref(NamedTuple):
    ref: str
    commit: str
    tree: str
    folders: dict[str, str] | None  # folders of skills by the folder that the list names; None: all skills


def skill_digest(skill: BundledSkill, folder_sha: str, limits: DocumentLimits) -> str:
    """Return the digest of git's ids of a skill's folder, its files and the licences above it.

    Before it stand the limits of what is kept of its files.
    """
    # A mirror may leave folders out of its trees; the ids of the files tell the same.
    parts = [folder_sha, skill.entry.key, *(f"{e.path} {e.key}" for e in (*skill.files, *skill.licences))]
    return _keeping(limits) + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _keeping(limits: DocumentLimits) -> str:
    return f"{limits.kept_files}/{limits.kept_bytes}:"


class Fetcher:
    """Looks at repositories, several at a time if asked to.

    Archives lie in `folder` until their documents are on disk, and are not fetched twice; `in_use` counts the
    parts that refer to each, and its reader counts them down. An ETag holds for one `etag_key` only.
    """

    def __init__(
        self, github: GitHub, spec: str, folder: Path, limits: DocumentLimits, etag_key: str
    ) -> None:
        self._github, self._spec, self._folder = github, spec, folder
        self._limits, self._key, self._keeping = limits, etag_key, _keeping(limits)
        self.in_use: Counter[Path] = Counter()
        self._fetching: dict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._failed: list[HttpTransient] = []  # since something was answered

    async def look(self, unit: Unit) -> Fetched:
        """Return the present state of a unit, or the error met.

        After `_MOST_FAILURES` transient failures in a row nothing is requested before `begin_again`.
        """
        if len(self._failed) >= _MOST_FAILURES:
            last = self._failed[-1]
            detail = f"not asked for, since {len(self._failed)} before it failed, the last: {last}"
            return Fetched(unit, error=HttpTransient(last.reason, unit.repository, detail))
        try:
            look = await self._look(unit)
        except HttpTerminal as error:
            look = Fetched(unit, error=error)
        except HttpTransient as error:
            self._failed.append(error)
            return Fetched(unit, error=error)
        self._failed.clear()
        return look

    def begin_again(self) -> None:
        """Forget the failures, so that requests are sent again."""
        self._failed.clear()

    async def _look(self, unit: Unit) -> Fetched:
        known = unit.known
        same_list = known.get("listed") == unit.digest and known.get("state") in ("ok", *OPEN)
        # Files that were read under other limits are read again, when their repository is due.
        same_list = same_list and all(
            r["digest"].startswith(self._keeping) for r in unit.listed if r["digest"]
        )
        etag = known.get("etag") if same_list and known.get("etag_key") == self._key else None
        refs, new_etag = await self._refs(unit, etag)
        if not refs or (same_list and [r.commit for r in refs] == [known.get("commit")]):
            return Fetched(unit, etag=new_etag or etag)
        metadata = await self._github.metadata(unit.repository)
        try:
            parts = tuple([await self._part(unit, ref, metadata) for ref in refs])
        except HttpTerminal as error:
            if error.reason not in _OF_REPOSITORY:
                raise
            # The repository was found: a missing tree or archive does not count as a miss of it.
            raise HttpTerminal("not-fetched", error.url, error.detail, status=error.status) from error
        return Fetched(unit, parts, etag=new_etag)

    async def _refs(self, unit: Unit, etag: str | None) -> tuple[list[_Ref], str | None]:
        """Return the commits that the unit's rows lie in, none if nothing changed, and the new ETag."""
        try:
            commit = await self._github.commit(unit.repository, unit.ref or "HEAD", etag=etag)
        except HttpTerminal as error:
            if unit.whole or not unit.ref or error.reason not in ("missing", "missing-ref"):
                raise
            return await self._resolved(unit), None
        if isinstance(commit, NotModified):
            return [], etag
        folders = None if unit.whole else {r["rest"]: r["rest"] for r in unit.listed}
        return [_Ref(unit.ref or "HEAD", commit.sha, commit.tree, folders)], commit.etag

    async def _resolved(self, unit: Unit) -> list[_Ref]:
        """Return the refs that the rows name, which may hold slashes; HEAD replaces a ref that is gone."""
        names = await self._github.refs(unit.repository, unit.ref)
        folders: dict[str, dict[str, str]] = defaultdict(dict)
        for row in unit.listed:
            rest = tuple(p for p in row["rest"].split("/") if p)
            # The skills of a merged branch lie in the same folders of another one.
            known = "/".join(row["doc_id"].split("/")[2:]) if row["doc_id"] else row["rest"]
            ref, folder = split_by_refs((unit.ref, *rest), names) or ("HEAD", known)
            folders[ref][row["rest"]] = folder
        return [await self._at(unit, ref, wanted) for ref, wanted in folders.items()]

    async def _at(self, unit: Unit, ref: str, folders: dict[str, str]) -> _Ref:
        commit = await self._github.commit(unit.repository, ref)
        if isinstance(commit, NotModified):
            msg = f"{unit.repository}: the answer to an unconditional request is that nothing changed"
            raise HttpTerminal("shape", unit.repository, msg)
        return _Ref(ref, commit.sha, commit.tree, folders)

    async def _part(self, unit: Unit, ref: _Ref, metadata: Metadata) -> Part:
        # Under the present name, since the redirect of an old one may lose the query.
        tree = await self._github.tree(metadata.full_name, ref.tree)
        _require_whole(tree, ref.tree, metadata.full_name)
        rows = tuple(plan(tree.entries, metadata.full_name, self._spec))
        skills = _wanted(unit, ref, rows)
        by_id = {skill.doc_id: (row, skill) for row, skill in skills if skill is not None}
        changed = frozenset(
            doc_id
            for doc_id, (row, skill) in by_id.items()
            if doc_id not in unit.ceded and _changed(row, skill, tree, self._limits)
        )
        part = Part(ref.ref, ref.commit, metadata, tree, rows, skills, changed)
        return await self._fetched(unit, part, [by_id[d][1] for d in sorted(changed)]) if changed else part

    async def _fetched(self, unit: Unit, part: Part, skills: list[BundledSkill]) -> Part:
        """Return the part with the files of changed skills: fetched singly if few, else as an archive."""
        paths = list(dict.fromkeys(e.path for s in skills for e in wanted_files(s, self._limits)))
        if len(paths) <= _FEW_FILES and (files := await self._single(part, paths)) is not None:
            return replace(part, files=files)
        name = hashlib.sha256(f"{unit.repository.lower()}@{part.commit}".encode()).hexdigest()[:24]
        archive = self._folder / f"{name}.zip"
        try:
            async with self._fetching[archive]:  # two refs may name one commit
                if not archive.exists():
                    await self._github.archive(part.metadata.full_name, part.commit, part.ref, archive)
        except HttpTerminal as error:
            few = error.reason == "too-large" and len(paths) <= _LARGE_FEW
            files = await self._single(part, paths) if few else None
            if files is None:
                raise
            return replace(part, files=files, refused=f"{error}; its files were fetched one by one")
        self.in_use[archive] += 1
        return replace(part, archive=archive)

    async def _single(self, part: Part, paths: list[str]) -> dict[str, bytes] | None:
        """Return these files; None if one is too large for a bundle, or cannot be had singly.

        A mirror without commits gave a tree's id in place of a commit, and no single files exist by that.
        """
        try:
            return {
                path: await self._github.raw(
                    part.metadata.full_name, part.commit, path, max_bytes=self._limits.bundle_bytes
                )
                for path in paths
            }
        except HttpTerminal as error:
            if error.reason not in ("too-large", *_OF_REPOSITORY):
                raise
            return None


def _require_whole(tree: Tree, sha: str, repository: str) -> None:
    """Raise HttpTerminal if a tree is not the one asked for, or does not list every file."""
    if tree.sha != sha or (not tree.entries and sha not in _EMPTY_TREES):
        found = f"holds nothing of tree {sha}" if tree.sha == sha else f"is {tree.sha}, not {sha}"
        raise HttpTerminal("shape", repository, f"the tree of {repository} that was answered {found}")
    paths = [*(e.path for e in tree.entries), *tree.folders]
    # Git keeps no empty folders: one without files means that only the top level was listed.
    empty = tree.folders.keys() - {path.rpartition("/")[0] for path in paths} - {""}
    if empty:
        raise HttpTerminal("shape", repository, f"the tree of {repository} lacks what is in {min(empty)!r}")


def _wanted(
    unit: Unit, ref: _Ref, rows: tuple[BundledSkill | Dropped, ...]
) -> tuple[tuple[dict[str, Any] | None, BundledSkill | None], ...]:
    """Return each listed row with the skill in its folder or, if all skills are wanted, each with its row."""
    skills = {row.entry.folder: row for row in rows if isinstance(row, BundledSkill)}
    if ref.folders is None:
        known = {r["rest"]: r for r in unit.listed}
        return tuple((known.get(folder), skill) for folder, skill in skills.items())
    # Lists may write case and accents otherwise.
    loosely = {path_key(folder): skill for folder, skill in skills.items()}
    found = ((r, ref.folders[r["rest"]]) for r in unit.listed if r["rest"] in ref.folders)
    return tuple((row, skills.get(folder) or loosely.get(path_key(folder))) for row, folder in found)


def _changed(row: dict[str, Any] | None, skill: BundledSkill, tree: Tree, limits: DocumentLimits) -> bool:
    if row is None or row["outcome"] != "ok" or row["doc_id"] != skill.doc_id:
        return True
    return bool(row["digest"] != skill_digest(skill, tree.folders.get(skill.entry.folder, ""), limits))
