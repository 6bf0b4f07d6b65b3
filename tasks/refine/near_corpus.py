"""Folds the corpus' near-duplicate texts, with the signatures and comparisons that earlier runs stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import SIGNATURES, compared_table, signatures_table
from tasks.refine.duplicates.near import (
    BANDS,
    Bands,
    Index,
    NearFolds,
    NearLimits,
    SignatureRule,
    Similarities,
    near_folds,
    signatures,
)
from tasks.refine.duplicates.shingles import SHINGLE_RULE, Hashes, shingle_sets
from tasks.refine.plan import STAGED_SIGNATURES

log = logging.getLogger(__name__)


def read_staged(root: Root, folder: str, schema: pl.Schema) -> pl.DataFrame:
    """Return the rows of all Parquet files below a folder of this run."""
    frames = [read_frame(root, file, schema) for file in root.files(folder, ".parquet")]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def read_bodies(root: Root, where: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the texts wanted, a frame a file: the column body and those of `where` except file.

    `where` has the columns body_hash (unique) and file, which holds the text.
    """
    for (file,), wanted in where.group_by("file", maintain_order=True):
        held = read_frame(root, str(file), DOCUMENTS, ("body", "body_hash")).unique("body_hash")
        yield held.join(wanted.drop("file"), on="body_hash")


def near_texts(root: Root, texts: pl.DataFrame, limits: NearLimits) -> pl.DataFrame:
    """Return which texts fold onto which; store new signatures and comparisons below the root.

    `texts` has the columns owner, body_hash (unique of an owner) and file, a row a text, best rank first.

    Returns:
        Columns owner, body_hash, onto (the hash of its survivor, of the same owner) and similarity, a row for
        each text that folds.
    """
    signed = _signed(root, texts, SignatureRule.for_threshold(limits.threshold))
    table = compared_table(root)
    held = table.read().filter(pl.col("rule") == SHINGLE_RULE)
    known = _numbered(held, texts)
    sizes = signed["size"].cast(pl.Int64).to_numpy()
    # Another owner's text shares no band: it is never near, and need not be compared.
    owners = texts["owner"].rank("dense").cast(pl.UInt64).to_numpy()[:, None] << np.uint64(32)
    found = near_folds(_matrix(signed) | owners, sizes, partial(_sets, root, texts), known, limits)
    if found.uncompared:
        log.warning("refine: %d texts have more look-alikes than are compared", found.uncompared)
    begin, hashes = len(known[0]), texts["body_hash"]
    new = _compared(found.pairs[begin:], found.similarity[begin:], hashes).unique(maintain_order=True)
    keys = new["body_hash"].unique().to_list()
    of_keys = held.filter(pl.col("body_hash").is_in(keys))
    table.replace(keys, pl.concat([of_keys, new]))
    return _folded(found, texts)


def nearest(root: Root, gone: pl.DataFrame, held: pl.DataFrame, threshold: float) -> pl.DataFrame:
    """Return for each text gone (owner, body_hash) the most similar one held of its owner (`other`), if near.

    It is taken from the comparisons stored below the root.
    """
    near = compared_table(root).read().filter(pl.col("similarity") >= threshold)
    near = near.select("body_hash", "other", "similarity")
    # A pair is stored once; either of its texts may be the one that is gone.
    both = pl.concat([near, near.select(body_hash="other", other="body_hash", similarity="similarity")])
    likely = gone.select("owner", "body_hash").join(both, on="body_hash")
    likely = likely.join(held, left_on=["owner", "other"], right_on=["owner", "body_hash"], how="semi")
    best = likely.sort("similarity", "other", descending=[True, False])
    return best.unique(["owner", "body_hash"], keep="first").select("owner", "body_hash", "other")


