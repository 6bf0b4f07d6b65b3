"""Fetches the changed skills of listed repositories over GitHub's API."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from storage.schemas import Dropped
from tasks.crawl.github.api import GitHub, Metadata, NotModified, Tree
from tasks.crawl.github.repositories import ListedRepository
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.source.bundle import BundledSkill, DocumentLimits, plan
from tasks.crawl.source.bundle import wanted as wanted_files
from tasks.crawl.source.identity import path_key, split_by_refs
from tasks.crawl.source.unchanged import comparable, etag_of, same_skill, skill_digest

_FEW_FILES = 3  # up to so many files are fetched one by one; more come as one archive
_LARGE_FEW = 30  # the same, of a repository whose archive is too large
_MOST_FAILURES = 20  # in a row; then the forge is down or tells us to stop, and is asked no more
_OF_REPOSITORY = ("missing", "denied", "unauthorised")  # reasons that speak of the repository itself
# Git's id of an empty folder, as SHA-1 and as SHA-256.
_EMPTY_TREES = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
)


class WantedSkill(NamedTuple):
    """A row of a list, None if it has none yet, and the skill in its folder, None if there is none."""

    row: dict[str, Any] | None
    skill: BundledSkill | None
    digest: str | None = None  # the `skill_digest`


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a repository at one ref, with the files of the skills that changed."""

    ref: str  # resolved; `HEAD` for the default branch
    commit: str
    metadata: Metadata
    tree: Tree
    rows: tuple[BundledSkill | Dropped, ...]  # everything the repository holds, from `plan`
    skills: tuple[WantedSkill, ...]
    changed: frozenset[str]  # doc_ids of wanted skills whose files differ from the last reading
    archive: Path | None = None  # of the commit, if more than a few files had to be fetched
    files: dict[str, bytes] = field(default_factory=dict)  # by path, if there is no archive
    refused: str | None = None  # why `files` were fetched in place of the archive


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The outcome of fetching a repository: snapshots, or an error; neither if it has not changed."""

    repository: ListedRepository
    snapshots: tuple[Snapshot, ...] = ()
    error: HttpTerminal | HttpTransient | None = None
    etag: str | None = None  # for the next time


class _Ref(NamedTuple):
    ref: str
    commit: str
    tree: str
    folders: dict[str, str] | None  # folders of skills by the folder that the list names; None: all skills


class Fetcher:
    """Fetches repositories, several at a time if asked to.

    Archives lie in `folder` until their documents are on disk, and are not fetched twice; `in_use` counts the
    snapshots that refer to each, and its reader counts them down. An ETag holds for one `etag_key` only.
    """

    def __init__(
        self, github: GitHub, spec: str, folder: Path, limits: DocumentLimits, etag_key: str
    ) -> None:
        self._github, self._spec, self._folder = github, spec, folder
        self._limits, self._key = limits, etag_key
        self.in_use: Counter[Path] = Counter()
        self._fetching: dict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._failed: list[HttpTransient] = []  # since something was answered

    async def fetch(self, repository: ListedRepository) -> FetchResult:
        """Return the present state of a repository, or the error met.

        After `_MOST_FAILURES` transient failures in a row nothing is requested before `begin_again`.
        """
        if len(self._failed) >= _MOST_FAILURES:
            last = self._failed[-1]
            detail = f"not asked for, since {len(self._failed)} before it failed, the last: {last}"
            return FetchResult(repository, error=HttpTransient(last.reason, repository.name, detail))
        try:
            result = await self._fetch(repository)
        except HttpTerminal as error:
            result = FetchResult(repository, error=error)
        except HttpTransient as error:
            self._failed.append(error)
            return FetchResult(repository, error=error)
        self._failed.clear()
        return result

    def begin_again(self) -> None:
        """Forget the failures, so that requests are sent again."""
        self._failed.clear()

    async def _fetch(self, repository: ListedRepository) -> FetchResult:
        known = repository.known
        may_be_same = comparable(known, repository.digest, repository.listed, self._limits)
        etag = etag_of(known, self._key) if may_be_same else None
        refs, new_etag = await self._refs(repository, etag)
        if not refs or (may_be_same and [r.commit for r in refs] == [known.get("commit")]):
            return FetchResult(repository, etag=new_etag or etag)
        metadata = await self._github.metadata(repository.name)
        try:
            snapshots = tuple([await self._snapshot(repository, ref, metadata) for ref in refs])
        except HttpTerminal as error:
            if error.reason not in _OF_REPOSITORY:
                raise
            # The repository was found: a missing tree or archive does not count as a miss of it.
            raise HttpTerminal("not-fetched", error.url, error.detail, status=error.status) from error
        return FetchResult(repository, snapshots, etag=new_etag)

    async def _refs(self, repository: ListedRepository, etag: str | None) -> tuple[list[_Ref], str | None]:
        """Return the commits that the listed rows lie in, none if nothing changed, and the new ETag."""
        try:
            commit = await self._github.commit(repository.name, repository.ref or "HEAD", etag=etag)
        except HttpTerminal as error:
            if repository.whole or not repository.ref or error.reason not in ("missing", "missing-ref"):
                raise
            return await self._resolved(repository), None
        if isinstance(commit, NotModified):
            return [], etag
        folders = None if repository.whole else {r["rest"]: r["rest"] for r in repository.listed}
        return [_Ref(repository.ref or "HEAD", commit.sha, commit.tree, folders)], commit.etag

    async def _resolved(self, repository: ListedRepository) -> list[_Ref]:
        """Return the refs that the rows name, which may hold slashes; HEAD replaces a ref that is gone."""
        names = await self._github.refs(repository.name, repository.ref)
        folders: dict[str, dict[str, str]] = defaultdict(dict)
        for row in repository.listed:
            rest = tuple(p for p in row["rest"].split("/") if p)
            # The skills of a merged branch lie in the same folders of another one.
            known = "/".join(row["doc_id"].split("/")[2:]) if row["doc_id"] else row["rest"]
            ref, folder = split_by_refs((repository.ref, *rest), names) or ("HEAD", known)
            folders[ref][row["rest"]] = folder
        return [await self._at(repository.name, ref, wanted) for ref, wanted in folders.items()]

    async def _at(self, name: str, ref: str, folders: dict[str, str]) -> _Ref:
        commit = await self._github.commit(name, ref)
        if isinstance(commit, NotModified):
            msg = f"{name}: the answer to an unconditional request is that nothing changed"
            raise HttpTerminal("shape", name, msg)
        return _Ref(ref, commit.sha, commit.tree, folders)

    async def _snapshot(self, repository: ListedRepository, ref: _Ref, metadata: Metadata) -> Snapshot:
        # Under the present name, since the redirect of an old one may lose the query.
        tree = await self._github.tree(metadata.full_name, ref.tree)
        _require_whole(tree, ref.tree, metadata.full_name)
        rows = tuple(plan(tree.entries, metadata.full_name, self._spec))
        skills = tuple(self._with_digest(wanted, tree) for wanted in _wanted(repository, ref, rows))
        # Of two rows that lead to one skill the later counts.
        by_id = {wanted.skill.doc_id: wanted for wanted in skills if wanted.skill}
        changed = frozenset(
            doc_id
            for doc_id, (row, _, digest) in by_id.items()
            if doc_id not in repository.earlier and not same_skill(row, doc_id, digest or "")
        )
        snapshot = Snapshot(ref.ref, ref.commit, metadata, tree, rows, skills, changed)
        to_read = [wanted.skill for d in sorted(changed) if (wanted := by_id[d]).skill]
        return await self._with_files(repository, snapshot, to_read) if to_read else snapshot

    def _with_digest(self, wanted: WantedSkill, tree: Tree) -> WantedSkill:
        if wanted.skill is None:
            return wanted
        folder_sha = tree.folders.get(wanted.skill.entry.folder, "")
        return wanted._replace(digest=skill_digest(wanted.skill, folder_sha, self._limits))

    async def _with_files(
        self, repository: ListedRepository, snapshot: Snapshot, skills: list[BundledSkill]
    ) -> Snapshot:
        """Return the snapshot with the files of changed skills: fetched singly if few, else as an archive."""
        paths = list(dict.fromkeys(e.path for s in skills for e in wanted_files(s, self._limits)))
        if len(paths) <= _FEW_FILES and (files := await self._single(snapshot, paths)) is not None:
            return replace(snapshot, files=files)
        name = hashlib.sha256(f"{repository.name.lower()}@{snapshot.commit}".encode()).hexdigest()[:24]
        archive = self._folder / f"{name}.zip"
        full_name = snapshot.metadata.full_name
        try:
            async with self._fetching[archive]:  # two refs may name one commit
                if not archive.exists():
                    await self._github.archive(full_name, snapshot.commit, snapshot.ref, archive)
        except HttpTerminal as error:
            few = error.reason == "too-large" and len(paths) <= _LARGE_FEW
            files = await self._single(snapshot, paths) if few else None
            if files is None:
                raise
            return replace(snapshot, files=files, refused=f"{error}; its files were fetched one by one")
        self.in_use[archive] += 1
        return replace(snapshot, archive=archive)

    async def _single(self, snapshot: Snapshot, paths: list[str]) -> dict[str, bytes] | None:
        """Return these files; None if one is too large for a bundle, or cannot be had singly.

        A mirror without commits gave a tree's id in place of a commit, and no single files exist by that.
        """
        name, commit, most = snapshot.metadata.full_name, snapshot.commit, self._limits.bundle_bytes
        try:
            return {path: await self._github.raw(name, commit, path, max_bytes=most) for path in paths}
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
    repository: ListedRepository, ref: _Ref, rows: tuple[BundledSkill | Dropped, ...]
) -> list[WantedSkill]:
    """Return each listed row with the skill in its folder or, if all skills are wanted, each with its row."""
    skills = {row.entry.folder: row for row in rows if isinstance(row, BundledSkill)}
    if ref.folders is None:
        known = {r["rest"]: r for r in repository.listed}
        return [WantedSkill(known.get(folder), skill) for folder, skill in skills.items()]
    # Lists may write case and accents otherwise.
    loosely = {path_key(folder): skill for folder, skill in skills.items()}
    found = ((r, ref.folders[r["rest"]]) for r in repository.listed if r["rest"] in ref.folders)
    return [WantedSkill(row, skills.get(folder) or loosely.get(path_key(folder))) for row, folder in found]
