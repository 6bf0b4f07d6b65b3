"""Kept trajectories: as they were read, each content once, in parts that are never rewritten.

A verdict on a trajectory that was kept without one comes in a part of its own kind, whose rows take the place
of those of other parts, whichever were written first.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from tasks.induce.trajectories.read import Row
from tasks.induce.trajectories.record import Trajectory, digest_of, trajectory_of

_SCHEMA = pl.Schema(dict.fromkeys(("digest", "trajectory_id", "domain", "row"), pl.String))
_FOLDER = "trajectories"
_NEW, _VERDICTS = "part", "verdicts"  # kinds of parts: in the order of names the later one counts


class KeptTrajectories:
    """The trajectories of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def digests(self) -> dict[str, str]:
        """Return the digest of each trajectory by its id."""
        return {trajectory_id: digest for trajectory_id, (_, digest) in self._latest().items()}

    def _latest(self) -> dict[str, tuple[str, str]]:
        """Return the domain and the digest of each trajectory by its id."""
        found: dict[str, tuple[str, str]] = {}
        for frame in self._frames(["trajectory_id", "domain", "digest"]):
            rows = frame.select("trajectory_id", "domain", "digest").iter_rows()
            found |= {trajectory_id: (domain, digest) for trajectory_id, domain, digest in rows}
        return found

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows that are new or verdicts, as a part of each kind; the same rows make the same parts.

        Args:
            rows: Those that `Reading` told to keep, each trajectory once.
        """
        given, known = list(rows), self._latest()
        self._add(_NEW, (one for one in given if one[1].trajectory_id not in known))
        self._add(_VERDICTS, (one for one in given if one[1].trajectory_id in known))

    def _add(self, kind: str, rows: Iterable[Row]) -> None:
        held = sorted(
            (digest_of(row), own.trajectory_id, own.domain, json.dumps(row, ensure_ascii=False))
            for row, own in rows
        )
        if held:
            name = hashlib.sha256("".join(digest for digest, *_ in held).encode()).hexdigest()[:16]
            frame = pl.DataFrame(held, schema=_SCHEMA, orient="row")
            write_frame(self._root, f"{_FOLDER}/{kind}-{name}.parquet", frame, _SCHEMA)

    def drop(self, trajectory_ids: Collection[str]) -> int:
        """Remove trajectories by their ids; return how many there were."""
        gone = 0
        for file in self._root.files(_FOLDER, ".parquet"):
            frame = read_frame(self._root, file, _SCHEMA)
            left = frame.filter(~pl.col("trajectory_id").is_in(list(trajectory_ids)))
            if left.height < frame.height:
                gone += frame.height - left.height
                write_frame(self._root, file, left, _SCHEMA)
        return gone

    def states(self) -> dict[str, str]:
        """Return what is kept of each domain as one digest, which the order of coming does not change."""
        held: defaultdict[str, set[str]] = defaultdict(set)
        for domain, digest in self._latest().values():
            held[domain].add(digest)
        return {
            domain: hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
            for domain, digests in sorted(held.items())
        }

    def of(self, domain: str) -> list[Trajectory]:
        """Return the trajectories of a domain in the order of their ids, whatever parts they came in."""
        rows = [row for frame in self._frames(None) for row in frame.filter(domain=domain)["row"].to_list()]
        found = {one.trajectory_id: one for one in (trajectory_of(json.loads(row)) for row in rows)}
        return [found[trajectory_id] for trajectory_id in sorted(found)]

    def _frames(self, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        for file in sorted(self._root.files(_FOLDER, ".parquet")):
            yield read_frame(self._root, file, _SCHEMA, columns)
