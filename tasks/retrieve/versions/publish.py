"""Publishes a built version: makes it the one that is served."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from storage.errors import WrongInput
from storage.lance.served import Served, end_anew, published_versions, require_served, write_served
from storage.lance.tables import TABLES
from storage.lance.versions import tag
from storage.root import Root
from tasks.retrieve.index.build import Built, model_identity
from tasks.retrieve.routing.store import keep_routing, prepare_routing
from tasks.retrieve.versions.integrity import open_tables, seal_tables
from tasks.retrieve.versions.retention import bound_vectors

# Where earlier versions of this program kept vectors of nodes a second time, and second looks at them.
_BYGONE = ("state/vectors", "state/looks")


def candidate(
    root: Root, built: Built, *, card: dict[str, Any], path: str, run_id: str, now: datetime
) -> Served:
    """Return what `publish` would serve; arguments as there."""
    order = 1 + max((version.order for version in published_versions(root)), default=0)
    model = {**model_identity(card), "path": path}
    tables = (built.skills, built.nodes, model, now, order, built.nodes_base, built.induced)
    return Served(f"v-{run_id}", run_id, *tables)


def publish(
    root: Root, built: Built, *, card: dict[str, Any], path: str, run_id: str, now: datetime,
    workers: int | None = 1, learned: bool = False,
) -> Served:  # fmt: skip
    """Tag the tables' versions, make the routing index, replace `state/served.json`; return what is served.

    `root` is the root; the caller holds its writer lock. `built` holds the versions, which passed the gate.
    `card` is that of the encoder that they were made with. `workers` is as in `prepare_routing`. `learned`
    says whether `induced` alone was built: what the corpus keeps for its tables stays as it is.
    """
    served = candidate(root, built, card=card, path=path, run_id=run_id, now=now)
    for name in TABLES:
        # The next build continues from the nodes it needs, served or not: cleanup must leave them.
        if (version := served.needed(name)) is not None:
            tag(root, name, served.version, version)
    switch_to(root, served, workers)
    keep_routing(root)
    if not learned:
        if built.anew:
            end_anew(root)
        for folder in _BYGONE:
            root.delete(folder)
        bound_vectors(root, card)
    return served


def switch_to(root: Root, served: Served, workers: int | None = 1) -> None:
    """Make all that a version is read from, and replace the pointer; its tables are tagged already."""
    prepare_routing(root, served, workers)
    seal_tables(root, served)
    write_served(root, served)


def roll_back(root: Root, version: str | None = None) -> tuple[Served, Served]:
    """Serve an earlier version again; return the version served before, and the one served now.

    Without a name it is the last one published before the served version. Nothing is built or removed, so the
    same call with the other name goes forward again. The next run builds on the version served then. Raises
    `NotPublished` if nothing is served. Raises `WrongInput` if no such version is kept, or none before the
    one served; the message names those kept. Raises `StorageError` if its tables or its encoder cannot be
    opened; the served version stays served.
    """
    served, kept = require_served(root), published_versions(root)
    if version:
        fitting = [v for v in kept if v.version == version]
        msg = f"no version {version} is kept; there are {', '.join(v.version for v in kept) or 'none'}"
    else:
        fitting = [v for v in kept if _age(v) < _age(served)]
        msg = f"no version from before {served.version} is kept: there is nothing to go back to"
    if not fitting:
        raise WrongInput(msg)
    target = fitting[0]
    open_tables(root, target)
    prepare_routing(root, target)
    write_served(root, target)
    return served, target


def _age(served: Served) -> tuple[int, datetime, str]:
    return served.order, served.published_at, served.version
