"""Fetches the changed skills of listed repositories over GitHub's API."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from storage.schemas import Dropped
from tasks.crawl.github.api import GitHub, Metadata, Tree
from tasks.crawl.github.archive import Archive, ArchiveRefused, has_control, object_id
from tasks.crawl.github.repositories import ListedRepository, RepositoryIds
from tasks.crawl.http.responses import HttpFailed, HttpTerminal, HttpTransient
from tasks.crawl.source.bundle import BundledSkill, DocumentLimits, SourceEntry, plan
from tasks.crawl.source.bundle import wanted as wanted_files
from tasks.crawl.source.identity import path_key, split_by_refs
from tasks.crawl.source.project import PROJECT_BYTES, PROJECT_FILES, Project, project_of, without_copies
from tasks.crawl.source.unchanged import comparable, etag_of, same_skill, skill_digest

_FEW_FILES = 3  # up to so many files are fetched one by one; more come as one archive
_MOST_FAILURES = 20  # in a row; then the forge is down or tells us to stop, and is asked no more
_OF_SIZE = ("archive-files", "archive-size")  # why an archive is refused that is as it should be
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
    name: str  # with which its ids begin, see `RepositoryIds`
    tree: Tree
    rows: tuple[BundledSkill | Dropped, ...]  # everything the repository holds, from `plan`
    skills: tuple[WantedSkill, ...]
    changed: frozenset[str]  # doc_ids of wanted skills whose files differ from the last reading
    archive: Path | None = None  # of the commit, if more than a few files had to be fetched
    files: dict[str, Path] = field(default_factory=dict)  # fetched one by one, by path
    # Why files can be had neither so nor from the archive, by path; where it is transient, the next run may.
    failed: dict[str, HttpFailed] = field(default_factory=dict)
    refused: tuple[str, str] | None = None  # reason and detail of an archive that is not read
    project: Project = Project()  # noqa: RUF009 (it cannot be changed)

    @property
    def on_disk(self) -> list[Path]:
        """The archive, and the folder of the files."""
        folders = {path.parent for path in self.files.values()}
        return [*([self.archive] if self.archive else []), *folders]


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

    Archives and single files, at most `single_files` of a repository, lie in `folder` until their documents
    are on disk, and are not fetched twice; `in_use` counts the snapshots that refer to each, and its reader
    counts them down. An ETag holds for one `etag_key` only.
    """

    def __init__(
        self, github: GitHub, spec: str, folder: Path, limits: DocumentLimits, etag_key: str,
        single_files: int, ids: RepositoryIds,
    ) -> None:  # fmt: skip
        self._ids = ids
        self._github, self._spec, self._folder = github, spec, folder
        self._limits, self._key, self._single_files = limits, etag_key, single_files
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
        if commit is None:
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
        if commit is None:
            msg = f"{name}: the answer to an unconditional request is that nothing changed"
            raise HttpTerminal("shape", name, msg)
        return _Ref(ref, commit.sha, commit.tree, folders)

    async def _snapshot(self, repository: ListedRepository, ref: _Ref, metadata: Metadata) -> Snapshot:
        # Under the present name, since the redirect of an old one may lose the query.
        tree = await self._github.tree(metadata.full_name, ref.tree)
        _require_whole(tree, ref.tree, metadata.full_name)
        name = self._ids.name_of(metadata.full_name, metadata.repo_id)
        project = await self._project(metadata.full_name, ref.commit, tree)
        rows = tuple(without_copies(plan(tree.entries, name, self._spec), project.copies, self._spec))
        skills = tuple(self._with_digest(wanted, tree) for wanted in _wanted(repository, ref, rows))
        # Of two rows that lead to one skill the later counts.
        by_id = {wanted.skill.doc_id: wanted for wanted in skills if wanted.skill}
        changed = frozenset(
            doc_id
            for doc_id, (row, _, digest) in by_id.items()
            if doc_id not in repository.earlier and not same_skill(row, doc_id, digest or "")
        )
        snapshot = Snapshot(ref.ref, ref.commit, metadata, name, tree, rows, skills, changed, project=project)
        to_read = [wanted.skill for d in sorted(changed) if (wanted := by_id[d]).skill]
        return await self._with_files(repository, snapshot, to_read) if to_read else snapshot

    async def _project(self, name: str, commit: str, tree: Tree) -> Project:
        """Return what files at the repository's root say; one that cannot be had says nothing."""
        found: dict[str, bytes] = {}
        for entry in tree.entries:
            if entry.path in PROJECT_FILES and entry.kind == "file":
                try:
                    found[entry.path] = await self._github.raw(name, commit, entry.path, PROJECT_BYTES)
                except HttpTerminal as error:
                    if error.reason in ("withdrawn", "unauthorised"):
                        raise
        return project_of(found)

    def _with_digest(self, wanted: WantedSkill, tree: Tree) -> WantedSkill:
        if wanted.skill is None:
            return wanted
        folder_sha = tree.folders.get(wanted.skill.entry.folder, "")
        return wanted._replace(digest=skill_digest(wanted.skill, folder_sha, self._limits))

    async def _with_files(
        self, repository: ListedRepository, snapshot: Snapshot, skills: list[BundledSkill]
    ) -> Snapshot:
        """Return the snapshot with the files of changed skills: one by one if few, else from an archive.

        What the tree lists and the archive lacks, or has with other bytes (`.gitattributes` may say so), is
        fetched one by one too, and all of it where there is no archive that can be read.
        """
        wanted = list({e.path: e for s in skills for e in wanted_files(s, self._limits)}.values())
        name = hashlib.sha256(f"{repository.name.lower()}@{snapshot.commit}".encode()).hexdigest()[:24]
        archive, folder = self._folder / f"{name}.zip", self._folder / name
        if len(wanted) <= _FEW_FILES and (few := await self._few(snapshot, wanted, folder)):
            return few
        try:
            async with self._fetching[archive]:  # two refs may name one commit
                if not archive.exists():
                    full_name = snapshot.metadata.full_name
                    await self._github.archive(full_name, snapshot.commit, snapshot.ref, archive)
                self.in_use[archive] += 1
            lacking, unlike = await asyncio.to_thread(_compared, archive, wanted, folder)
        except (HttpTerminal, ArchiveRefused) as error:
            if error.reason in ("withdrawn", "unauthorised"):
                raise
            if isinstance(error, ArchiveRefused) and error.reason not in _OF_SIZE:
                return replace(snapshot, archive=archive)  # its reader refuses it
            reason = error.reason if isinstance(error, ArchiveRefused) else f"archive-{error.reason}"
            refused = reason, f"{error}; its files were fetched one by one"
            try:
                return await self._singly(replace(snapshot, refused=refused), wanted, folder)
            except HttpTerminal as of_file:
                raise (error if isinstance(error, HttpTerminal) else of_file) from of_file
        return await self._singly(replace(snapshot, archive=archive), [*lacking, *unlike], folder, unlike)

    async def _few(self, snapshot: Snapshot, wanted: list[SourceEntry], folder: Path) -> Snapshot | None:
        """Return the snapshot with these files, or None if an archive may have what cannot be had singly."""
        with contextlib.suppress(HttpTerminal):
            single = await self._singly(snapshot, wanted, folder)
            if passing := [error for error in single.failed.values() if isinstance(error, HttpTransient)]:
                raise passing[0]
            return None if single.failed else single
        return None

    async def _singly(
        self, snapshot: Snapshot, wanted: list[SourceEntry], folder: Path,
        unlike: Collection[SourceEntry] = (),
    ) -> Snapshot:  # fmt: skip
        """Return the snapshot with these files, one by one, until the forge allows no more.

        `unlike` are those that the archive has with other bytes, which count where the forge has none that
        fit their ids either. Where there is no archive, and the first files cannot be had, that is raised.
        """
        self.in_use[folder] += 1
        files: dict[str, Path] = {}
        failed: dict[str, HttpFailed] = {}
        stop: HttpFailed | None = None
        asked = 0
        for entry in wanted:
            known = (folder / entry.key).exists()
            asked += not known
            if asked > self._single_files:
                detail = f"{self._single_files:,} of its files were fetched singly; see SKILLERY_SINGLE_FILES"
                stop = stop or HttpTransient("budget", snapshot.metadata.full_name, detail)
            try:
                if stop is not None and not known:
                    raise stop
                file = await self._blob(snapshot, entry, folder)
            except HttpFailed as error:
                failed[entry.path] = error
                # A mirror may have no single files: it is not asked for all.
                if isinstance(error, HttpTransient) or (len(failed) >= _FEW_FILES and not files):
                    stop = error
                continue
            if entry in unlike and not _fits(file):
                break  # the ids of this mirror are not git's, and tell nothing of other files either
            files[entry.path] = file
        if failed and not (snapshot.archive or files):
            raise next(iter(failed.values()))
        for entry in unlike:
            failed.pop(entry.path, None)
        return replace(snapshot, files=files, failed=failed)

    async def _blob(self, snapshot: Snapshot, entry: SourceEntry, folder: Path) -> Path:
        """Return a file of a commit that lies on disk under its id; what lies there is not fetched again."""
        path, name = folder / entry.key, snapshot.metadata.full_name
        if has_control(entry.path):
            raise HttpTerminal("refused", name, "the name has a control character")
        if not path.exists():
            most = self._limits.bundle_bytes
            content = await self._github.raw(name, snapshot.commit, entry.path, max_bytes=most)
            _keep(content, path)
        return path


def _keep(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_bytes(content)
    path.with_suffix(".tmp").replace(path)


def _compared(
    path: Path, wanted: list[SourceEntry], folder: Path
) -> tuple[list[SourceEntry], list[SourceEntry]]:
    """Return which files an archive lacks, and which it has with other bytes than their ids are of.

    Where only the ends of lines differ, as `.gitattributes` may ask, the file is put into `folder`.
    """
    with Archive(path) as archive:
        held = {entry.path: entry for entry in archive.entries() if entry.kind == "file"}
        lacking = [entry for entry in wanted if entry.path not in held]
        others = (entry for entry in wanted if entry.path in held)
        unlike = [e for e in others if not archive.is_object(held[e.path], e.key)]
        for entry in unlike:
            with contextlib.suppress(OSError):
                content = archive.read(held[entry.path], held[entry.path].size).head.replace(b"\r\n", b"\n")
                if object_id([content], len(content), entry.key) == entry.key:
                    _keep(content, folder / entry.key)
        return lacking, unlike


def _fits(file: Path) -> bool:
    """Tell whether a file is the blob that its name is the id of; a mirror's ids need not be git's."""
    content = file.read_bytes()
    return object_id([content], len(content), file.name) == file.name


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
