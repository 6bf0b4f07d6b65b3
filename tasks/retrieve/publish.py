"""Makes a built version the one that is served."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from storage.lance import NODES, SKILLS, connect, tag
from storage.root import Root
from storage.served import Served, published_versions, write_served
from tasks.parse.corpus import VECTORS
from tasks.retrieve.anew import end_anew
from tasks.retrieve.index import Built
from tasks.retrieve.retain import bound_looks, bound_vectors
from tasks.retrieve.routing_store import keep_routing, prepare_routing
from tasks.retrieve.rows import model_identity


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
    if built.nodes_base is not None:  # left for later, or not: the next build goes on from it
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
