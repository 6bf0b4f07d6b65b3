"""The lock of a folder of skills: what was installed there, from where, with the digest of each file."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from storage.errors import StorageError
from storage.folder import delete_path, put_file
from tasks.refine.export.paths import file_path
from tasks.refine.risks.hits import RiskHit

LOCK_FILE = "skillery.lock"
_VERSION = 1
_MAX_NAME_BYTES = 200  # file systems take 255


@dataclass(frozen=True, slots=True)
class Installed:
    """What was installed as one folder.

    `files` maps each path, relative and with `/`, to the SHA-256 of the bytes that were written there;
    `renamed` the skill's own paths to those that were written in their place.
    `not_written` names files of the skill whose bytes are not kept, None where its files are not known.
    `risks` are the codes found in it, `accepted_risks` the rules of those that would have been refused, and
    `hits` what all of them hit: None in a lock that older versions wrote, which names no repository either.
    `called` says that somebody chose the folder's name, which `update` keeps. `artifact` is the digest of
    what a registry gave, None where none did.
    """

    doc_id: str
    source: str
    url: str | None
    commit: str | None
    revision: str
    raw_hash: str
    content_hash: str
    licence: str | None
    files: dict[str, str]
    not_written: list[str] | None
    risks: list[str]
    accepted_risks: list[str]
    repo: str | None = None
    repo_id: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    hits: list[RiskHit] | None = None
    called: bool = False
    artifact: str | None = None

    @property
    def publisher(self) -> dict[str, str | None]:
        """Whose it is: its source, its repository, and the id that the forge gave that."""
        return {"source": self.source, "repo": self.repo, "repo_id": self.repo_id}


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that was begun: what the folder `name` becomes, None where it is removed.

    `files` are the digests of what is written where a person's edits are merged in, else those of `becomes`.
    """

    name: str
    becomes: Installed | None
    files: dict[str, str] | None = None


@dataclass(slots=True)
class InstallLock:
    """What is installed in a folder of skills, by the names of their folders; `pending` is under way."""

    skills: dict[str, Installed] = field(default_factory=dict)
    pending: Pending | None = None
    version: int = _VERSION


_FORM = TypeAdapter(InstallLock)


def is_folder_name(name: str) -> bool:
    """Tell whether any file system takes a name for a folder, beside the lock."""
    plain = not name.startswith(".") and "/" not in name and file_path(name) == name
    return plain and len(name.encode()) <= _MAX_NAME_BYTES and name.casefold() != LOCK_FILE


def read_lock(folder: Path) -> InstallLock:
    """Return the lock of a folder of skills, an empty one if there is none.

    Raises `StorageError` if it is damaged, a newer version of this program wrote it, or a path in it leads
    elsewhere: others may have written to it, and what it names may be removed.
    """
    path = folder / LOCK_FILE
    remedy = "restore it, or delete it: its skills then count as not installed"
    try:
        lock = _FORM.validate_json(_regular(path))
    except FileNotFoundError:
        return InstallLock()
    except (OSError, ValidationError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise StorageError(f"{path} cannot be read ({first}): {remedy}") from error
    if lock.version > _VERSION:
        msg = f"{path} has version {lock.version}, which a newer Skillery wrote: update Skillery"
        raise StorageError(msg)
    pending = {lock.pending.name: lock.pending.becomes} if lock.pending else {}
    named = [*lock.skills.items(), *pending.items()]
    wrong = [name for name, _ in named if not is_folder_name(name)]
    wrong += [file for file in (lock.pending and lock.pending.files) or () if not _is_below(file)]
    wrong += [file for _, installed in named if installed for file in installed.files if not _is_below(file)]
    if wrong:
        raise StorageError(f"{path} names {wrong[0]!r}, which Skillery does not write: {remedy}")
    return lock


def _regular(path: Path) -> bytes:
    """Return the bytes of a file; whoever made the folder may have put a pipe or a device in its place."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        return file.read()


def _is_below(file: str) -> bool:
    """Tell whether a path is a plain one, relative to a folder and below it."""
    parts = file.split("/")
    return {"", ".", ".."}.isdisjoint(parts) and "\0" not in file


def write_lock(folder: Path, lock: InstallLock) -> None:
    """Replace the lock in one step; one that says nothing is removed."""
    if lock.skills or lock.pending:
        stated = {key: value for key, value in asdict(lock).items() if key != "pending" or value}
        said = json.dumps(stated, ensure_ascii=False, indent=1, sort_keys=True)
        put_file(folder / LOCK_FILE, f"{said}\n".encode())
    else:
        delete_path(folder / LOCK_FILE)
