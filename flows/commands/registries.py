"""Registries: what is served, written as files that any web server serves and any client installs from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from flows.commands.installing import load_installing
from storage.errors import WrongInput
from storage.lance.served import require_served
from storage.root import Root
from tasks.retrieve.registry.indexes import normal_base
from tasks.retrieve.registry.offers import served_rows
from tasks.retrieve.registry.static import StaticRegistry


def publish_registry(
    root: Root,
    out: str,
    *,
    licences: Sequence[str] = (),
    sources: Sequence[str] = (),
    risks: Sequence[str] = (),
    public_url: str | None = None,
    keep: int = 3,
) -> dict[str, Any]:
    """Write what a root serves as a registry, and tell what was written.

    Args:
        root: The root.
        out: A folder, or `s3://bucket/prefix`.
        licences: Only skills of these licences, `unknown` included; empty: of any that is not withheld.
        sources: Only skills from these sources, or kinds of sources.
        risks: Only skills with one of these risks, or `none`; what is refused to `install` stays out.
        public_url: Where `out` will be reached; without it there is no marketplace to be added by address.
        keep: In how many publications an archive was listed that stays.

    Raises:
        NotPublished: Nothing is served.
        WrongInput: `out` is the root, or holds what Skillery did not write; or a filter leaves nothing.
        StorageError: A file cannot be read or written.
    """
    started, place = time.perf_counter(), _place(root, out)
    base = None if public_url is None else normal_base(public_url)
    served = require_served(root)
    rows = served_rows(root, served, licences=licences, sources=sources, risks=risks)
    registry = StaticRegistry(place)
    offers, left_out = registry.publish(root, served, rows, load_installing().refuse, base, keep)
    return {
        "out": place.uri, "version": served.version, "skills": len(offers), "left_out": left_out,
        "written": len(registry.written), "bytes": registry.bytes, "removed": len(registry.removed),
        "public_url": base, "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def _place(root: Root, out: str) -> Root:
    """Return where a registry goes; raise `WrongInput` if the root lies there, above it or below it."""
    place = Root(out)
    one, other = f"{place.uri.rstrip('/')}/", f"{root.uri.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        msg = f"--out {out} and the root {root.uri} lie in each other: a registry has a place of its own"
        raise WrongInput(msg)
    return place
