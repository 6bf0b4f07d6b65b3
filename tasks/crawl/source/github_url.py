"""Parses a GitHub URL, without requesting it, into a repository and a folder at some ref of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

_HOSTS = {"github.com", "www.github.com"}
_PORTS = {"http": {None, 80}, "https": {None, 443}}
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,38}")  # an underscore ends the name of a company's user
_REPO = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
# Pages of the site itself; no owner can have these names.
_PAGES = {
    *("about", "apps", "collections", "enterprise", "explore", "features", "login", "marketplace", "orgs"),
    *("search", "settings", "site", "sponsors", "stars", "topics", "trending", "users"),
}


@dataclass(frozen=True, slots=True)
class GithubUrl:
    """A folder of a repository on github.com."""

    owner: str  # as written; GitHub compares it in any letter case
    repo: str  # as written, without `.git`
    kind: Literal["root", "tree", "blob"] = "root"  # the repository itself, a folder, or a file's folder
    rest: tuple[str, ...] = ()  # a ref, which may contain slashes, and then the folder

    @property
    def repository(self) -> str:
        """The name that doc_ids begin with."""
        return f"{self.owner}/{self.repo}"

    def candidates(self) -> list[tuple[str, str]]:
        """Return every reading as ref and folder (empty: the root), the shortest ref first."""
        return [("/".join(self.rest[:n]), "/".join(self.rest[n:])) for n in range(1, len(self.rest) + 1)]


def parse_github_url(url: str | None) -> GithubUrl | None:
    """Return the folder that a URL names, or None if it is no place in a repository of github.com.

    A `blob`, and a `tree` that ends in SKILL.md in any letter case, name the file's folder. Query and
    fragment are ignored; percent-encoding is undone.
    """
    parts = _path_parts(url or "")
    if len(parts) < 2:
        return None
    owner, repo = parts[0], re.sub(r"(?<=.)\.git$", "", parts[1], flags=re.IGNORECASE)
    if not _OWNER.fullmatch(owner) or owner.lower() in _PAGES or not _REPO.fullmatch(repo):
        return None
    return _below(owner, repo, parts[2], parts[3:]) if len(parts) > 2 else GithubUrl(owner, repo)


def split_by_refs(rest: tuple[str, ...], refs: Collection[str]) -> tuple[str, str] | None:
    """Return ref and folder of `rest` by the longest of the refs that it begins with, or None."""
    known = set(refs)
    readings = GithubUrl("", "", "tree", rest).candidates()
    return next((reading for reading in reversed(readings) if reading[0] in known), None)


def _path_parts(url: str) -> list[str]:
    """Return the decoded parts of a github.com URL's path; none if it has a user or an unusual port."""
    try:
        split = urlsplit(url.strip())
        usual = split.username is None and split.port in _PORTS.get(split.scheme, ())
        parts = [part for part in unquote(split.path, errors="strict").split("/") if part]
    except ValueError:
        return []
    return parts if usual and split.hostname in _HOSTS and all(map(_is_plain, parts)) else []


def _is_plain(part: str) -> bool:
    controls = any(unicodedata.category(character) in {"Cc", "Cs"} for character in part)
    return part not in {".", ".."} and not controls


def _below(owner: str, repo: str, word: str, rest: list[str]) -> GithubUrl | None:
    if word == "tree" and rest:
        names_skill = len(rest) > 1 and rest[-1].lower() == "skill.md"
        return GithubUrl(owner, repo, "tree", tuple(rest[:-1] if names_skill else rest))
    if word == "blob" and len(rest) > 1:
        return GithubUrl(owner, repo, "blob", tuple(rest[:-1]))
    return None
