"""Responses of GitHub's API as records; a response of another shape is refused by the field's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tasks.crawl.http.errors import HttpTerminal
from tasks.crawl.http.responses import Answer
from tasks.crawl.source.bundle import SourceEntry

_T = TypeVar("_T", str, int, bool, list[Any], dict[str, Any])
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAMES: dict[type, str] = {str: "text", int: "number", bool: "true or false", list: "list", dict: "object"}


@dataclass(frozen=True, slots=True)
class Commit:
    """What a ref stands for now.

    Args:
        sha: The commit; of a mirror that knows no commits, the tree.
        tree: The tree of its root folder.
        etag: What to ask the same question with the next time, with the same token.
    """

    sha: str
    tree: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class NotModified:
    """The answer to a question that was asked before, and is still the same."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a forge says of a repository.

    Args:
        repo_id: Stays the same when the repository is renamed.
        full_name: `owner/repo` as it is now called.
        default_branch: The ref that HEAD stands for.
        stars: How many people have starred it.
        size_kb: How much the forge keeps of it, history included.
        licence: SPDX identifier; None where the forge knows of none.
    """

    repo_id: str
    full_name: str
    default_branch: str
    stars: int
    size_kb: int
    licence: str | None


@dataclass(slots=True)
class Tree:
    """Every path of a commit.

    Args:
        sha: The root folder's tree.
        entries: All but folders; key is the blob's or the submodule's id. Where a link leads is not known.
        folders: The tree of every folder by its path; that of the root is empty.
    """

    sha: str
    entries: list[SourceEntry] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)


def read_commit(answer: Answer) -> Commit:
    """Return the commit of an answer to `commits/{ref}`."""
    data = answer.json()
    return Commit(
        _sha(answer, data, "sha"), _sha(answer, data, "commit.tree.sha"), answer.headers.get("etag")
    )


def read_metadata(answer: Answer) -> Metadata:
    """Return what an answer says of a repository; a licence that GitHub cannot name is none."""
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
        raise wrong_shape(answer, "is no list")
    return [_value(answer, item, "ref", str).split("/", 2)[-1] for item in data]


def wrong_shape(answer: Answer, what: str) -> HttpTerminal:
    """Return the error of an answer that is JSON, but not what it should be."""
    body = answer.body[:4_096]
    return HttpTerminal("shape", answer.url, f"the answer {what}", status=answer.status, body=body)


def _find(data: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _value(answer: Answer, data: Any, path: str, kind: type[_T]) -> _T:  # noqa: ANN401 - JSON
    value = _find(data, path)
    if type(value) is not kind:  # exactly, since true and false are numbers to Python
        raise wrong_shape(answer, f"has no {_NAMES[kind]} as {path!r}")
    return value


def _sha(answer: Answer, data: Any, path: str) -> str:  # noqa: ANN401 - JSON
    value = _value(answer, data, path, str)
    if not _SHA.fullmatch(value):
        raise wrong_shape(answer, f"has no object id as {path!r}")
    return value
