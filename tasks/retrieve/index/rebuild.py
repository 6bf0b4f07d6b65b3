"""Rebuild: makes every stage repeat all of its work from raw snapshots at its next run."""

from __future__ import annotations

import polars as pl

from storage.root import Root
from storage.served import begin_anew
from storage.state import parsed_table, refined_table
from storage.vectors import FOLDER as VECTORS
from storage.vectors import STATES

# Folders of what is only kept so as not to be computed again.
_CACHES = ("state/signatures", "state/near", "state/vectors")
_LOST = "lost:"  # another source's copy counts: there is nothing to redo of it


def redo_all(root: Root, *, keep_vectors: bool) -> int:
    """Forget that anything has been refined and parsed; return how many documents will be refined again.

    So do the tables at the next build, whichever run comes to it: one that is killed is finished by another.
    The corpus and what is served stay until the stages have put the new rows in place. Answers of a language
    model, which were paid for, stay too.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep_vectors: Whether vectors and states kept by their text stay, so that no text is encoded twice.
    """
    begin_anew(root)
    refined = refined_table(root).read()
    again = ~pl.col("digest").fill_null("").str.starts_with(_LOST)
    # Rows stay, with what they came to: a document that no source has any more must still be known.
    blank = pl.when(again).then(pl.lit("")).otherwise("digest")
    refined_table(root).replace(refined["doc_id"].unique().to_list(), refined.with_columns(digest=blank))
    parsed = parsed_table(root).read()
    parsed_table(root).replace(parsed["doc_id"].to_list(), parsed.with_columns(digest=pl.lit("")))
    for folder in (*_CACHES, *(() if keep_vectors else (VECTORS, STATES))):
        root.delete(folder)
    return refined.filter(again).height
