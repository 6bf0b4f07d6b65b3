"""Shows a skill: what its front matter says, whose it is, what was found in it, and its files."""

from __future__ import annotations

from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.state import aliases_table, seen_table
from tasks.retrieve.revisions.edition import Edition, find_row, past_edition, present_edition
from tasks.retrieve.revisions.history import Revision, choose, revisions_of

_TOLD = (
    "kind", "name", "description", "inferred", "source", "repo", "ref", "commit", "path", "url", "author",
    "stars", "category", "tags", "language", "licence", "licence_rule", "content_hash", "body_hash",
    "raw_hash",
)  # fmt: skip


def open_edition(root: Root, text: str, revision: str | None = None) -> tuple[Edition, str | None]:
    """Return the edition of the document that a text means, and the alias by which, None if by none.

    Args:
        root: The root.
        text: An id or alias in any letter case, or the end of one id, or the name of one document.
        revision: What `history.choose` takes; None: as the document is now.

    Raises:
        UnknownDocument: There is no such document.
        WrongInput: It has no such revision, or that was dropped.
        StorageError: A file cannot be read.
    """
    row, alias = find_row(root, text)
    if revision is None:
        return present_edition(root, row), alias
    return past_edition(root, chosen(root, revisions_of(root, row["doc_id"], row["source"]), revision)), alias


def chosen(root: Root, revisions: list[Revision], text: str) -> Revision:
    """Return the revision that a text means, content hashes included; raises as `history.choose`."""

    def content_hash(revision: Revision) -> str | None:
        try:
            return str(past_edition(root, revision).row["content_hash"])
        except WrongInput:
            return None

    return choose(root, revisions, text, content_hash)


def shown(edition: Edition, alias: str | None) -> dict[str, Any]:
    """Return what is known of a skill, as `skillery show --json` prints it.

    Where the policy keeps its text back, `body`, `front_matter`, an inferred description and the messages of
    findings are null.
    """
    row, allowed = edition.row, edition.licence_class == "allow"
    blobs = {file["path"]: file for file in row["blobs"] or ()}
    told = {name: row[name] for name in _TOLD}
    if not allowed and "description" in (row["inferred"] or ()):
        told["description"] = None
    return {
        "doc_id": row["doc_id"],
        **({"alias_of": row["doc_id"], "doc_id": alias} if alias else {}),
        **told,
        "licence_class": edition.licence_class,
        "front_matter": edition.front_matter if allowed else None,
        "body": row["body"] if allowed else None,
        "risks": _findings(row["risks"], allowed=allowed),
        "findings": _findings(row["findings"], allowed=allowed),
        "files": None if row["files"] is None else [_file(f, blobs.get(f["path"])) for f in row["files"]],
        "fetched_at": row["fetched_at"].isoformat(),
        "first_seen_at": row["first_seen_at"].isoformat(),
        "stale_since": _stale_since(edition),
        **{k: v for k, v in edition.revision.as_dict().items() if k in ("revision", "run_id")},
        "aliases": _aliases(edition.root, row["doc_id"]),
    }


def _findings(found: list[dict[str, Any]] | None, *, allowed: bool) -> list[dict[str, Any]]:
    return [{**f, "message": f["message"] if allowed else None} for f in found or ()]


def _file(file: dict[str, Any], blob: dict[str, Any] | None) -> dict[str, Any]:
    """Return a file as fetched, and as it is kept: null if it is not, other bytes if it was redacted."""
    kept = None if blob is None else {"size": blob["size"], "sha256": blob["sha256"]}
    return {**file, "kept": kept}


def _stale_since(edition: Edition) -> str | None:
    rows = seen_table(edition.root).of_document(edition.row["doc_id"])
    since = rows.filter(source=edition.row["source"])["stale_since"].drop_nulls()
    return None if since.is_empty() else str(since[0].isoformat())


def _aliases(root: Root, doc_id: str) -> list[dict[str, str]]:
    rows = aliases_table(root).read().filter(pl.col("survivor") == doc_id).sort("doc_id")
    return rows.select("doc_id", "kind").to_dicts()
