"""Read trajectories of files and folders: each content once, with a report of what was not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from storage.errors import WrongInput
from tasks.induce.trajectories.messages import row_of
from tasks.induce.trajectories.record import Trajectory, digest_of, trajectory_of
from tasks.induce.trajectories.redaction import redacted
from tasks.induce.trajectories.rows import (
    MAGIC,
    NotRead,
    Unread,
    checked,
    object_of,
    read_rows,
    read_values,
    unread,
)
from tasks.induce.trajectories.sessions import turns

Format = Literal["trajectories", "messages", "claude", "codex"]
DOMAIN = "chat"  # of chats that name none; that of a host's sessions is its name
Row = tuple[Mapping[str, Any], Trajectory]
_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(slots=True)
class Reading:
    """What became of the rows: how many were read, how many had been read before, and which were not read.

    `judged` counts verdicts on trajectories that were read without one, `redacted` those of either kind in
    which secrets were replaced. `digests` are those of the trajectories that were read, by id; those of an
    earlier reading may be given.
    """

    read: int = 0
    judged: int = 0
    repeated: int = 0
    redacted: int = 0
    unread: list[Unread] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> Counter[str]:
        """How many rows were not read, by reason."""
        return Counter(each.reason for each in self.unread)

    def is_kept(self, row: Mapping[str, Any], trajectory_id: str) -> bool:
        """Count a row, and tell whether it is new, or is the verdict on one that had none.

        A row without a verdict after the same one with a verdict is a repetition.

        Raises:
            NotRead: Another content or another verdict was read under its id before (`two-contents`).
        """
        digest, known = digest_of(row), self.digests.get(trajectory_id)
        is_judged = row.get("success") is not None
        if known is None:
            self.read += 1
        elif known == digest or (not is_judged and known in _with_verdicts(row, True, False)):
            self.repeated += 1
            return False
        elif is_judged and known in _with_verdicts(row, None):
            self.judged += 1
        else:
            what = "another trajectory with this id, or another verdict on it, was read before"
            raise NotRead("two-contents", f"{what}; give each an id of its own")
        self.digests[trajectory_id] = digest
        return True


def _with_verdicts(row: Mapping[str, Any], *verdicts: bool | None) -> list[str]:
    return [digest_of({**row, "success": verdict}) for verdict in verdicts]


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return each trajectory once, in the place where it came first, with the verdict that came later."""
    return list({own.trajectory_id: (row, own) for row, own in rows}.values())


def read_trajectories(
    paths: Iterable[Path], form: Format, reading: Reading, domain: str = DOMAIN
) -> Iterator[Row]:
    """Return the trajectories of files and folders in order, each with its row, and count all in `reading`.

    Secrets are replaced in both (`redaction`). One that comes without a verdict, and later with it, comes
    twice (`latest`). Of a folder all `*.jsonl`, `*.jsonl.gz` and `*.parquet` below it are read, in the order
    of their paths; one of them that cannot be read as a whole is unread (`broken-file`). `form` is what a row
    is, a trajectory or a chat (`messages`), or the host whose sessions they are; chats that name no domain
    have the one given.

    Raises:
        WrongInput: A path is missing, a folder has no such file, or a file that was named is empty or is
            neither text nor Parquet. Paths are looked up at once, files when their turn comes.
    """
    return _read([file for path in paths for file in _files(path)], form, reading, domain)


def _files(path: Path) -> list[tuple[Path, bool]]:
    """Return the files of a path, and whether it names them itself."""
    if not path.is_dir():
        if not path.exists():
            raise WrongInput(f"{path}: is missing; give a file or a folder of trajectories")
        return [(path, True)]
    found = sorted(each for each in path.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file())
    if not found:
        raise WrongInput(f"{path}: has no {', '.join(f'*{suffix}' for suffix in _SUFFIXES)} below it")
    return [(each, False) for each in found]


def _read(files: Iterable[tuple[Path, bool]], form: Format, reading: Reading, domain: str) -> Iterator[Row]:
    own_domain = form if form in ("claude", "codex") and domain == DOMAIN else domain
    for path, is_named in files:
        values = _values(path, is_named=is_named)
        for place, value in turns(values, form) if form in ("claude", "codex") else values:
            if isinstance(value, Unread):
                reading.unread.append(value)
                continue
            row = value
            try:
                row = object_of(value)
                row = row if form == "trajectories" else row_of(row, own_domain)
                trajectory = checked(row)
                own = redacted(row, trajectory)
                is_kept = reading.is_kept(own, trajectory.trajectory_id)
            except NotRead as error:
                reading.unread.append(unread(place, row, error))
                continue
            if is_kept:
                reading.redacted += own is not row
                yield own, trajectory if own is row else trajectory_of(own)


def _values(path: Path, *, is_named: bool) -> Iterator[tuple[str, object | Unread]]:
    """Yield the values of a file with their places; one that a folder holds is unread where it is broken."""
    try:
        yield from read_rows(path) if _is_parquet(path) else read_values(path)
    except WrongInput as error:
        if is_named:
            raise
        yield str(path), unread(str(path), None, NotRead("broken-file", str(error)))


def _is_parquet(path: Path) -> bool:
    if path.suffix != ".parquet" and path.is_file():  # a pipe can be read once: nothing is looked up in it
        with suppress(OSError), path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    return path.suffix == ".parquet"
