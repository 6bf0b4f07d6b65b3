"""The manifest of a plugin marketplace, in Claude's form or Codex's: where each plugin's skills lie."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from tasks.crawl.github.source import is_name
from tasks.crawl.registries.discovery import NoIndex, is_plain_path
from tasks.crawl.source.identity import GIT_REF, parse_github_url
from tasks.crawl.source.project import stated_licence
from tasks.models.fields import mapping_of

PATHS = (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json")  # in a repository
_SHA = re.compile(r"[0-9a-f]{40}")
_MOST_PLUGINS = 10_000


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin: a folder of a repository, or of the marketplace's own, or an archive."""

    name: str
    kind: Literal["own", "github", "git", "archive"]
    place: str = ""  # `owner/repo`, the URL of a git repository, or that of an archive
    ref: str = ""  # a branch, a tag or a commit; empty: the default branch
    folders: tuple[str, ...] = ("",)  # in which its skills lie, at any depth
    digest: str | None = None  # of an archive
    licence: str | None = None  # of an archive, as its entry states it


@dataclass(slots=True)
class Manifest:
    """The plugins of a marketplace, and those that are not read: name, reason, and why."""

    plugins: list[Plugin] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    renames: dict[str, str] = field(default_factory=dict)  # names of before, with those of now


class _NotRead(ValueError):
    """A plugin that is not read on purpose."""


def read_manifest(value: object, *, secure: bool = False) -> Manifest:
    """Return what a JSON value says; one entry that is wrong spoils no other.

    If it came by https (`secure`), what it names by http is refused. What is no manifest, or has too many
    plugins, is NoIndex.
    """
    given = mapping_of(value)
    plugins, renames = given.get("plugins"), mapping_of(given.get("renames"))
    if not isinstance(plugins, list) or len(plugins) > _MOST_PLUGINS:
        raise NoIndex(f"it is no JSON object with a list of at most {_MOST_PLUGINS:,} `plugins`")
    found = Manifest(renames={str(old): new for old, new in renames.items() if isinstance(new, str)})
    met: set[str] = set()
    for entry in plugins:
        name = mapping_of(entry).get("name")
        shown = str(name)[:100].encode("utf-8", "replace").decode()
        try:
            if not isinstance(name, str) or not is_plain_path(name) or "/" in name or name in met:
                raise ValueError("its name is none, or another plugin has it")
            met.add(name)
            plugin = _plugin(name, entry, mapping_of(given.get("metadata")).get("pluginRoot"))
            if secure and plugin.place.lower().startswith("http:"):
                raise ValueError(f"its address {plugin.place[:100]!r} leads from https to http")
            found.plugins.append(plugin)
        except _NotRead as error:
            found.refused.append((shown, "not-read", str(error)))
        except ValueError as error:
            found.refused.append((shown, "malformed", str(error)))
    return found


def _plugin(name: str, entry: Mapping[str, Any], plugin_root: object) -> Plugin:
    if mapping_of(entry.get("policy")).get("installation") == "NOT_AVAILABLE":
        raise _NotRead("the marketplace says that it is not available")
    source = entry.get("source")
    if isinstance(source, str):
        below = isinstance(plugin_root, str) and not source.startswith(".")
        return Plugin(name, "own", folders=_folders(entry, f"{plugin_root}/{source}" if below else source))
    given = mapping_of(source)
    kind = given.get("source")
    if kind == "local":
        return Plugin(name, "own", folders=_folders(entry, given.get("path")))
    if kind in ("github", "url", "git-subdir"):
        place, ref = given.get("repo" if kind == "github" else "url"), _ref(given)
        named = place if isinstance(place, str) and is_name(place) and "@" not in place else _github(place)
        folders = _folders(entry, given.get("path", "."))
        return Plugin(name, "github" if named else "git", named or _address(place), ref, folders)
    if kind == "archive":
        digest = given.get("sha256")
        if digest is not None and not re.fullmatch(r"[0-9a-f]{64}", str(digest)):
            raise ValueError("its sha256 is no 64 hexadecimal digits in lower case")
        return Plugin(
            name, "archive", _address(given.get("url")), folders=_folders(entry, "."),
            digest=f"sha256:{digest}" if digest else None, licence=stated_licence(entry.get("license")),
        )  # fmt: skip
    if kind in ("npm", "command"):
        raise _NotRead(f"its source is of the kind {kind}, which is never fetched or run")
    raise _NotRead(f"its source is of the kind {str(kind)[:50]!r}, which is not known")


def _github(place: object) -> str | None:
    named = parse_github_url(place) if isinstance(place, str) else None
    return named.repository if named and named.kind == "root" else None


def _address(place: object) -> str:
    try:
        split = urlsplit(place) if isinstance(place, str) else None
        web = split is not None and split.scheme in ("http", "https") and bool(split.hostname)
        plain = web and split is not None and split.username is None and split.port != 0
    except ValueError:
        plain = False
    if not plain or "@" in str(place) or any(not c.isprintable() or c.isspace() for c in str(place)):
        raise ValueError(f"{str(place)[:100]!r} is no address of http or https without a password")
    return str(place)


def _ref(source: Mapping[str, Any]) -> str:
    sha, ref = source.get("sha"), source.get("ref")
    if sha is not None:
        if not isinstance(sha, str) or not _SHA.fullmatch(sha):
            raise ValueError("its sha is no 40 hexadecimal digits in lower case")
        return sha
    if ref is not None and (not isinstance(ref, str) or not GIT_REF.fullmatch(ref)):
        raise ValueError(f"its ref {str(ref)[:100]!r} is no branch, tag or commit")
    return ref or ""


def _folders(entry: Mapping[str, Any], path: object) -> tuple[str, ...]:
    """Return the folders of a plugin's skills: all of it, or `skills` and what the entry names."""
    root, named = _folder(path), entry.get("skills")
    if named is None or named == []:
        return (root,)
    if not isinstance(named, str | list):
        raise ValueError("its skills are no list of folders")
    more = [_folder(folder) for folder in ([named] if isinstance(named, str) else named)]
    return tuple(dict.fromkeys(posixpath.join(root, folder).rstrip("/") for folder in ("skills", *more)))


def _folder(path: object) -> str:
    plain = posixpath.normpath(path) if isinstance(path, str) and path else "/"
    if plain != "." and not is_plain_path(plain):
        raise ValueError(f"its path {str(path)[:100]!r} is no folder below the root")
    return "" if plain == "." else plain
