"""A root that is a prefix of an S3 bucket, with copies on this machine of what libraries want as files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from storage.errors import Locked, Missing, StorageError, Unreachable, WrongInput
from storage.folder import delete_path, put_file, user_cache

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
    from obstore.store import S3Store
except ImportError as _missing:
    _msg = "a root on S3 needs the extra `s3`: pip install '.[s3]' in Skillery's folder"
    raise WrongInput(_msg) from _missing

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 16  # requests under way: a bucket answers each in some 20 ms, whatever else is asked
_UNCOUNTED = 10_000  # tries: time alone bounds them
_LONGEST_WAIT = timedelta(seconds=4)  # between two tries; the first wait is 0.1 s
_SIDE = ".copies"  # below a bucket's folder: the entity tag of each copy
_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")


class Bucket:
    """Objects below a prefix `s3://bucket[/prefix]` (else `WrongInput`); its methods are those of `Root`.

    Address, region and credentials of the service are the environment's (`AWS_ENDPOINT_URL`, `AWS_REGION`,
    `AWS_ACCESS_KEY_ID` ..., or the role of the machine), for this and for LanceDB alike.
    """

    # Roots whose lock this process took, each with what tells whether it still has it.
    holds: ClassVar[dict[str, Callable[[], bool]]] = {}

    def __init__(self, spec: str, patience: float | None = None) -> None:
        # Seconds for which a request that failed is made again.
        self.patience = Unreachable.AFTER if patience is None else patience
        found = _ADDRESS.fullmatch(spec.rstrip("/"))
        if found is None:
            raise WrongInput(f"root {spec!r} names no bucket: give s3://bucket/prefix")
        bucket, prefix = found[1], (found[2] or "").strip("/")
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self.folder = _copies(self.uri)
        address = sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_"))
        self._store = _store(bucket, prefix, self.patience, tuple(address))

    def exists(self, relative: str) -> bool:
        """Tell whether an object, or one below that name, is there."""
        with self._asking(relative):
            return self.head(relative) is not None or any(self._listed(relative))

    def read(self, relative: str) -> bytes:
        """Return an object's bytes."""
        with self._asking(relative):
            return bytes(obstore.get(self._store, relative).bytes())

    def sha256(self, relative: str) -> str:
        """Return the SHA-256 of an object."""
        return hashlib.sha256(self.read(relative)).hexdigest()

    def open(self, relative: str) -> pa.NativeFile:
        """Return an object, read as a whole: requests for parts could meet the next one of that name."""
        return pa.BufferReader(self.read(relative))

    def write(self, relative: str, data: bytes) -> None:
        """Put an object in place in one step."""
        self._require_lock()
        with self._asking(relative):
            obstore.put(self._store, relative, data)

    def write_if(self, relative: str, data: bytes, tag: str | None) -> str | None:
        """Put an object in place of the one with this entity tag (None: of none); return its tag.

        None is returned, and nothing is written, if another process was first.
        """
        mode: Any = "create" if tag is None else {"e_tag": tag}
        with self._asking(relative):
            try:
                return obstore.put(self._store, relative, data, mode=mode, use_multipart=False)["e_tag"]
            except (AlreadyExistsError, PreconditionError):
                return None

    def head(self, relative: str) -> dict[str, Any] | None:
        """Return an object's `e_tag`, `last_modified` and `size`; None where there is none."""
        with self._asking(relative):
            try:
                return dict(obstore.head(self._store, relative))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def modified(self, relative: str) -> datetime | None:
        """Return when an object was last written, by the bucket's clock."""
        at: datetime | None = (self.head(relative) or {}).get("last_modified")
        return at

    def delete(self, relative: str) -> None:
        """Remove an object or all below that name, and their copies on this machine."""
        self._require_lock()
        with self._asking(relative):
            if found := [relative, *(m["path"] for m in self._listed(relative))]:
                obstore.delete(self._store, found)
        for place in (self.folder / relative, self.folder / _SIDE / relative):
            delete_path(place)

    def unfinished(self) -> list[str]:
        """Return nothing: an object is whole or not there."""
        return []

    def files(self, folder: str, suffix: str) -> list[str]:
        """Return the objects below a folder, sorted."""
        with self._asking(folder):
            return sorted(m["path"] for m in self._listed(folder) if m["path"].endswith(suffix))

    def sizes(self, since: float = 0.0) -> dict[str, int]:
        """Return the bytes below each first part of a name."""
        found: Counter[str] = Counter()
        with self._asking(""):
            for meta in (m for m in self._listed("") if m["last_modified"].timestamp() >= since):
                found[str(meta["path"]).partition("/")[0]] += int(meta["size"])
        return dict(found)

    def fetch(self, relative: str) -> Path:
        """Bring a file or folder to this machine where it is not there as it is in the bucket."""
        above = relative.rpartition("/")[0]
        with self._asking(relative):
            found = {m["path"]: str(m["e_tag"]) for m in self._listed(above)}
        wanted = {p: tag for p, tag in found.items() if p == relative or p.startswith(f"{relative}/")}
        self._drop_copies(above, found)
        self.each(lambda path: self._bring(path, wanted[path]), wanted)
        return self.folder / relative

    def send(self, relative: str) -> None:
        """Put what lies below the folder of this machine into the bucket where it is not there yet."""
        self._require_lock()
        for path in sorted(p for p in (self.folder / relative).rglob("*") if p.is_file()):
            name = path.relative_to(self.folder).as_posix()
            head, side = self.head(name), self._side(name)
            if head is None or _text(side) != head["e_tag"]:
                with self._asking(name):
                    tag = str(obstore.put(self._store, name, path)["e_tag"])
                _keep(side, tag.encode())

    def each(self, work: Callable[[T], R], items: Iterable[T], *, spread: bool = False) -> list[R]:
        """Do the items side by side: each waits for the network."""
        del spread  # they are in any case
        todo = list(items)
        if len(todo) < 2:
            return [work(item) for item in todo]
        with ThreadPoolExecutor(min(_AT_ONCE, len(todo))) as pool:
            return list(pool.map(work, todo))

    def _listed(self, folder: str) -> Iterator[dict[str, Any]]:
        for page in obstore.list(self._store, f"{folder}/" if folder else None):
            yield from (dict(meta) for meta in page)

    def _bring(self, relative: str, tag: str) -> None:
        copy, side = self.folder / relative, self._side(relative)
        if not copy.is_file() or _text(side) != tag:
            side.unlink(missing_ok=True)
            with self._asking(relative):
                found = obstore.get(self._store, relative)
                data, tag = bytes(found.bytes()), str(found.meta["e_tag"])
            _keep(copy, data)
            _keep(side, tag.encode())

    def _drop_copies(self, folder: str, present: Iterable[str]) -> None:
        sides = self.folder / _SIDE
        kept = set(present)
        for side in [p for p in (sides / folder).rglob("*") if p.is_file()]:
            name = side.relative_to(sides).as_posix()
            if name not in kept:
                delete_path(self.folder / name)
                delete_path(side)

    def _side(self, relative: str) -> Path:
        return self.folder / _SIDE / relative

    def _require_lock(self) -> None:
        still_held = self.holds.get(self.uri)
        if still_held is not None and not still_held():
            raise Locked(f"this run was silent for too long: another writes to {self.uri}, this one does not")

    @contextlib.contextmanager
    def _asking(self, relative: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            code = re.search(r"<Code>(\w+)</Code>", str(error))
            if code and code[1] == "NoSuchBucket":
                msg = f"root {self.uri}: there is no such bucket; make it, or name another"
                raise WrongInput(msg) from error
            where = f"{self.uri}/{relative}"
            if isinstance(error, FileNotFoundError):
                raise Missing(f"{where} is missing") from error
            raise Unreachable.of(where, error) or Unreachable(f"{where} cannot be reached") from error


_PATIENCE = 5.0  # seconds, of a server whose client waits for its answer
_GLANCE = 2.0  # seconds in which what is known must come anew
_PAUSE = 5.0  # seconds for which a bucket that did not answer is not asked again
_KNOWN_BYTES = 64_000_000
_ENTRY_BYTES = 500  # of what is known, beside the object's own: also of one that is absent
_GLANCED = 1_000_000  # bytes of an object: a larger one may take longer to come than a glance


class RememberingBucket(Bucket):
    """A bucket for a server: while it does not answer, what was read before is read again out of memory.

    It is asked for seconds only, and for what is not known not at all where it failed just now, so that
    answers out of memory wait for nobody.
    """

    def __init__(self, spec: str) -> None:
        super().__init__(spec, _PATIENCE)
        self._glancing = Bucket(spec, _GLANCE)
        self._known: OrderedDict[str, bytes | None] = OrderedDict()  # None: there was none
        self._held, self._lock = 0, threading.Lock()
        self._failed = (-_PAUSE, "")  # when it last did not answer, and what is said of that

    def read(self, relative: str) -> bytes:
        """Return an object's bytes, as they were where the bucket does not answer."""
        with self._lock:
            known, kept = relative in self._known, self._known.get(relative)
        glanced = known and len(kept or b"") < _GLANCED
        try:
            if time.monotonic() - self._failed[0] < _PAUSE:
                raise Unreachable(self._failed[1])
            try:
                asked = self._glancing.read if glanced else super().read
                return self._remember(relative, asked(relative))
            except Unreachable as error:
                self._failed = time.monotonic(), str(error)
                raise
            except Missing:
                self._remember(relative, None)
                raise
        except Unreachable:
            if not known:
                raise
            if kept is None:
                raise Missing(f"{self.uri}/{relative} is missing") from None
            return kept

    def _remember(self, relative: str, data: bytes | None) -> bytes:
        with self._lock:
            if relative in self._known:
                self._held -= _weight(self._known.pop(relative))
            self._known[relative] = data
            self._held += _weight(data)
            while self._held > _KNOWN_BYTES:
                self._held -= _weight(self._known.popitem(last=False)[1])
        return data or b""


def _weight(data: bytes | None) -> int:
    return _ENTRY_BYTES + len(data or b"")


@functools.lru_cache(maxsize=32)
def _store(bucket: str, prefix: str, patience: float, _environment: tuple[tuple[str, str], ...]) -> S3Store:
    retry: Any = {
        "max_retries": _UNCOUNTED, "retry_timeout": timedelta(seconds=patience),
        "backoff": {"max_backoff": _LONGEST_WAIT},
    }  # fmt: skip
    # `client_options` would take the place of all that the environment says of the client, as of its proxy.
    hasty: Any = {"timeout": f"{patience} seconds"} if patience < _PATIENCE else None
    return S3Store(bucket, prefix=prefix or None, retry_config=retry, config=hasty)


def _copies(uri: str) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", uri.lower()).strip("-")[:60]
    return user_cache() / f"{name}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def _keep(path: Path, data: bytes) -> None:
    try:
        put_file(path, data)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}): copies of a bucket's files lie there"
        raise StorageError(msg) from error


def _text(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None
