"""Responses of GitHub's API as records; a response of another shape is refused by the field's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tasks.crawl.http.responses import Answer
from tasks.crawl.source.bundle import SourceEntry

_T = TypeVar("_T", str, int, bool, list[Any], dict[str, Any])
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAMES: dict[type, str] = {str: "text", int: "number", bool: "true or false", list: "list", dict: "object"}


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a ref names now."""

    sha: str  # of a mirror that knows no commits: the tree
    tree: str  # the tree of its root folder
    etag: str | None = None  # repeats the same question, with the same token


@dataclass(frozen=True, slots=True)
class NotModified:
    """The answer that nothing has changed since the same question was asked."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a repository."""

    repo_id: str  # stays the same when the repository is renamed
    full_name: str  # its present `owner/repo`
    default_branch: str
    stars: int
    size_kb: int  # its size at the forge, history included
    licence: str | None  # SPDX identifier; None if the forge knows none


@dataclass(slots=True)
class Tree:
    """Every path of a commit; the targets of links are not known."""

    sha: str  # of the root folder
    entries: list[SourceEntry] = field(default_factory=list)  # without folders; key: the git object's id
    folders: dict[str, str] = field(default_factory=dict)  # tree ids by path; the root's path is empty


def read_commit(answer: Answer) -> Commit:
    """Return the commit of an answer to `commits/{ref}`."""
    data = answer.json()
    return Commit(
        _sha(answer, data, "sha"), _sha(answer, data, "commit.tree.sha"), answer.headers.get("etag")
    )


def read_metadata(answer: Answer) -> Metadata:
    """Return the metadata of an answer; a licence that GitHub cannot name is None."""
    data = answer.json()
    licence = _find(data, "license.spdx_id")
    return Metadata(
        repo_id=str(_value(answer, data, "id", int)),
        full_name=_value(answer, data, "full_name", str),
        default_branch=_value(answer, data, "default_branch", str),
        stars=_value(answer, data, "stargazers_count", int),
        size_kb=_value(answer, data, "size", int),
        licence=licence if isinstance(licence, str) and licence != "NOASSERTION" else None,
    )


def read_tree(answer: Answer, folder: str = "") -> tuple[Tree, bool]:
    """Return a tree whose paths begin with `folder`, and whether the answer leaves some of it out."""
    data = answer.json()
    tree = Tree(_sha(answer, data, "sha"))
    tree.folders[folder] = tree.sha
    for item in _value(answer, data, "tree", list):
        path, key = _value(answer, item, "path", str), _sha(answer, item, "sha")
        path = f"{folder}/{path}" if folder else path
        mode = _value(answer, item, "mode", str)
        if mode == "040000":
            tree.folders[path] = key
        else:
            kind: Literal["file", "link"] = "link" if mode == "120000" else "file"
            tree.entries.append(SourceEntry(path, "submodule" if mode == "160000" else kind, key))
    return tree, _value(answer, data, "truncated", bool)


def read_refs(answer: Answer) -> list[str]:
    """Return the names of branches or tags, without `refs/heads/` and `refs/tags/`."""
    data = answer.json()
    if not isinstance(data, list):
        raise answer.error("shape", "the answer is no list")
    return [_value(answer, item, "ref", str).split("/", 2)[-1] for item in data]


def _find(data: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _value(answer: Answer, data: Any, path: str, kind: type[_T]) -> _T:  # noqa: ANN401 - JSON
    value = _find(data, path)
    if type(value) is not kind:  # exactly, since true and false are numbers to Python
        raise answer.error("shape", f"the answer has no {_NAMES[kind]} as {path!r}")
    return value


def _sha(answer: Answer, data: Any, path: str) -> str:  # noqa: ANN401 - JSON
    value = _value(answer, data, path, str)
    if not _SHA.fullmatch(value):
        raise answer.error("shape", f"the answer has no object id as {path!r}")
    return value
