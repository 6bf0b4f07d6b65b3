"""The source `git+URL[@REF]`: every SKILL.md of a git repository, read without checking it out.

The sample marketplace that comes with the package is read so too.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from storage.errors import SourceError, WrongInput
from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.client import PROTOCOLS, GitClient, open_git, run_git
from tasks.crawl.source.base import Source
from tasks.crawl.source.bundle import (
    DEFAULT_LIMITS,
    LINK_BYTES,
    BundledSkill,
    DocumentLimits,
    SourceEntry,
    plan,
    read_skill,
    wanted,
)
from tasks.crawl.source.identity import (
    GIT_REF,
    SAMPLE,
    author_of,
    hide_credentials,
    parse_remote,
    public_url,
    repository_name,
    skill_url,
)
from tasks.crawl.source.project import PROJECT_BYTES, PROJECT_FILES, project_of, without_copies

_COMMIT = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
_BATCH = 100  # documents whose blobs are fetched together
FOLDER = Path(__file__).parents[1] / "marketplace"
_SKIPPED = {".git", "__pycache__"}
_WHO = b"Skillery <skillery@localhost> 946684800 +0000"  # a fixed time, so that the commit id is fixed


class GitSource(Source):
    """The skills of one commit of a repository, in the order of their paths.

    The address is `URL[@REF]`; REF is a branch, a tag or a full commit id, the remote's HEAD by default; any
    other address raises WrongInput. One git command may take `timeout` seconds. Without `redirects` none of
    HTTP is followed: a host that was checked must not lead to another.
    """

    def __init__(
        self, address: str, *, limits: DocumentLimits = DEFAULT_LIMITS, timeout: float = 300.0,
        redirects: bool = True,
    ) -> None:  # fmt: skip
        self._url, ref = split_ref(address)
        self._ref, self._limits, self._timeout = ref or "HEAD", limits, timeout
        self._redirects = redirects
        self.spec = f"git+{public_url(self._url)}" + (f"@{ref}" if ref else "")

    def version(self) -> str:
        """Return the commit that would be read now; raises as `run_git`."""
        if _COMMIT.fullmatch(self._ref):
            return self._ref.lower()
        with self._client() as client:
            return client.commit_of(self._ref)

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield the commit's skills and the dropped entries; blobs are fetched for 100 documents at a time.

        Raises as `version`, and SourceError `no-skill` if the commit has no SKILL.md.
        """
        with self._client() as client:
            commit = client.fetch(self._ref)
            entries, trees = client.entries(commit, self._limits.repository_paths)
            project = project_of(self._held(client, entries, PROJECT_FILES))
            planned = plan(self._with_targets(entries, client), repository_name(self._url), self.spec)
            rows = [*without_copies(planned, project.copies, self.spec)]
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH]
                skills = [row for row in batch if isinstance(row, BundledSkill)]
                blobs = [entry.key for skill in skills for entry in wanted(skill, self._limits)]
                client.fetch_blobs(blobs, self._ref)
                sizes = client.sizes(blobs)
                for row in batch:
                    if isinstance(row, Dropped):
                        yield row
                    else:
                        found = self._document(row.sized(sizes), client, commit, trees)
                        if project.licence and isinstance(found, RawDocument):
                            found = replace(found, repo_licence=project.licence)
                        yield found
        if not any(isinstance(row, BundledSkill) for row in rows):
            raise SourceError(self.spec, "no-skill", f"there is no SKILL.md in commit {commit}")

    def files(self, paths: Collection[str]) -> dict[str, bytes]:
        """Return the contents, by path, of those of these files that the commit has; raises as `version`."""
        with self._client() as client:
            commit = client.fetch(self._ref)
            entries, _ = client.entries(commit, self._limits.repository_paths)
            return self._held(client, entries, paths)

    def _held(
        self, client: GitClient, entries: list[SourceEntry], paths: Collection[str]
    ) -> dict[str, bytes]:
        keys = {e.path: e.key for e in entries if e.path in paths and e.kind == "file"}
        client.fetch_blobs(keys.values(), self._ref)
        return {path: client.read(key, PROJECT_BYTES).head for path, key in keys.items()}

    def _client(self) -> GitClient:
        return GitClient(self._url, self.spec, timeout=self._timeout, redirects=self._redirects)

    def _with_targets(self, entries: list[SourceEntry], client: GitClient) -> Iterator[SourceEntry]:
        """Yield the entries, each link with its target, which git keeps as the text of a blob."""
        links = [entry for entry in entries if entry.kind == "link"]
        client.fetch_blobs((link.key for link in links), self._ref)
        sizes = client.sizes(link.key for link in links)
        for entry in entries:
            if entry.kind != "link":
                yield entry
            elif (size := sizes[entry.key]) > LINK_BYTES:
                yield replace(entry, kind="unreadable", note=f"a link of {size:,} bytes leads nowhere")
            else:
                target = client.read(entry.key, LINK_BYTES).head
                yield replace(entry, note=target.decode("utf-8", errors="replace"))

    def _document(
        self, skill: BundledSkill, client: GitClient, commit: str, trees: dict[str, str]
    ) -> RawDocument | Dropped:
        folder = skill.entry.folder
        return read_skill(
            skill, lambda entry, keep: client.read(entry.key, keep), self._limits, self.spec,
            repo=repository_name(self._url), ref=self._ref, commit=commit, tree_sha=trees[folder],
            url=skill_url(self._url, commit, folder), author=author_of(self._url),
        )  # fmt: skip


