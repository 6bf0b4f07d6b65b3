"""The API's JSON for repositories, commits, trees and refs; of each the fields that clients read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.marketplace.objects import Commit, Node, Tree
from tests.support.marketplace.repository import Repository


def _time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def repository_json(repository: Repository, base: str) -> dict[str, Any]:
    licence = repository.licence
    pushed = _time(repository.head.at) if repository.branches else None
    named = {"key": licence.lower(), "name": licence, "spdx_id": licence} if licence else None
    return {
        "id": repository.repo_id,
        "name": repository.repo,
        "full_name": repository.name,
        "private": False,
        "owner": {"login": repository.owner, "type": "User"},
        "html_url": f"https://github.com/{repository.name}",
        "url": f"{base}/repos/{repository.name}",
        "fork": False,
        "size": repository.size_kb,
        "stargazers_count": repository.stars,
        "default_branch": repository.default_branch,
        "license": named,
        "archived": False,
        "disabled": False,
        "visibility": "public",
        "pushed_at": pushed,
    }


def commit_json(repository: Repository, commit: Commit, base: str) -> dict[str, Any]:
    url = f"{base}/repos/{repository.name}"
    who = {"name": "Market Gardener", "email": "gardener@example.org", "date": _time(commit.at)}
    return {
        "sha": commit.sha,
        "url": f"{url}/commits/{commit.sha}",
        "commit": {
            "author": who,
            "committer": who,
            "message": commit.message,
            "tree": {"sha": commit.tree.sha, "url": f"{url}/git/trees/{commit.tree.sha}"},
        },
        "parents": [{"sha": commit.parent}] if commit.parent else [],
    }


def entry_json(path: str, node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": path, "mode": node.mode, "type": node.kind, "sha": node.sha}
    if not isinstance(node, Tree) and node.kind == "blob":
        entry["size"] = node.size
    return entry


def tree_json(tree: Tree, sha: str, *, recursive: bool, most: int) -> dict[str, Any]:
    """List a tree; of more than `most` entries only the first, with `truncated` set."""
    nodes = list(tree.walk()) if recursive else list(tree.entries.items())
    entries = [entry_json(path, node) for path, node in nodes[:most]]
    return {"sha": sha, "tree": entries, "truncated": len(nodes) > most}


def refs_json(kind: str, refs: dict[str, str], prefix: str) -> list[dict[str, Any]]:
    return [
        {"ref": f"refs/{kind}/{name}", "object": {"sha": sha, "type": "commit"}}
        for name, sha in sorted(refs.items())
        if name.startswith(prefix)
    ]
