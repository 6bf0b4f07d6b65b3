"""The index's Prefect tasks: build, check, publish."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.models.encoder import card_of, load_encoder
from tasks.models.kept import load_kept_encoder
from tasks.refine.policy import LicencePolicy
from tasks.retrieve.checks import check_index, require_passed
from tasks.retrieve.index import Built, build
from tasks.retrieve.licences import classify_licences
from tasks.retrieve.publish import publish
from tasks.retrieve.retention import retain_versions
from tasks.retrieve.shrink import check_shrink


@task(name="build-tables", cache_policy=NO_CACHE)
def build_tables(root: str, encoder: str, *, with_nodes: bool) -> dict[str, Any]:
    """Write to `skills` and `nodes` what changed since the served version."""
    return asdict(build(Root(root), encoder=load_kept_encoder(root, encoder), with_nodes=with_nodes))


@task(name="class-licences", cache_policy=NO_CACHE)
def class_licences(root: str, built: dict[str, Any], policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Work out what each licence allows, for queries to look up; return the documents by licence."""
    return classify_licences(Root(root), built["skills"], LicencePolicy(**policy))


@task(name="check-tables", cache_policy=NO_CACHE)
def check_tables(
    root: str, built: dict[str, Any], encoder: str, gate: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run the gate's checks on the versions built; what is served already has passed them."""
    found, place = Built(**built), Root(root)
    if not found.changed:
        return []
    checks = [*check_index(place, found, encoder=load_encoder(encoder)), *check_shrink(place, found, **gate)]
    return [asdict(check) for check in checks]


@task(name="publish-tables", cache_policy=NO_CACHE)
def publish_tables(
    root: str,
    built: dict[str, Any],
    checks: list[dict[str, Any]],
    encoder: str,
    *,
    run_id: str,
    now: datetime,
) -> str | None:
    """Serve the versions built, if they are new and passed the gate; return their name, None if not new."""
    require_passed(checks)
    if not Built(**built).changed:
        return None
    place = Root(root)
    path = Path(encoder).relative_to(place.folder).as_posix()
    card = card_of(encoder)
    return publish(place, Built(**built), card=card, path=path, run_id=run_id, now=now).version


@task(name="retain-versions", cache_policy=NO_CACHE)
def keep_versions(root: str, keep: int, *, now: datetime) -> list[str]:
    """Let go of published versions that are older than the last ones; return their names."""
    return retain_versions(Root(root), keep, now=now)
