"""Kept trajectories: as they were read, each content once, in parts that are never rewritten."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from tasks.induce.trajectories.record import Trajectory, digest_of, trajectory_of

_SCHEMA = pl.Schema(dict.fromkeys(("digest", "trajectory_id", "domain", "row"), pl.String))
_FOLDER = "trajectories"


class KeptTrajectories:
    """The trajectories of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def digests(self) -> dict[str, str]:
        """Return the digest of each trajectory by its id."""
        found: dict[str, str] = {}
        for frame in self._frames(["trajectory_id", "digest"]):
            found |= dict(frame.select("trajectory_id", "digest").iter_rows())
        return found

    def add(self, rows: Iterable[tuple[Mapping[str, Any], Trajectory]]) -> None:
        """Keep rows that are not kept yet, as one part; the same rows make the same part."""
        held = sorted(
            (digest_of(row), own.trajectory_id, own.domain, json.dumps(row, ensure_ascii=False))
            for row, own in rows
        )
        if held:
            name = hashlib.sha256("".join(digest for digest, *_ in held).encode()).hexdigest()[:16]
            frame = pl.DataFrame(held, schema=_SCHEMA, orient="row")
            write_frame(self._root, f"{_FOLDER}/part-{name}.parquet", frame, _SCHEMA)

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
        for frame in self._frames(["domain", "digest"]):
            for domain, digest in frame.select("domain", "digest").iter_rows():
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
