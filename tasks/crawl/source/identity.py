"""The identity of a skill: its doc_id and public URL, derived from the URL of its repository."""

from __future__ import annotations

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from storage.errors import WrongInput
from tasks.models.redact import redact, secrets_in

_URL = re.compile(
    r"^(?P<scheme>[a-z][a-z0-9+.-]*)://(?:(?P<user>[^/]*)@)?(?P<host>[^/@]*)(?P<path>/.*)?$", re.I | re.S
)
_SCP = re.compile(r"^(?:(?P<user>[^@:/]+)@)?(?P<host>\[[^\]]+\]|[^@:/]+):(?P<path>(?!:|//).+)$", re.S)
_USER_INFO = re.compile(r"(?<=://)(?:[^/\s:]*:\S*|[^/\s]*)@")  # generous: a password may hold a slash
RECREATED = "repository.recreated"  # the finding that another repository has taken a name
SAMPLE = "sample"  # the spec of the marketplace that comes with the package
# A name that git takes for a branch, a tag or a commit.
GIT_REF = re.compile(r"\A(?!-)(?!.*\.\.)[^\s~^:?*\[\\\x00-\x1f\x7f]+")
_GITHUB = {"github.com", "www.github.com", "ssh.github.com"}
_HOSTS = {"github.com", "www.github.com"}
_PORTS = {"http": {None, 80}, "https": {None, 443}}
_APART = re.compile(r"(?<=.)~[0-9a-f]{6}\Z")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,38}")  # an underscore ends the name of a company's user
_REPO = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
# Pages of the site itself; no owner can have these names.
_PAGES = {
    *("about", "apps", "collections", "enterprise", "explore", "features", "login", "marketplace", "orgs"),
    *("search", "settings", "site", "sponsors", "stars", "topics", "trending", "users"),
}


class Remote(NamedTuple):
    """The parts of a git URL; `user` is what stands before the last @ of the authority, with the password."""

    scheme: str
    user: str
    host: str
    path: str


def parse_remote(url: str) -> Remote:
    """Return the parts of a URL or of the scp-like `user@host:path` (scheme `scp`).

    Raises:
        WrongInput: It is neither, or its port is no number; the message hides the URL's credentials.
    """
    match = _URL.match(url) or _SCP.match(url)
    if match is None:
        shown = hide_credentials(url)
        raise WrongInput(f"{shown!r} is not a git URL; give https://, ssh://, git:// or file://")
    parts = match.groupdict()
    scheme = (parts.get("scheme") or "scp").lower()
    port = re.search(r":([^\]]*)$", parts["host"])
    if port and not port[1].isdigit():
        raise WrongInput(
            "the port of a git URL is no number; percent-encode special characters in a password"
        )
    return Remote(scheme, parts["user"] or "", parts["host"].lower(), parts["path"] or "/")


def public_url(url: str) -> str:
    """Return the URL without its credentials; an SSH address keeps its user's name, but no password."""
    remote = parse_remote(url)
    login = remote.user.partition(":")[0]
    user = f"{login}@" if login and remote.scheme in {"ssh", "scp"} else ""
    if remote.scheme == "scp":
        return f"{user}{remote.host}:{remote.path}"
    path = remote.path if remote.scheme == "file" else re.split(r"[?#]", remote.path)[0]
    return f"{remote.scheme}://{user}{remote.host}{path}"


def hide_credentials(text: str, url: str = "") -> str:
    """Return `text` without any URL's user info and without the secret of `url`, encoded or decoded."""
    text = _USER_INFO.sub("", text)
    found = _URL.match(url)
    login, _, password = ((found and found["user"]) or "").partition(":")
    # The name before an SSH host is an account such as `git`; before any other it may be a token.
    secret = password or ("" if url.lower().startswith("ssh:") else login)
    for form in {secret, unquote(secret)} - {""}:
        text = text.replace(form, "***")
    return text


