"""Blobs: the bytes of bundled files, each once, under its SHA-256."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import polars as pl

from storage.errors import Missing, StorageError
from storage.root import Root
from storage.seal import Seal, sha256_of
from storage.state import documents_table, folded_table

FOLDER = "blobs"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """The blobs that documents of a root name, in `blobs/ab/abcd...`; many may put, one writer may remove.

    Methods raise as those of `Root`.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def put(self, contents: Iterable[bytes]) -> list[str]:
        """Keep these bytes and return their digests in order; a blob that is there is not written again."""
        by_digest: dict[str, bytes] = {}
        digests = []
        for content in contents:
            digests.append(sha256_of(content))
            by_digest[digests[-1]] = content
        self._root.each(lambda digest: self._put(digest, by_digest[digest]), by_digest)
        return digests

    def _put(self, digest: str, content: bytes) -> None:
        if not self._root.exists(blob_file(digest)):
            self._root.write(blob_file(digest), content)

    def read(self, digest: str) -> bytes:
        """Return a blob's bytes; raise `StorageError` also where they have another digest."""
        content = self._root.read(blob_file(digest))
        if not Seal(blob_file(digest), digest).fits(content):
            place, root = self._root.at(blob_file(digest)), self._root.uri
            raise StorageError(f"{place} is damaged: run `skillery doctor --root {root}`")
        return content

    def digests(self) -> list[str]:
        """Return the digests of the blobs that are there, sorted."""
        names = (file.rpartition("/")[2] for file in self._root.files(FOLDER))
        return sorted(name for name in names if _DIGEST.fullmatch(name))

    def delete(self, digests: Iterable[str]) -> None:
        """Remove blobs; nothing happens where there is none."""
        self._root.each(lambda digest: self._root.delete(blob_file(digest)), digests)

    def unreadable(self, digests: Sequence[str]) -> dict[str, str]:
        """Return what is wrong with those of these blobs that are missing or damaged."""
        found = dict(zip(digests, self._root.each(self._wrong, digests), strict=True))
        return {digest: wrong for digest, wrong in found.items() if wrong is not None}

    def _wrong(self, digest: str) -> str | None:
        try:
            self.read(digest)
        except Missing:
            return f"{self._root.at(blob_file(digest))} is missing"
        except StorageError as error:
            return str(error)
        return None

    def keep_only(self, used: Collection[str]) -> int:
        """Remove every blob whose digest is not used; return how many."""
        unused = sorted(set(self.digests()) - set(used))
        self.delete(unused)
        return len(unused)


def blob_file(digest: str) -> str:
    """Return where a blob lies, relative to its root; raise `StorageError` for what is no digest."""
    if not _DIGEST.fullmatch(digest):
        raise StorageError(f"{digest!r} is no SHA-256 in hexadecimal")
    return f"{FOLDER}/{digest[:2]}/{digest}"


def blobs_named(root: Root) -> pl.DataFrame:
    """Return the blobs that documents name, copies included: columns doc_id, path and sha256."""
    columns = ["doc_id", "blobs"]
    rows = pl.concat([table(root).read(columns=columns) for table in (documents_table, folded_table)])
    rows = rows.explode("blobs").drop_nulls("blobs")
    blob = pl.col("blobs").struct
    return rows.select("doc_id", path=blob.field("path"), sha256=blob.field("sha256"))


def drop_unused_blobs(root: Root) -> int:
    """Remove the blobs that no document of the root names; return how many. One writer may call it.

    Where the corpus cannot be read, `StorageError` is raised before anything is removed.
    """
    return BlobStore(root).keep_only(set(blobs_named(root)["sha256"])) if root.exists(FOLDER) else 0
