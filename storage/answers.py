"""Answers of LLMs, kept for good: one SQLite file below the root, a row for each answer.

SQLite rather than Parquet parts: an answer that was paid for is safe after one small write, whatever kills
the process afterwards. Of a root in a bucket the file lies on this machine; it is put there every few
minutes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from storage.errors import Locked, SchemaMismatch, StorageError
from storage.folder import Folder
from storage.root import Root
from storage.tombstones import Forgotten

if TYPE_CHECKING:
    from storage.s3 import Bucket

FILE = "state/answers/answers.sqlite"
SCHEMA_VERSION = 1
_TRIES = 5  # to put the copy in place of a bucket's file while others write to it
_TABLES = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL, attempt INTEGER NOT NULL,
    text TEXT NOT NULL, rejected TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, made_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE documents (doc_id TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (doc_id, key)) WITHOUT ROWID;
CREATE TABLE offers (endpoint TEXT NOT NULL, feature TEXT NOT NULL, offered TEXT NOT NULL,
    PRIMARY KEY (endpoint, feature)) WITHOUT ROWID;
"""
_MERGED = ("answers", "documents", "offers")
_SECONDS_BETWEEN_SENDS = 300.0
_COLUMNS = "key, model, prompt, attempt, text, rejected, prompt_tokens, completion_tokens, made_at"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer as the server gave it."""

    key: str  # a digest of model, prompt version, sampling, payload and attempt
    model: str
    prompt: str  # its name and version
    attempt: int  # which of several answers to the same question, from 0
    text: str  # empty if the question was too long for the model
    rejected: str | None  # why it failed its checks; None: it passed, and may be used again
    prompt_tokens: int | None  # as the server counted; None: it did not say
    completion_tokens: int | None  # as the server counted, too
    made_at: str  # UTC time in ISO form


class Answers:
    """The answers kept below a root; several threads may share it, and several processes use it in turn.

    An answer is on disk when `keep` returns. The first under a key stays. Another process that is writing is
    waited for `wait` seconds. A damaged file is StorageError, that of a newer version SchemaMismatch. Close
    it, or use it in a `with` statement.
    """

    def __init__(self, root: Root, *, wait: float = 30.0) -> None:
        path = root.folder / FILE
        self.place = str(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._shared: SharedFile | None = None
        self._sent = time.monotonic()
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.place, timeout=wait, check_same_thread=False)
            self._open(self._connection)
            self._shared = None if isinstance(root.place, Folder) else SharedFile(root.place)
            if self._shared is not None and self._shared.receive(self._connection):
                self.forget(Forgotten.load(root).covers)  # by another machine, perhaps

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the last process to do so folds the journal into it."""
        if self._connection is None:
            return
        try:
            with self._errors():
                if self._shared is not None:
                    self._shared.send(self._connection)
        finally:
            self._connection.close()
            self._connection = None

    def find(self, key: str) -> KeptAnswer | None:
        """Return what was answered under a key, rejected or not; None: nothing is known."""
        rows = self._read(f"SELECT {_COLUMNS} FROM answers WHERE key = ?", (key,))  # noqa: S608 - constants
        return KeptAnswer(*rows[0]) if rows else None

    def keep(self, answer: KeptAnswer, doc_ids: Collection[str]) -> None:
        """Keep an answer, unless its key has one, and which documents its question quoted, for `forget`."""
        row = tuple(getattr(answer, name) for name in KeptAnswer.__slots__)
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO answers VALUES (?,?,?,?,?,?,?,?,?)", row)
            pairs = [(doc_id, answer.key) for doc_id in sorted(set(doc_ids))]
            connection.executemany("INSERT OR IGNORE INTO documents VALUES (?, ?)", pairs)

    def kept(self, *, rejected: bool) -> list[KeptAnswer]:
        """Return every answer that passed its checks, or those that were rejected, oldest first."""
        condition = f"rejected IS {'NOT ' * rejected}NULL"
        order = f"SELECT {_COLUMNS} FROM answers WHERE {condition} ORDER BY made_at, key"  # noqa: S608
        return [KeptAnswer(*row) for row in self._read(order, ())]

    def offered(self, endpoint: str) -> dict[str, str]:
        """Return what is known of an endpoint's features, as `learn` was told."""
        return dict(self._read("SELECT feature, offered FROM offers WHERE endpoint = ?", (endpoint,)))

    def learn(self, endpoint: str, feature: str, offered: str) -> None:
        """Remember what an endpoint offers, so that no later process has to try."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO offers VALUES (?, ?, ?)", (endpoint, feature, offered))

    def forget(self, covered: Callable[[str], bool]) -> int:
        """Remove, with its bytes, each answer to a question on a covered document; return how many."""
        found = [d for (d,) in self._read("SELECT DISTINCT doc_id FROM documents", ()) if covered(d)]
        with self._writing() as connection:
            connection.execute("CREATE TEMP TABLE gone (doc_id TEXT)")
            connection.executemany("INSERT INTO gone VALUES (?)", [(d,) for d in found])
            keys = "SELECT key FROM documents WHERE doc_id IN (SELECT doc_id FROM gone)"
            count = connection.execute(f"DELETE FROM answers WHERE key IN ({keys})").rowcount  # noqa: S608
            connection.execute(f"DELETE FROM documents WHERE key IN ({keys})")  # noqa: S608 - constants
            connection.execute("DROP TABLE gone")
        if found:
            with self._lock, self._errors():
                self._connected().execute("VACUUM")
                self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def _open(self, connection: sqlite3.Connection) -> None:
        connection.isolation_level = None
        # The journal keeps each commit through a kill of the process; a power cut may take the last few.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")
        with self._writing():
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            _require_known(self.place, version)
            if version == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _read(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        with self._lock, self._errors():
            return self._connected().execute(statement, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold one transaction: all of it is kept, or nothing."""
        connection = self._connected()
        with self._lock, self._errors():
            if self._shared is not None:
                self._shared.mark_unsent()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            if self._shared is not None and time.monotonic() - self._sent > _SECONDS_BETWEEN_SENDS:
                self._sent = time.monotonic()
                self._shared.send(connection)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StorageError(f"{self.place} has been closed")
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise StorageError(f"{self.place} cannot be used ({error})") from error
            raise Locked(f"another process writes to {self.place}: wait until it has ended") from error
        except (sqlite3.DatabaseError, OSError) as error:
            msg = f"{self.place} cannot be read ({error}): delete it, and the answers are asked for again"
            raise StorageError(msg) from error