_STDIO, REDACTED = "mcp:stdio:", "[redacted]"
# What is called so holds a secret, unless it says where that lies; `p` and `key` may be a port and a path.
_SECRET = re.compile(
    r"(?:token(?!s|iz)|secret|passw|pwd|(?:api|access|private)[_-]?key|credential|authorization|bearer"
    r"|\b(?:pass|pat|jwt|cookie)\b|[?&]key\b)"
    r"(?![\w.-]*(?:file|path|env|dir))[\w.-]*\s*[=:]\s*\S|://[^/\s@]*:[^/\s@]+@"
    r"|^(?:auth|user|u)=[^\s:/]+:(?!\d+$)\S|^p=(?![\d:.]+$|[./~@])\S"
    r"|^key=(?![./~]|\S+\.(?:pem|key|crt|json)$)\S|\[redacted\]$",
    re.IGNORECASE | re.MULTILINE,
)


def shown_spec(spec: str) -> str:
    """Return a spec as it is printed: of an MCP server's command that holds a secret, its program alone."""
    if not spec.startswith(_STDIO):
        return spec
    try:
        words = shlex.split(spec.removeprefix(_STDIO))
    except ValueError:  # it was taken once
        words = spec.removeprefix(_STDIO).split()
    # `--api-key X` is one to `redact` where it is written as an assignment.
    parts = " ".join(words).split()  # those of a shell's command, too
    pairs = [
        f"{a.lstrip('-')}={b}" for a, b in pairwise(parts) if a.startswith("-") and not b.startswith("-")
    ]
    said = "\n".join([*words, *(word.lstrip("-") for word in parts), *pairs])
    if not (secrets_in(said) or _SECRET.search(said)):
        return spec
    return f"{_STDIO}{PurePath(redact(words[0])[0]).name.partition('=')[0]} {REDACTED}"


def repository_name(url: str) -> str:
    """Return `owner/repo` for github.com, `host/owner/repo` elsewhere, `local/<last path part>` for files."""
    remote = parse_remote(url)
    local = remote.scheme == "file"
    path = remote.path if local else re.split(r"[?#]", remote.path)[0]
    parts = [p for p in unquote(path).split("/") if p not in {"", ".", ".git"}]
    parts[-1:] = [re.sub(r"(?<=.)\.git\Z", "", part, flags=re.I | re.S) for part in parts[-1:]]
    if local:
        return f"local/{parts[-1] if parts else 'root'}"
    host = _without_port(remote.host)
    return "/".join(parts if host in _GITHUB else [host, *parts])


def _without_port(host: str) -> str:
    return re.sub(r":\d*$", "", host)


def author_of(url: str) -> str | None:
    """Return the owner, which is the first part of the path where a second follows; None for files."""
    remote = parse_remote(url)
    parts = [p for p in unquote(remote.path).split("/") if p]
    return parts[0] if len(parts) > 1 and remote.scheme != "file" else None


def make_doc_id(repository: str, folder: str) -> str:
    """Return the id of the skill in `folder` (relative, empty for the root) of a repository by its name."""
    return f"{repository}/{folder}" if folder else repository


def apart(name: str, whose: str) -> str:
    """Return the form of a name by which a later claim to it, by this one, is kept apart."""
    return f"{name}~{hashlib.sha256(whose.encode()).hexdigest()[:6]}"


def together(name: str) -> str:
    """Return the name of which one is the form of `apart`, or the name itself."""
    return _APART.sub("", name)


def doc_key(doc_id: str) -> str:
    """Return the form in which two ids are compared."""
    return doc_id.casefold()


def owner_part(doc_id: str) -> str:
    """Return what an id tells of its owner, in the form in which ids are compared; empty: nothing."""
    parts = doc_key(doc_id).split("/")
    if together(repository := "/".join(parts[:2])) != repository:
        return repository  # one kept apart has an owner of its own
    parts = parts[:-1]
    return "/".join(parts[: 2 if parts and (parts[0] == "local" or "." in parts[0]) else 1])


def path_key(path: str) -> str:
    """Return the form in which paths are compared that some file system takes for one."""
    # Casefolding may leave letters and accents apart that NFC puts together.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def skill_url(url: str, commit: str, folder: str) -> str:
    """Return the URL of a skill for people: its folder at that commit, or the repository."""
    remote = parse_remote(url)
    if remote.scheme == "file" or _without_port(remote.host) not in _GITHUB:
        return public_url(url)
    return f"https://github.com/{repository_name(url)}/tree/{commit}/{quote(folder)}".rstrip("/")


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
