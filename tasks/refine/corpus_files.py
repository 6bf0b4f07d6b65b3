"""The texts of a corpus, read file by file: never more of them than one file holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import DOCUMENTS


def read_staged(root: Root, folder: str, schema: pl.Schema) -> pl.DataFrame:
    """Return the rows of all Parquet files below a folder of this run."""
    frames = [read_frame(root, file, schema) for file in root.files(folder, ".parquet")]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def light_documents(root: Root, folder: str, columns: Collection[str]) -> pl.DataFrame:
    """Return columns of all documents below a folder, in the order given, and the `file` each lies in."""
    schema = pl.Schema({name: DOCUMENTS[name] for name in DOCUMENTS if name in columns})
    frames = [
        read_frame(root, file, DOCUMENTS, list(columns)).with_columns(file=pl.lit(file))
        for file in root.files(folder, ".parquet")
    ]
    return pl.concat([pl.DataFrame(schema={**schema, "file": pl.String}), *frames]).select(*columns, "file")


def read_bodies(root: Root, where: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the texts wanted, a frame a file: the column body and those of `where` except file.

    Args:
        root: Where the files lie.
        where: Columns body_hash (unique) and file, which holds the text.
    """
    for (file,), wanted in where.group_by("file", maintain_order=True):
        held = read_frame(root, str(file), DOCUMENTS, ("body", "body_hash")).unique("body_hash")
        yield held.join(wanted.drop("file"), on="body_hash")
