"""The source `git+URL[@REF]`: every SKILL.md of a git repository, read without checking it out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from storage.errors import SourceError, WrongInput
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.client import PROTOCOLS, GitClient
from tasks.crawl.source.bundle import BundledSkill, SourceEntry, plan
from tasks.crawl.source.content import DEFAULT_LIMITS, DocumentLimits, consume
from tasks.crawl.source.identity import (
    GIT_REF,
    author_of,
    hide_credentials,
    parse_remote,
    public_url,
    repository_name,
    skill_url,
)
from tasks.crawl.source.protocol import WholeSource
from tasks.crawl.source.skill import read_skill, wanted

_COMMIT = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
_BATCH = 100  # documents whose blobs are fetched together
_LINK_BYTES = 4_096


class GitSource(WholeSource):
    """The skills of one commit of a repository, in the order of their paths.

    The address is `URL[@REF]`; REF is a branch, a tag or a full commit id, the remote's HEAD by default; any
    other address raises WrongInput. One git command may take `timeout` seconds.
    """

    def __init__(
        self, address: str, *, limits: DocumentLimits = DEFAULT_LIMITS, timeout: float = 300.0
    ) -> None:
        self._url, ref = split_ref(address)
        self._ref, self._limits, self._timeout = ref or "HEAD", limits, timeout
        self.spec = f"git+{public_url(self._url)}" + (f"@{ref}" if ref else "")

    def version(self) -> str:
        """Return the commit that would be read now.

        Raises:
            SourceError: `missing`, `not-a-repository`, `missing-ref`, `denied` and the like.
            SourceUnavailable: The remote did not answer, or not in time.
        """
        if _COMMIT.fullmatch(self._ref):
            return self._ref.lower()
        with self._client() as client:
            return client.commit_of(self._ref)

    def read(self) -> Iterator[RawDocument | Dropped]:
        """Yield the commit's skills and the dropped entries; blobs are fetched for 100 documents at a time.

        Raises:
            SourceError, SourceUnavailable: As `version`; `no-skill` if the commit has no SKILL.md.
        """
        with self._client() as client:
            commit = client.fetch(self._ref)
            entries, trees = client.entries(commit, self._limits.repository_paths)
            rows = plan(self._with_targets(entries, client), repository_name(self._url), self.spec)
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH]
                skills = [row for row in batch if isinstance(row, BundledSkill)]
                client.fetch_blobs((e.key for s in skills for e in wanted(s, self._limits)), self._ref)
                for row in batch:
                    yield row if isinstance(row, Dropped) else self._document(row, client, commit, trees)
        if not any(isinstance(row, BundledSkill) for row in rows):
            raise SourceError(self.spec, "no-skill", f"there is no SKILL.md in commit {commit}")

    def _client(self) -> GitClient:
        return GitClient(self._url, self.spec, timeout=self._timeout)

    def _with_targets(self, entries: list[SourceEntry], client: GitClient) -> Iterator[SourceEntry]:
        """Yield the entries, each link with its target, which git keeps as the text of a blob."""
        client.fetch_blobs((e.key for e in entries if e.kind == "link"), self._ref)
        for entry in entries:
            if entry.kind == "link":
                target = consume(client.read(entry.key), keep=_LINK_BYTES).head
                yield replace(entry, note=target.decode("utf-8", errors="replace"))
            else:
                yield entry

    def _document(
        self, skill: BundledSkill, client: GitClient, commit: str, trees: dict[str, str]
    ) -> RawDocument | Dropped:
        folder = skill.entry.folder
        return read_skill(
            skill, lambda entry: client.read(entry.key), self._limits, self.spec,
            repo=repository_name(self._url), ref=self._ref, commit=commit, tree_sha=trees[folder],
            url=skill_url(self._url, commit, folder), author=author_of(self._url),
        )  # fmt: skip


def split_ref(address: str) -> tuple[str, str]:
    """Split `URL[@REF]` into URL and REF (empty: none); raise WrongInput if one of them cannot be used."""
    if address.startswith(("/", "./", "../", "~")):
        address = f"file://{os.path.abspath(os.path.expanduser(address))}".replace("%", "%25")
    if helper := re.match(r"[a-z0-9][a-z0-9+.-]*::", address, re.IGNORECASE):
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
