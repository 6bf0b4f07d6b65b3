"""The edition of a skill that a served version holds, also after a rollback or before a publication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.errors import UnknownDocument, WrongInput
from storage.root import Root
from storage.state import documents_table
from tasks.retrieve.revisions.edition import Edition, past_edition, present_edition
from tasks.retrieve.revisions.history import revisions_of

SERVED_COLUMNS = ["doc_id", "kind", "name", "source", "commit", "content_hash", "licence"]
"""The columns of the table `skills` by which an edition is found."""


def served_edition(root: Root, row: Mapping[str, Any]) -> Edition:
    """Return the edition of a document whose row of `skills` is served.

    The corpus may be ahead of what is served, or behind it after a rollback; then the edition is refined anew
    of the raw snapshot that the served text came from.

    Raises:
        UnknownDocument: No snapshot gives the text that is served; it may have been forgotten.
        StorageError: A file of the root cannot be read.
    """
    rows = documents_table(root).of_document(row["doc_id"])
    for document in rows.iter_rows(named=True):
        if _is_same(document, row):
            return present_edition(root, document)
    for revision in reversed(revisions_of(root, row["doc_id"], row["source"])):
        if revision.commit == row["commit"]:
            try:
                edition = past_edition(root, revision)
            except WrongInput:  # refine would drop it now
                continue
            if _is_same(edition.row, row):
                return edition
    msg = f"the files of {row['doc_id']} as they are served are not kept: search and page still answer"
    raise UnknownDocument(msg)


def _is_same(document: Mapping[str, Any], served: Mapping[str, Any]) -> bool:
    return all(document[name] == served[name] for name in ("content_hash", "commit"))