def forget_texts(root: Root, held: pl.Series) -> None:
    """Delete signatures and comparisons of texts that are not among those held (body hashes)."""
    table, compared = signatures_table(root), compared_table(root)
    known = table.read(columns=["body_hash"])["body_hash"]
    gone = known.filter(~known.is_in(held.implode()))
    if gone.is_empty():
        return
    rows = compared.read()
    over = pl.any_horizontal(pl.col("body_hash", "other").is_in(gone.implode()))
    keys = rows.filter(over)["body_hash"].unique()
    compared.replace(keys.to_list(), rows.filter(~over, pl.col("body_hash").is_in(keys.implode())))
    table.replace(gone.to_list(), pl.DataFrame(schema=SIGNATURES))


def _signed(root: Root, texts: pl.DataFrame, rule: SignatureRule) -> pl.DataFrame:
    table = signatures_table(root)
    held = table.read().filter(pl.col("rule") == rule.name)
    staged = read_staged(root, STAGED_SIGNATURES, SIGNATURES).unique("body_hash", maintain_order=True)
    staged = staged.filter(pl.col("rule") == rule.name)
    fresh = staged.join(held, on="body_hash", how="anti").join(texts, on="body_hash", how="semi")
    missing = texts.unique("body_hash").join(pl.concat([held, fresh]), on="body_hash", how="anti")
    made = [
        frame.select("body_hash", rule=pl.lit(rule.name)).hstack(signatures(frame["body"], rule))
        for frame in read_bodies(root, missing.select("body_hash", "file"))
    ]
    new = pl.concat([fresh, *made])
    table.replace(new["body_hash"].to_list(), new)
    return texts.select("body_hash").join(pl.concat([held, new]), on="body_hash", maintain_order="left")


def _matrix(signed: pl.DataFrame) -> Bands:
    rows = b"".join(row or bytes(4 * BANDS) for row in signed["bands"])
    return np.frombuffer(rows, np.dtype("<u4")).reshape(-1, BANDS).astype(np.uint64)


def _sets(root: Root, texts: pl.DataFrame, wanted: Index) -> dict[int, Hashes]:
    where = texts.select("body_hash", "file").with_row_index("number")[wanted]
    return {
        number: found
        for frame in read_bodies(root, where)
        for number, found in zip(frame["number"], shingle_sets(frame["body"]), strict=True)
    }


def _numbered(compared: pl.DataFrame, texts: pl.DataFrame) -> tuple[Index, Similarities]:
    """Return pairs of one owner's texts, as places in `texts`, better first; and similarities."""
    numbers = texts.select("owner", hash="body_hash").with_row_index("number").cast({"number": pl.Int64})
    found = compared.join(numbers, left_on="body_hash", right_on="hash")
    found = found.join(numbers, left_on=["owner", "other"], right_on=["owner", "hash"], suffix="_other")
    pairs = found.select("number", "number_other").to_numpy().reshape(-1, 2)
    return np.sort(pairs, axis=1), found["similarity"].to_numpy()


def _compared(pairs: Index, similarity: Similarities, hashes: pl.Series) -> pl.DataFrame:
    one, other = hashes[pairs[:, 0]], hashes[pairs[:, 1]]
    rows = pl.DataFrame({"one": one, "two": other, "similarity": similarity})
    return rows.select(
        body_hash=pl.min_horizontal("one", "two"), other=pl.max_horizontal("one", "two"),
        rule=pl.lit(SHINGLE_RULE), similarity="similarity",
    )  # fmt: skip


def _folded(found: NearFolds, texts: pl.DataFrame) -> pl.DataFrame:
    folded = pl.DataFrame({"better": found.onto, "worse": np.arange(found.onto.size)})
    pairs = pl.DataFrame(found.pairs, schema=["better", "worse"], orient="row")
    rows = folded.join(pairs.with_columns(similarity=found.similarity), on=["better", "worse"])
    worse, better = texts[rows["worse"]], texts[rows["better"]]
    return worse.select("owner", "body_hash", onto=better["body_hash"], similarity=rows["similarity"])
