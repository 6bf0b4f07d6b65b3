"""Makes a built version the one that is served."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from storage.lance import NODES, SKILLS, connect, tag
from storage.root import Root
from storage.served import Served, write_served
from tasks.parse.corpus import VECTORS
from tasks.retrieve.index import Built
from tasks.retrieve.retain import bound_vectors
from tasks.retrieve.routing_store import keep_routing, prepare_routing
from tasks.retrieve.rows import model_identity


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
    version, db = f"v-{run_id}", connect(root)
    tag(db, SKILLS, version, built.skills)
    if built.nodes is not None:
        tag(db, NODES, version, built.nodes)
    model = {**model_identity(card), "path": path}
    served = Served(version, run_id, built.skills, built.nodes, model, now)
    prepare_routing(root, served)
    write_served(root, served)
    keep_routing(root)
    # The vectors that parse left are in the tables now.
    root.delete(VECTORS)
    bound_vectors(root, card)
    return served
