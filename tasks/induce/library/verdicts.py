"""Verdicts of a judge that are not those of the files: which trajectories a library was learned from."""

from __future__ import annotations

from collections.abc import Iterable

from storage.root import Root
from tasks.induce.trajectories.record import Trajectory

_FILE = "induced/succeeded.json"


class HeldVerdicts:
    """The trajectories of each domain of a root that a judge found successful, against what the files say."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def put(self, domain: str, judged: Iterable[Trajectory], *, declared: bool) -> None:
        """Keep which trajectories of a domain were successful; `declared`: it is what the files say."""
        held = self._root.read_json(_FILE) or {}
        known = dict(held)
        known.pop(domain, None)
        if not declared:
            known[domain] = sorted(one.trajectory_id for one in judged if one.success)
        if known != held:
            self._root.write_json(_FILE, dict(sorted(known.items())))

    def successful(self, domain: str, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the trajectories of a domain that its library was learned from."""
        known = (self._root.read_json(_FILE) or {}).get(domain)
        if known is None:
            return [one for one in trajectories if one.success]
        succeeded = set(known)
        return [one for one in trajectories if one.trajectory_id in succeeded]
