"""Which blobs the documents of a root have named, and the removal of all others."""

from __future__ import annotations

import polars as pl

from storage.blobs.store import FOLDER, BlobStore
from storage.root import Root
from storage.state import documents_table, folded_table


def blobs_named(root: Root) -> pl.DataFrame:
    """Return the blobs that documents name, copies included: columns doc_id, path and sha256.

    Raises:
        StorageError: The corpus cannot be read.
    """
    columns = ["doc_id", "blobs"]
    rows = pl.concat([table(root).read(columns=columns) for table in (documents_table, folded_table)])
    rows = rows.explode("blobs").drop_nulls("blobs")
    blob = pl.col("blobs").struct
    return rows.select("doc_id", path=blob.field("path"), sha256=blob.field("sha256"))


def drop_unused_blobs(root: Root) -> int:
    """Remove the blobs that no document of the root names; return how many. One writer may call it.

    Raises:
        StorageError: The corpus cannot be read; nothing has been removed.
    """
    return BlobStore(root).keep_only(set(blobs_named(root)["sha256"])) if root.exists(FOLDER) else 0
