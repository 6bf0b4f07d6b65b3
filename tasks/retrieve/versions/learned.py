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
from tasks.retrieve.suggest.stored import BY_RULE, StateWords
from tasks.retrieve.versions.publish import publish_learned


def serve_learned(
    root: Root,
    encoder: str,
    gate: Mapping[str, Any],
    policy: Mapping[str, Any],
    run_id: str,
    *,
    words: StateWords = BY_RULE,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Write the libraries of a root to a new version of `induced`, and serve it if it passes the gate.

    Args:
        root: The root; the caller holds its writer lock.
        encoder: The folder of the encoder's export, below the root.
        gate: How many rows may be lost: `max_shrink` and `few`.
        policy: The fields of a `LicencePolicy`: searches ask for classes, also where there are no skills.
        run_id: Names the version.
        words: Sum up states.
        report: Is told how many rows are written, of how many.

    Returns:
        `published`, `served`, `vectors_new`, `checks`, and `message` where the gate refused it.

    Raises:
        ModelMismatch: What is served was made with another encoder.
    """
    kept = load_kept_encoder(root.uri, encoder)
    found = build_learned(root, encoder=kept, summarise=words.summarise, said=words.name, report=report)
    changed, message = found.built.changed, ""
    fresh = load_encoder(encoder)  # the gate takes no vector that is kept
    checks = check_learned(root, found.built, found.expected, encoder=fresh, **gate) if changed else []
    told = [asdict(check) for check in checks]
    try:
        require_passed(told)
    except GateRefused as error:
        changed, message = False, str(error)
    if changed:
        if read_served(root) is None:
            classify_licences(root, found.built.skills, LicencePolicy(**policy))
        path = Path(encoder).relative_to(root.folder).as_posix()
        card, now = card_of(encoder), datetime.now(UTC)
        publish_learned(root, found.built, card=card, path=path, run_id=run_id, now=now)
    if not message:
        note_learned(root, found)
    served = read_served(root)
    return {
        "published": changed, "served": served.version if served else None,
        "vectors_new": found.built.vectors_new, "checks": told, **({"message": message} if message else {}),
    }  # fmt: skip
