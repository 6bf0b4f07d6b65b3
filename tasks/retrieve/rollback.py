"""Moves `served` back to a version published earlier."""

from __future__ import annotations

from storage.errors import WrongInput
from storage.root import Root
from storage.served import Served, published_versions, require_served, write_served
from tasks.retrieve.routing_store import prepare_routing
from tasks.retrieve.sound import require_opens


def roll_back(root: Root, version: str | None = None) -> tuple[Served, Served]:
    """Serve an earlier version again; return what was served, and what is served now.

    Nothing is built or removed, so that going forward again is the same call with the other name. The next
    run that changes anything publishes anew, from the version served then.

    Args:
        root: Where it lies; the caller holds its writer lock.
        version: Its name; None takes the last one published before the version served.

    Raises:
        NotPublished: Nothing is served.
        WrongInput: No such version is kept, or none before the one served; those there are get named.
        StorageError: Its tables or its encoder cannot be opened; what is served stays served.
    """
    served, kept = require_served(root), published_versions(root)
    target = _named(kept, version) if version else _before(kept, served)
    require_opens(root, target)
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
