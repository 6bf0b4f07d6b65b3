"""Serves what was learned: builds the table `induced`, checks it and publishes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.errors import GateRefused
from storage.root import Root
from storage.served import read_served
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import card_of, load_encoder
from tasks.refine.licences.policy import LicencePolicy
from tasks.retrieve.index.gate import check_learned, require_passed
from tasks.retrieve.index.learned import build_learned, note_learned
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.suggest.stored import BY_RULE, RUN, SKILL, StateWords
from tasks.retrieve.versions.publish import publish_learned
from tasks.retrieve.versions.retention import retain_versions


def serve_learned(
    root: Root,
    encoder: str,
    run_id: str,
    how: str,
    *,
    gate: Mapping[str, Any],
    policy: Mapping[str, Any],
    keep: int,
    words: StateWords = BY_RULE,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Write the libraries of a root to a new version of `induced`, and serve it if it passes the gate.

    Args:
        root: The root; the caller holds its writer lock.
        encoder: The folder of the encoder's export, below the root.
        run_id: Names the version.
        how: Names how the skills were learned. Of those learned as before hardly any may be lost.
        gate: How many rows may be lost: `max_shrink` and `few`.
        policy: The fields of a `LicencePolicy`: searches ask for classes, also where there are no skills.
        keep: So many published versions stay.
        words: Sum up states.
        report: Is told how many rows are written, of how many.

    Returns:
        `published`, `served`, `vectors_new`, `checks`, and `message` where the gate refused it.

    Raises:
        ModelMismatch: What is served was made with another encoder.
    """
    kept = load_kept_encoder(root.uri, encoder)
    found = build_learned(
        root, encoder=kept, summarise=words.summarise, said=words.name, how=how, report=report
    )
    changed, message = found.built.changed, ""
    fresh = load_encoder(encoder)  # the gate takes no vector that is kept
    given = {"encoder": fresh, "kinds": (RUN, SKILL) if found.as_before else (RUN,), **gate}
    checks = check_learned(root, found.built, found.expected, **given) if changed else []
    told = [asdict(check) for check in checks]
    try:
        require_passed(told)
    except GateRefused as error:
        changed, message = False, str(error)
    last, now = read_served(root), datetime.now(UTC)
    if changed:
        if last is None:
            classify_licences(root, found.built.skills, LicencePolicy(**policy))
        path = Path(encoder).relative_to(root.folder).as_posix()
        # The skills of marketplaces are no fresher than they were.
        at = last.published_at if last else now
        publish_learned(root, found.built, card=card_of(encoder), path=path, run_id=run_id, now=at)
        retain_versions(root, keep, now=now)
    if not message and not words.unfinished():
        note_learned(root, found)
    served = read_served(root)
    return {
        "published": changed, "served": served.version if served else None,
        "vectors_new": found.built.vectors_new, "checks": told, **({"message": message} if message else {}),
    }  # fmt: skip


def nothing_published(root: Root) -> dict[str, Any]:
    """Return what `serve_learned` would where nothing is learned: what was served stays."""
    served = read_served(root)
    return {
        "published": False, "served": served.version if served else None, "vectors_new": 0, "checks": [],
    }  # fmt: skip
