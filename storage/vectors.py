"""Vectors, and tokens' states, kept across nights by the SHA-256 of their text: Parquet parts, by model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import StorageError
from storage.parquet import read_frame, write_frame
from storage.root import Root

FOLDER = "vectors"
STATES = "states"
ROWS_PER_PART = 4096
# Where one row is wanted its group is decoded: 256 vectors of 384 numbers are .4 MB, and so are states.
_ROWS_PER_GROUP = 256
_Vectors = npt.NDArray[np.float32]


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a text, 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorStore:
    """One model's vectors by text hash; no text is kept, and only `keep_only` rewrites.

    Several processes may add at once; `keep_only` is for the holder of the root's writer lock.

    `model` names the model's folder: whatever changes its vectors must change it. Where a part is damaged,
    methods raise `StorageError`.
    """

    def __init__(self, root: Root, model: str, dimension: int, folder: str = FOLDER) -> None:
        self._root, self._dimension = root, dimension
        self.folder = f"{folder}/{model}-{dimension}"
        self._schema = pl.Schema({"text_hash": pl.Binary(), "vector": self._kind()})
        self._index = pl.DataFrame(schema={"text_hash": pl.Binary, "part": pl.String, "row": pl.UInt32})

    def __len__(self) -> int:
        """Return the number of vectors kept; what two processes made at once counts twice."""
        return self._refreshed().height

    def find(self, hashes: Sequence[bytes]) -> tuple[npt.NDArray[np.bool_], _Vectors]:
        """Return which of these hashes are kept, a mask of shape `(len(hashes),)`, and their vectors.

        Vectors have shape `(len(hashes), dimension)`; a row whose mask is false is zeros.
        """
        found = np.zeros(len(hashes), dtype=np.bool_)
        vectors = self._none(len(hashes))
        wanted = _of(hashes).with_row_index("position")
        hits = wanted.join(self._refreshed(), on="text_hash").unique("position", maintain_order=True)
        for (part,), group in hits.group_by("part"):
            positions = group["position"].to_numpy()
            found[positions] = True
            vectors[positions] = self._read(str(part), group["row"])["vector"].to_numpy()
        return found, vectors

    def complete(
        self, hashes: Sequence[bytes], make: Callable[[list[int]], npt.NDArray[np.floating[Any]]]
    ) -> tuple[_Vectors, int]:
        """Return a vector for each hash, shape `(n, dimension)`, and how many were missing and are made now.

        `make` returns the vectors of the texts at positions, the first of equal ones; it is called once, if
        any is missing.
        """
        first: dict[bytes, int] = {}
        for position, key in enumerate(hashes):
            first.setdefault(key, position)
        keys = list(first)
        found, vectors = self.find(keys)
        missing = np.flatnonzero(~found).tolist()
        if missing:
            vectors[missing] = make([first[keys[i]] for i in missing])
            self.add([keys[i] for i in missing], vectors[missing])
        place = {key: i for i, key in enumerate(keys)}
        return vectors[[place[key] for key in hashes]], len(missing)

    def add(self, hashes: Sequence[bytes], vectors: _Vectors) -> None:
        """Keep vectors of shape `(len(hashes), dimension)`."""
        for start in range(0, len(hashes), ROWS_PER_PART):
            some = slice(start, start + ROWS_PER_PART)
            columns = {"text_hash": hashes[some], "vector": list(vectors[some])}
            self._write(pl.DataFrame(columns, schema=self._schema))

    def keep_only(self, hashes: Collection[bytes]) -> int:
        """Drop all other vectors, and join small parts; return how many vectors were dropped."""
        before = self._refreshed()
        kept = before.unique("text_hash", maintain_order=True).join(_of(hashes), on="text_hash", how="semi")
        sizes = dict(before.group_by("part").len().iter_rows())
        whole = {
            p for p, n in kept.group_by("part").len().iter_rows() if n == sizes[p] and n > ROWS_PER_PART // 2
        }
        old = [part for part in sizes if part not in whole]
        rows = kept.filter(~pl.col("part").is_in(list(whole)))
        new = {
            self._write(part)
            for part in _joined(self._read(str(p), g["row"]) for (p,), g in rows.group_by("part"))
        }
        for part in old:
            if part not in new:
                self._root.delete(part)
        return before.height - kept.height

    def delete(self) -> None:
        """Remove all that is kept of this model."""
        self._root.delete(self.folder)

    def _kind(self) -> pl.DataType:
        return pl.Array(pl.Float32, self._dimension)

    def _none(self, rows: int) -> npt.NDArray[Any]:
        return np.zeros((rows, self._dimension), dtype=np.float32)

    def _read(self, part: str, rows: pl.Series) -> pl.DataFrame:
        return self._frame(part, rows=rows.to_list())

    def _frame(
        self, part: str, columns: Sequence[str] | None = None, rows: Sequence[int] | None = None
    ) -> pl.DataFrame:
        try:
            return read_frame(self._root, part, self._schema, columns, rows)
        except StorageError as error:
            raise StorageError(f"{error}: delete that file, what it holds is made anew") from error

    def _write(self, rows: pl.DataFrame) -> str:
        name = hashlib.sha256(b"".join(rows["text_hash"])).hexdigest()[:24]
        part = f"{self.folder}/part-{name}.parquet"
        write_frame(self._root, part, rows, self._schema, _ROWS_PER_GROUP)
        return part

    def _refreshed(self) -> pl.DataFrame:
        """Return where each hash lies, by what parts there are now: other processes add them too."""
        present = self._root.files(self.folder, ".parquet")
        index = self._index  # another thread may put its own there meanwhile
        known = set(index["part"].unique())
        index = index.filter(pl.col("part").is_in(present)) if known - set(present) else index
        new = self._root.each(self._listed, [part for part in present if part not in known])
        self._index = index = pl.concat([index, *new])
        return index

    def _listed(self, part: str) -> pl.DataFrame:
        hashes = self._frame(part, ["text_hash"]).with_row_index("row")
        return hashes.select("text_hash", pl.lit(part).alias("part"), pl.col("row").cast(pl.UInt32))


class StateStore(VectorStore):
    """The packed states of a model's tokens by text hash, arrays of bytes; arguments as `VectorStore`."""

    def __init__(self, root: Root, model: str, dimension: int) -> None:
        super().__init__(root, model, dimension, STATES)

    def _kind(self) -> pl.DataType:
        return pl.Binary()

    def _none(self, rows: int) -> npt.NDArray[Any]:
        return np.full(rows, b"", dtype=object)


def vector_stores(root: Root) -> list[VectorStore]:
    """Return every model's vectors."""
    return [VectorStore(root, *named) for named in _models(root, FOLDER)]


def state_stores(root: Root) -> list[StateStore]:
    """Return every model's states."""
    return [StateStore(root, *named) for named in _models(root, STATES)]


def _models(root: Root, folder: str) -> list[tuple[str, int]]:
    names = sorted({file.split("/")[1] for file in root.files(folder)})
    return [(model, int(dimension)) for model, _, dimension in (name.rpartition("-") for name in names)]


def _of(hashes: Iterable[bytes]) -> pl.DataFrame:
    return pl.DataFrame({"text_hash": list(hashes)}, schema={"text_hash": pl.Binary})


def _joined(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the rows of frames in frames of `ROWS_PER_PART`, the last one shorter."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(f.height for f in waiting) >= ROWS_PER_PART:
            rows = pl.concat(waiting)
            yield rows[:ROWS_PER_PART]
            waiting = [rows[ROWS_PER_PART:]]
    if waiting and (rows := pl.concat(waiting)).height:
        yield rows
