"""The folder of an agent's skills: what is written there, and where it was edited by hand since."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storage.errors import Locked, StorageError, WrongInput
from storage.folder import UNFINISHED, delete_path, exchange, write_new
from tasks.crawl.source.identity import doc_key
from tasks.retrieve.install.lock import LOCK_FILE, Installed, Pending, read_lock, write_lock
from tasks.retrieve.install.skills_lock import SKILLS_LOCK

_NO_FILE = "no regular file"
# What running a script, or opening a folder on a desktop, leaves there is no edit.
_GENERATED = re.compile(r"\A(?:.*/)?(?:__pycache__/.*|\.DS_Store)")


@dataclass(frozen=True, slots=True)
class HandEdit:
    """One difference of a folder from what was written; a link in place of a file is an edited one.

    The last four are found by `verification` alone.
    """

    path: str
    change: Literal["edited", "added", "missing", "executable", "unlisted", "pending", "hash"]


def digests_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, by its path; empty if it is none, or a link.

    No link is followed: a link, or what else is neither a file nor a folder, has a text that is no digest.
    """
    found: dict[str, str] = {}
    if folder.is_symlink():
        return found
    for above, folders, files in os.walk(folder):
        links = [name for name in folders if Path(above, name).is_symlink()]
        for path in (Path(above, name) for name in (*links, *files)):
            found[path.relative_to(folder).as_posix()] = _digest(path)
    return found