def _require_known(place: str, version: int) -> None:
    if version > SCHEMA_VERSION:
        msg = f"{place} has schema version {version}, this program knows {SCHEMA_VERSION}: upgrade"
        raise SchemaMismatch(msg)


def forget_answers(root: Root, covered: Callable[[str], bool]) -> int:
    """Remove the answers below a root that came of documents covered, as `Answers.forget`; 0 without any."""
    if not root.exists(FILE):
        return 0
    with Answers(root) as answers:
        return answers.forget(covered)


class SharedFile:
    """The SQLite file below a bucket, and its copy on this machine, which holds what both know.

    A mark beside the copy says that it holds rows that the bucket lacks, so that they survive the process.
    Methods raise `Unreachable`.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket, self.path = bucket, bucket.folder / FILE
        self._mark = self.path.with_name(f"{self.path.name}.unsent")
        self._tag_file = self.path.with_name(f"{self.path.name}.tag")

    def mark_unsent(self) -> None:
        """Remember that the copy holds what the bucket does not."""
        self._mark.touch()

    def receive(self, connection: sqlite3.Connection) -> bool:
        """Add to the copy what the bucket's file holds beyond it; tell whether that was changed since.

        Raises `SchemaMismatch` where the bucket's file was written by a newer version.
        """
        head = self._bucket.head(FILE)
        if head is None or head["e_tag"] == self._tag():
            return False
        with tempfile.TemporaryDirectory(dir=self.path.parent) as scratch:
            theirs = Path(scratch) / "theirs.sqlite"
            theirs.write_bytes(self._bucket.read(FILE))
            with closing(sqlite3.connect(theirs)) as file:
                found = file.execute("PRAGMA user_version").fetchone()[0]
            _require_known(f"{self._bucket.uri}/{FILE}", found)
            connection.execute("ATTACH ? AS theirs", (str(theirs),))
            try:
                for table in _MERGED:  # rows are only added, by primary key
                    connection.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM theirs.{table}")  # noqa: S608
            finally:
                connection.execute("DETACH theirs")
        self._tag_file.write_text(head["e_tag"])
        return True

    def send(self, connection: sqlite3.Connection) -> None:
        """Put the copy in place of the bucket's file, with what others added to that meanwhile."""
        if not self._mark.exists():
            return
        for _ in range(_TRIES):
            self._mark.unlink(missing_ok=True)  # what is kept from here on marks it again
            try:
                tag = self._bucket.write_if(FILE, self._whole(connection), self._tag())
            except BaseException:
                self._mark.touch()
                raise
            if tag is not None:
                self._tag_file.write_text(tag)
                return
            self._mark.touch()
            self.receive(connection)
        msg = f"{self._bucket.uri}/{FILE} changes all the time: others write to it; try again"
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