def normal_address(address: str) -> str:
    """Return `URL[@REF]` as its spec is remembered; a user or password in it raises WrongInput."""
    source = GitSource(address)
    remote = parse_remote(split_ref(address)[0])
    login, _, password = remote.user.partition(":")
    # The name before an SSH host is part of the address; before any other it may be a token.
    if password or (login and remote.scheme not in ("ssh", "scp")):
        detail = "a spec may hold no user or password: put them into ~/.netrc, or use SSH"
        raise WrongInput(f"{source.spec}: {detail}")
    return source.spec.removeprefix("git+")


def split_ref(address: str) -> tuple[str, str]:
    """Split `URL[@REF]` into URL and REF (empty: none); raise WrongInput if one of them cannot be used."""
    if address.startswith(("/", "./", "../", "~")):
        address = f"file://{os.path.abspath(os.path.expanduser(address))}".replace("%", "%25")
    if helper := re.match(r"\A[a-z0-9][a-z0-9+.-]*::", address, re.IGNORECASE):
        raise WrongInput(f"git remote helpers such as {helper[0]} are refused; give a URL")
    remote = parse_remote(address)
    if remote.scheme not in {*PROTOCOLS, "scp"}:
        raise WrongInput(f"git over {remote.scheme} is refused; use one of {', '.join(PROTOCOLS)}")
    # Only of the path: an @ in the user info begins no REF.
    ref = _local_ref(remote.path) if remote.scheme == "file" else _ref(remote.path)
    if ref is None:
        return address, ""
    # A REF goes to git as an argument: a leading `-` would be an option.
    if not GIT_REF.fullmatch(ref):
        raise WrongInput(f"{hide_credentials(ref)!r} is no git ref; give a branch, a tag or a full commit id")
    return address.removesuffix(f"@{ref}"), ref


def _ref(path: str) -> str | None:
    _, at, ref = path.partition("@")
    return ref if at else None


def _local_ref(path: str) -> str | None:
    """Return what follows the first @ before which a path exists: names of folders may contain an @ too."""
    if Path(unquote(path)).exists():
        return None
    ends = [at.start() for at in re.finditer("@", path)]
    return next((path[end + 1 :] for end in ends if Path(unquote(path[:end])).exists()), _ref(path))


def make_repository(folder: Path, into: Path) -> str:
    """Make a bare repository whose one commit holds the files of a folder; return its spec `git+file://...`.

    The commit id depends only on paths and bytes; a repository that is already there gets the commit as its
    branch `main`. Links stay links; file modes, `.git` and `__pycache__` are left out.
    """
    repository = open_git(into)
    with tempfile.TemporaryFile() as stream:
        _write_stream(folder, stream)
        stream.seek(0)
        run_git(repository, "fast-import", "--quiet", "--force", source=str(folder), istream=stream)
    return f"git+{into.resolve().as_uri()}"


def _write_stream(folder: Path, stream: BinaryIO) -> None:
    stream.write(b"commit refs/heads/main\nauthor %b\ncommitter %b\ndata 6\nSample\n" % (_WHO, _WHO))
    for path in sorted(_files(folder), key=lambda p: p.relative_to(folder).as_posix()):
        link = path.is_symlink()
        content = os.fsencode(os.readlink(path)) if link else path.read_bytes()
        name = os.fsencode(path.relative_to(folder).as_posix())
        for plain, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n")):
            name = name.replace(plain, escaped)
        stream.write(b'M %b inline "%b"\n' % (b"120000" if link else b"100644", name))
        stream.write(b"data %d\n%b\n" % (len(content), content))


def _files(folder: Path) -> Iterator[Path]:
    for child in folder.iterdir():
        if child.name in _SKIPPED:
            continue
        if child.is_dir() and not child.is_symlink():
            yield from _files(child)
        elif child.is_symlink() or child.is_file():
            yield child


class SampleSource(Source):
    """Reads the sample's repository, made below a root that its rows do not name, as a `GitSource`."""

    spec = SAMPLE

    def __init__(self, root: Root, **options: Any) -> None:  # noqa: ANN401 (GitSource's own)
        self._place, self._options = root.folder / "state" / "sample" / "marketplace", options

    def _repository(self) -> GitSource:
        return GitSource(make_repository(FOLDER, self._place).removeprefix("git+"), **self._options)

    def version(self) -> str | None:
        """Return the commit of the sample, which depends only on its paths and bytes."""
        return self._repository().version()

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield the sample's skills and the dropped entries."""
        for item in self._repository().read():
            row = replace(item, source=SAMPLE)
            yield row if isinstance(row, Dropped) else replace(row, url=None)