def digests_of(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file, by its path."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return _NO_FILE
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def contents_in(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file below a folder, by path, but for what programs leave there.

    Raises `WrongInput` if it holds a link, or what else is neither a file nor a folder, or cannot be read.
    """
    found = {path: said for path, said in digests_in(folder).items() if not _GENERATED.fullmatch(path)}
    if odd := [path for path, said in found.items() if said == _NO_FILE]:
        raise WrongInput(f"{folder / odd[0]} is no regular file, and is not merged")
    try:
        return {path: (folder / path).read_bytes() for path in found}
    except OSError as error:
        raise WrongInput(f"{error.filename} cannot be read ({error.strerror})") from error


def hand_edits(folder: Path, files: Mapping[str, str], *, generated: bool = False) -> list[HandEdit]:
    """Return the differences between a folder and the digests of what was written there, by path.

    `__pycache__` and `.DS_Store`, which programs leave, are no edits unless `generated` says so. `folder` is
    a skill's folder; where there is none, every file is missing. `files` holds the digest of each file that
    was written, by path. `generated` says whether what programs leave counts.
    """
    found = digests_in(folder)
    edits = [HandEdit(path, "missing") for path in files if path not in found]
    edits += [HandEdit(p, "edited") for p, digest in files.items() if found.get(p, digest) != digest]
    new = (p for p in found if p not in files and (generated or not _GENERATED.fullmatch(p)))
    edits += [HandEdit(p, "added") for p in new]
    return sorted(edits, key=lambda edit: edit.path)


def said(edits: Iterable[HandEdit]) -> str:
    """Return edits in a line, at most five of them by name."""
    each = [f"{edit.path} ({edit.change})" for edit in edits]
    more = f" and {len(each) - 5:,} more" if len(each) > 5 else ""
    return ", ".join(each[:5]) + more


# What is being written or removed lies a folder deeper than agents look for skills.
STAGING = ".skillery.tmp"
REJECTED = ".rej"  # behind a skill's name: what an update could not merge
# What file systems answer that cannot exchange two folders.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


class SkillsFolder:
    """The skills in a folder, each changed in one step; made by `open_skills_folder`.

    A change is noted as pending in the lock before it is made, and after it the lock says what was done. A
    process that is killed in between leaves a note and the old or the new folder, which the next to open it
    tells by the digests; `mended` says what that one did. `path` is the folder; the caller holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._new, self._old = path, path / STAGING / "new", path / STAGING / "old"
        self._lock = read_lock(path)
        self.mended: dict[str, str] = {}
        with self._writing():
            if (path / STAGING).is_symlink():  # what it leads to is not ours to move or to remove
                delete_path(path / STAGING)
            for left in path.glob(f"*.????????{UNFINISHED}"):  # by a killed writer of one of these
                if left.name.startswith((LOCK_FILE, SKILLS_LOCK)) or f"{REJECTED}." in left.name:
                    delete_path(left)
            if self._lock.pending:
                self._mend(self._lock.pending)
            delete_path(path / STAGING)

    @property
    def skills(self) -> Mapping[str, Installed]:
        """What is installed, by the names of folders, sorted."""
        return dict(sorted(self._lock.skills.items()))

    def edits(self, name: str) -> list[HandEdit]:
        """Return how the folder of an installed skill differs from what was written."""
        return hand_edits(self.path / name, self._lock.skills[name].files)

    def require_free(self, name: str, doc_id: str) -> None:
        """Raise `WrongInput` if putting a document into a folder would change what others put there.

        Others are people who edited it, whoever made a folder that is in no lock, and other documents.
        """
        held = next((n for n in self._lock.skills if doc_key(n) == doc_key(name)), None)
        there = next((n for n in os.listdir(self.path) if doc_key(n) == doc_key(name)), None)
        if held is not None and self._lock.skills[held].doc_id != doc_id:
            other = self._lock.skills[held].doc_id
            msg = f"{self.path / held} holds {other}: `skillery remove {held}` first, or use --as NAME"
            raise WrongInput(msg)
        if there is not None and held is None:
            msg = f"{self.path / there} is there, and not from Skillery: move it away, or use --as NAME"
            raise WrongInput(msg)
        if held is not None and there is not None and (edits := self.edits(held)):
            msg = f"{self.path / held} was edited by hand, and stays: {said(edits)}; {how_to_replace(held)}"
            raise WrongInput(msg)

    def put(
        self, name: str, installed: Installed, contents: Mapping[str, bytes], *, before: str | None = None,
        onto: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Write a skill's folder, in place of what was installed there; no file is made executable.

        `name` is the folder, of which `is_folder_name` is true. `contents` are the bytes of each of its
        files. `before` is the document that was installed there, if that is another. `onto` are the digests
        of the folder whose edits `contents` holds, merged: the lock says what was installed all the same, so
        that they count as edits on. Raises `WrongInput` as `require_free` does, and if the folder is not as
        `onto` says or cannot be written; `StorageError` if the disk holds other bytes than were written;
        nothing has been changed.
        """
        with self._writing():
            try:
                for path, content in contents.items():
                    write_new(self._new / path, content)
                written = installed.files if onto is None else digests_of(contents)
                if digests_in(self._new) != written:
                    msg = f"{self._new} holds other bytes than were written: check the disk of {self.path}"
                    raise StorageError(msg)
                # Last of all, as somebody may edit what is there in the meantime.
                if onto is None:
                    self.require_free(name, before or installed.doc_id)
                elif digests_in(self.path / name) != onto:
                    msg = f"{self.path / name} was edited while it was merged: `skillery update {name}` again"
                    raise WrongInput(msg)
            except BaseException:
                delete_path(self.path / STAGING)
                raise
            for path in (p for p, digest in written.items() if (onto or {}).get(p) == digest):
                # As the person has it, who may have let it be executed.
                (self._new / path).chmod(stat.S_IMODE((self.path / name / path).stat().st_mode) & 0o777)
            pending = Pending(name, installed, None if onto is None else written)
            self._note(pending)
            try:
                self._replace(self.path / name)
            except OSError:
                self._mend(pending)  # others may be written after it
                raise
            self._settle(name, installed)

    def remove(self, name: str) -> None:
        """Remove an installed skill's folder, whatever it holds; raises `WrongInput` if that cannot be."""
        with self._writing():
            self._note(Pending(name, None))
            self._old.parent.mkdir(exist_ok=True)
            if os.path.lexists(self.path / name):
                (self.path / name).rename(self._old)
            self.rejected(name).unlink(missing_ok=True)
            self._settle(name, None)

    def rejected(self, name: str) -> Path:
        """Return the file, beside a skill's folder, that lists what an update could not merge into it."""
        return self.path / f"{name}{REJECTED}"

    def _replace(self, place: Path) -> None:
        if not os.path.lexists(place):
            self._new.rename(place)
            return
        try:
            exchange(self._new, place)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            place.rename(self._old)
            self._new.rename(place)

    def _mend(self, pending: Pending) -> None:
        place = self.path / pending.name
        if pending.becomes and not os.path.lexists(place) and self._old.is_dir():
            self._old.rename(place)  # killed between the two renames of `_replace`
        if pending.becomes is None:
            done = not os.path.lexists(place)
        else:
            # A program may have left its files there since.
            done = not hand_edits(place, pending.files or pending.becomes.files)
        before = self._lock.skills.get(pending.name)
        self._settle(pending.name, pending.becomes if done else before)
        verb = "removed" if pending.becomes is None else "updated" if before else "installed"
        self.mended[pending.name] = verb if done else f"not {verb}"

    def _note(self, pending: Pending | None) -> None:
        self._lock.pending = pending
        write_lock(self.path, self._lock)

    def _settle(self, name: str, installed: Installed | None) -> None:
        if installed is None:
            self._lock.skills.pop(name, None)
        else:
            self._lock.skills[name] = installed
        self._note(None)
        delete_path(self.path / STAGING)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            msg = f"{self.path} cannot be written ({error.strerror}): name a folder that you may write to"
            raise WrongInput(msg) from error


def how_to_replace(name: str) -> str:
    """Return what a person can do who wants the corpus's text in place of their own."""
    return (
        f"to have what the corpus holds, `skillery remove {name} --yes` and install it, or install it beside "
        "yours with --as NAME"
    )


@contextmanager
def open_skills_folder(path: Path, *, create: bool = False) -> Iterator[SkillsFolder]:
    """Hold a folder of skills, and mend what a killed process left there.

    `create` says whether it is made where it is not there. Raises `WrongInput` if it is not there, or cannot
    be made or opened; `Locked` if another process holds it; `StorageError` if its lock is damaged.
    """
    try:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        msg = f"{path} cannot be opened as a folder ({error.strerror}): name another with --to"
        raise WrongInput(msg) from error
    try:
        _hold(descriptor, path)
        yield SkillsFolder(path)
    finally:
        os.close(descriptor)


def _hold(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Locked(f"another skillery installs into {path}: wait until it has ended") from error
