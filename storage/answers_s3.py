"""Answers of a root on S3: SQLite works on a local file, which is merged with the shared object."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from storage.errors import SchemaMismatch, StorageError
from storage.s3 import Bucket

_TRIES = 5


class SharedFile:
    """One SQLite file below a bucket, and its copy on this machine, which holds what both know.

    A mark beside the copy says that it holds rows that the bucket lacks, so that they survive the process.

    Args:
        bucket: Where it lies.
        relative: Its name.
        tables: The tables that are merged: rows are only added, by primary key.
        version: The schema version that is known; a newer file is refused.
    """

    def __init__(self, bucket: Bucket, relative: str, tables: tuple[str, ...], version: int) -> None:
        self._bucket, self._relative, self._tables, self._version = bucket, relative, tables, version
        self.path = bucket.folder / relative
        self._mark = self.path.with_name(f"{self.path.name}.unsent")
        self._tag_file = self.path.with_name(f"{self.path.name}.tag")

    def mark_unsent(self) -> None:
        """Remember that the copy holds what the bucket does not."""
        self._mark.touch()

    def receive(self, connection: sqlite3.Connection) -> bool:
        """Add to the copy what the bucket's file holds beyond it; tell whether that was changed since.

        Raises:
            SchemaMismatch: The bucket's file was written by a newer version.
            Unreachable: The bucket does not answer.
        """
        head = self._bucket.head(self._relative)
        if head is None or head["e_tag"] == self._tag():
            return False
        with tempfile.TemporaryDirectory(dir=self.path.parent) as scratch:
            theirs = Path(scratch) / "theirs.sqlite"
            theirs.write_bytes(self._bucket.read(self._relative))
            self._require_known(theirs)
            connection.execute("ATTACH ? AS theirs", (str(theirs),))
            try:
                for table in self._tables:
                    connection.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM theirs.{table}")  # noqa: S608
            finally:
                connection.execute("DETACH theirs")
        self._tag_file.write_text(head["e_tag"])
        return True

    def send(self, connection: sqlite3.Connection) -> None:
        """Put the copy in place of the bucket's file, with what others added to that meanwhile.

        Raises:
            StorageError: Others write to it all the time.
            Unreachable: The bucket does not answer.
        """
        if not self._mark.exists():
            return
        for _ in range(_TRIES):
            self._mark.unlink(missing_ok=True)  # what is kept from here on marks it again
            try:
                tag = self._bucket.write_if(self._relative, self._whole(connection), self._tag())
            except BaseException:
                self._mark.touch()
                raise
            if tag is not None:
                self._tag_file.write_text(tag)
                return
            self._mark.touch()
            self.receive(connection)
        msg = f"{self._bucket.uri}/{self._relative} changes all the time: others write to it; try again"
        raise StorageError(msg)

    def _tag(self) -> str | None:
        return self._tag_file.read_text() if self._tag_file.is_file() else None

    def _whole(self, connection: sqlite3.Connection) -> bytes:
        """Return the bytes of the database, journal included."""
        with tempfile.TemporaryDirectory(dir=self.path.parent) as scratch:
            copy = Path(scratch) / "ours.sqlite"
            with closing(sqlite3.connect(copy)) as target:
                connection.backup(target)
            return copy.read_bytes()

    def _require_known(self, theirs: Path) -> None:
        with closing(sqlite3.connect(theirs)) as file:
            found = file.execute("PRAGMA user_version").fetchone()[0]
        if found > self._version:
            msg = (
                f"{self._bucket.uri}/{self._relative} has schema version {found}, "
                f"this program knows {self._version}: upgrade"
            )
            raise SchemaMismatch(msg)
