"""Publishes a built version: makes it the one that is served."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from storage.errors import WrongInput
from storage.lance import NODES, SKILLS, connect, tag
from storage.root import Root
from storage.served import Served, end_anew, published_versions, require_served, write_served
from tasks.parse.corpus import VECTORS
from tasks.retrieve.index.build import Built
from tasks.retrieve.index.rows import model_identity
from tasks.retrieve.routing.store import keep_routing, prepare_routing
from tasks.retrieve.versions.integrity import open_tables
from tasks.retrieve.versions.retention import bound_looks, bound_vectors


def candidate(
    root: Root, built: Built, *, card: dict[str, Any], path: str, run_id: str, now: datetime
) -> Served:
    """Return what `publish` would serve; arguments as there."""
    order = 1 + max((version.order for version in published_versions(root)), default=0)
    model = {**model_identity(card), "path": path}
    return Served(f"v-{run_id}", run_id, built.skills, built.nodes, model, now, order, built.nodes_base)


def publish(
    root: Root, built: Built, *, card: dict[str, Any], path: str, run_id: str, now: datetime
) -> Served:
    """Tag both tables' versions, make the routing index, replace `state/served.json`; return what is served.

    Args:
        root: Where the tables lie.
        built: The versions that passed the gate.
        card: The card of the encoder they were made with.
        path: The encoder's export, relative to the root.
        run_id: The run that publishes; the version is `v-<run_id>`.
        now: The time of publication.
    """
    served, db = candidate(root, built, card=card, path=path, run_id=run_id, now=now), connect(root)
    tag(db, SKILLS, served.version, built.skills)
    # The next build continues from these nodes, served or not: cleanup must leave them.
    if built.nodes_base is not None:
        tag(db, NODES, served.version, built.nodes_base)
    prepare_routing(root, served)
    write_served(root, served)
    if built.anew:
        end_anew(root)
    keep_routing(root)
    # The vectors that parse left are in the tables now.
    root.delete(VECTORS)
    bound_vectors(root, card)
    bound_looks(root)
    return served


def roll_back(root: Root, version: str | None = None) -> tuple[Served, Served]:
    """Serve an earlier version again; return the version served before, and the one served now.

    Nothing is built or removed: going forward again is the same call with the other name. The next run that
    changes anything publishes a new version, built on the one served then.

    Args:
        root: Where it lies; the caller holds its writer lock.
        version: Its name; None takes the last one published before the version served.

    Raises:
        NotPublished: Nothing is served.
        WrongInput: No such version is kept, or none before the one served; the message names those kept.
        StorageError: Its tables or its encoder cannot be opened; the served version stays served.
    """
    served, kept = require_served(root), published_versions(root)
    target = _named(kept, version) if version else _before(kept, served)
    open_tables(root, target)
    prepare_routing(root, target)
    write_served(root, target)
    return served, target


def _named(kept: list[Served], version: str) -> Served:
    for one in kept:
        if one.version == version:
            return one
    msg = f"no version {version} is kept; there are {', '.join(s.version for s in kept) or 'none'}"
    raise WrongInput(msg)


def _before(kept: list[Served], served: Served) -> Served:
    for one in kept:
        if (one.order, one.published_at, one.version) < (served.order, served.published_at, served.version):
            return one
    msg = f"no version from before {served.version} is kept: there is nothing to go back to"
    raise WrongInput(msg)
