"""A root that is a folder of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.errors import Missing, StorageError, WrongInput

if TYPE_CHECKING:  # its import takes a tenth of a query
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")
UNFINISHED = ".tmp"
_LARGE = 1_000_000  # bytes
_DIGESTS: dict[tuple[int, ...], str] = {}  # of large files that were read, by what the disk says of them
_WORTH_THREADS = 16  # items: fewer are done sooner without
_AT_ONCE = 4  # each holds a file of a table in memory
# Flags of renameat2 on Linux (RENAME_EXCHANGE) and of renamex_np on macOS (RENAME_SWAP), and "this folder".
_EXCHANGE, _HERE = 2, -100
# What was fetched, whatever its licence and whatever it holds: other users of the machine have no part in it.
_PRIVATE = ("raw", "trajectories", "usage")  # what was said to agents or asked, and texts before redaction


def user_cache() -> Path:
    """Return the folder of what this machine keeps for any root: `skillery` in XDG_CACHE_HOME or ~/.cache.

    Raises:
        OSError: The user has no home folder, and the environment names none.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    except RuntimeError as error:
        raise OSError(f"{error}: set XDG_CACHE_HOME") from error
    return base.absolute() / "skillery"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of_process() -> int:
    """Return how many threads compute at a time in this process: a core each, at most OMP_NUM_THREADS."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), max(1, int(said))) if said.isdecimal() else cores()


class Folder:
    """Files below a folder (else `WrongInput`), which need not be there yet; methods are those of `Root`."""

    patience = 0.0  # there is nobody to ask again

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path).expanduser().absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise WrongInput(f"root {str(path)!r} is a file: name a folder")
        self.uri = str(self.folder)
        self._above = len(os.path.join(self.uri, ""))  # a root at `/` ends with its slash

    def exists(self, relative: str) -> bool:
        """Tell whether a file or folder of that name is there."""
        return (self.folder / relative).exists()

    def read(self, relative: str) -> bytes:
        """Return a file's bytes."""
        with self._reading(relative):
            return (self.folder / relative).read_bytes()

    def sha256(self, relative: str) -> str:
        """Return the SHA-256 of a file, which may be larger than the memory."""
        with self._reading(relative):
            return file_digest(self.folder / relative)

    def open(self, relative: str) -> pa.NativeFile:
        """Return a file to read parts of."""
        import pyarrow as pa  # noqa: PLC0415 (a search opens none)

        with self._reading(relative):
            return pa.OSFile(f"{self.uri}/{relative}")

    @contextlib.contextmanager
    def _reading(self, relative: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise Missing(f"{self.uri}/{relative} is missing") from error
        except OSError as error:
            raise StorageError(f"{self.uri}/{relative} cannot be read ({error.strerror or error})") from error

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place in one step."""
        try:
            if (top := relative.partition("/")[0]) in _PRIVATE:
                make_private(self.folder / top)
            put_file(self.folder / relative, data)
        except OSError as error:
            raise StorageError(f"{self.uri}/{relative} cannot be written ({error.strerror})") from error

    def modified(self, relative: str) -> datetime | None:
        """Return when a file was last written; None where there is none."""
        try:
            return datetime.fromtimestamp((self.folder / relative).stat().st_mtime, UTC)
        except OSError:
            return None

    def delete(self, relative: str) -> None:
        """Remove a file or a folder with all below it; nothing happens where there is none."""
        delete_path(self.folder / relative)

    def unfinished(self) -> list[str]:
        """Return what writes left beside their files, and what one under way is writing, sorted."""
        found = (path for path in self.folder.rglob(f"*{UNFINISHED}") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def files(self, folder: str, suffix: str) -> list[str]:
        """Return the whole files below a folder, sorted."""
        found = (
            f"{top}/{name}"
            for top, _, names in os.walk(self.folder / folder)
            for name in names
            if name.endswith(suffix) and not name.endswith(UNFINISHED)
        )
        return sorted(path[self._above :] for path in found if os.path.isfile(path))

    def sizes(self, since: float = 0.0) -> dict[str, int]:
        """Return the bytes below each folder; a link counts as what it is."""
        found: Counter[str] = Counter()
        for top, _, files in os.walk(self.uri):
            part = top[self._above :].partition("/")[0] or "."
            for file in files:
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    if (told := os.lstat(f"{top}/{file}")).st_mtime >= since:
                        found[part] += told.st_size
        return dict(found)

    def fetch(self, relative: str) -> Path:
        """Return where it lies."""
        return self.folder / relative

    def send(self, relative: str) -> None:
        """Do nothing: what lies in the folder lies in the root."""

    def each(self, work: Callable[[T], R], items: Iterable[T], *, spread: bool = False) -> list[R]:
        """Do the items one after another, since a disk answers sooner than threads start, unless `spread`."""
        todo, threads = list(items), min(threads_of_process(), _AT_ONCE)
        if not spread or threads < 2 or len(todo) < _WORTH_THREADS:
            return [work(item) for item in todo]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, todo))


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def digest_once(file: Path) -> str:
    """Return the SHA-256 of a file, worked out once a process while it stays as it is: models are large."""
    at = file.stat()
    if at.st_size < _LARGE:
        return file_digest(file)
    key = (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns)
    if key not in _DIGESTS:
        _DIGESTS[key] = file_digest(file)
    return _DIGESTS[key]


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone can read, if it is not there, or take others' rights away."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def put_file(path: Path, data: bytes) -> None:
    """Put a file in place in one step; what was there stays where that fails."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")
    try:
        write_new(beside, data)
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            _sync(folder)
        finally:
            os.close(folder)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, and the folders above it, and wait until the disk holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        _sync(file.fileno())


def _sync(descriptor: int) -> None:
    """Wait until the disk holds a file, or the names in a folder, unless `SKILLERY_SYNC_FILES` is false."""
    if os.environ.get("SKILLERY_SYNC_FILES", "true").lower() not in {"false", "0", "no", "off"}:
        os.fsync(descriptor)


def delete_path(path: Path) -> None:
    """Remove a file, a link or a folder with all below it; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def exchange(one: Path, other: Path) -> None:
    """Exchange what two paths of one file system name, in one step.

    Raises:
        OSError: One is not there, or the system (ENOSYS) or its file system (EINVAL, ENOTSUP) cannot do it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, first, _HERE, second, _EXCHANGE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(first, second, _EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one))
