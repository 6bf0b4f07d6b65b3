"""Registries: what is served, written as files for any web server, and skills that other registries offer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from flows.commands.installing import load_installing
from flows.settings import Settings
from storage.errors import WrongInput
from storage.lance.served import read_licences, require_served
from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.source.unchanged import document_digest
from tasks.retrieve.registry.indexes import normal_base
from tasks.retrieve.registry.offers import served_rows
from tasks.retrieve.registry.static import StaticRegistry
from tasks.retrieve.revisions.edition import Edition, refined_edition
from tasks.retrieve.revisions.history import Revision


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


def editions_from(root: Root, settings: Settings, url: str, names: Collection[str]) -> list[Edition]:
    """Return skills of a registry for well-known discovery, verified by its digests and refined here.

    Args:
        root: The root, whose licence policy holds where a run has left one.
        settings: How registries are asked.
        url: Where the registry is.
        names: The skills, as it names them.

    Raises:
        SourceError, SourceUnavailable: It cannot be read.
        WrongInput: It has no such skill, or what it gave for one was refused; the message says why.
    """
    from tasks.crawl.registries.well_known import WellKnownSource  # noqa: PLC0415 (what is held is not asked for)
    from tasks.crawl.source.base import CrawlContext, Missed  # noqa: PLC0415

    now = datetime.now(UTC)
    found: dict[str, RawDocument] = {}
    why: dict[str, str] = {}
    # What a root remembers of a registry would leave out what is unchanged.
    with tempfile.TemporaryDirectory(prefix="skillery-from-") as folder:
        context = CrawlContext(Root(folder), now, settings=settings.crawl())
        for item in WellKnownSource(url, context, names=names).read():
            if isinstance(item, RawDocument):
                found[item.doc_id.rpartition("/")[2]] = item
            elif isinstance(item, Dropped):
                why[item.doc_id.rpartition("/")[2]] = item.detail
            elif isinstance(item, Missed):
                why |= {doc_id.rpartition("/")[2]: item.detail for doc_id in item.doc_ids}
    if lacking := [name for name in names if name not in found]:
        msg = f"{lacking[0]!r} of {url}: {why.get(lacking[0], 'its index names no such skill')}"
        raise WrongInput(msg)
    class_of = _class_of(root, settings)
    return [refined_edition(root, _revision(raw, now), raw, class_of) for raw in (found[n] for n in names)]


def _revision(raw: RawDocument, now: datetime) -> Revision:
    return Revision(
        document_digest(raw), raw.doc_id, raw.source, raw.commit, raw.raw_hash, now, run_id="", part=""
    )


def _class_of(root: Root, settings: Settings) -> Callable[[str | None], str]:
    """Return what classes licences: the root's last run, else the settings."""
    if (held := read_licences(root)) is not None:
        return held.class_of
    from tasks.refine.licences.policy import LicencePolicy, licence_class  # noqa: PLC0415 (its library)

    policy = LicencePolicy(**settings.licence_policies()["serve"])
    return lambda licence: licence_class(licence, policy)
