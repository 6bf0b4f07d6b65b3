"""Serves what was learned: builds the table `induced`, checks it and publishes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.errors import GateRefused
from storage.lance.served import Served, read_served
from storage.root import Root
from tasks.induce.library.held import HeldLibraries
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import card_of, load_encoder
from tasks.refine.licences.policy import LicencePolicy
from tasks.retrieve.index.gate import Check, check_learned, require_passed
from tasks.retrieve.index.learned import LearnedBuild, build_learned, note_learned
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.suggest.stored import BY_RULE, RUN, SKILL, StateWords
from tasks.retrieve.versions.publish import publish
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

    Where there are none, or nothing changed, what is served stays.

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
    last, now = read_served(root), datetime.now(UTC)
    if not HeldLibraries(root).domains():
        return _answer(last, published=False)
    found = build_learned(
        root, encoder=load_kept_encoder(root.uri, encoder), summarise=words.summarise, said=words.name,
        how=how, report=report,
    )  # fmt: skip
    checks = _checked(root, found, encoder, gate)
    answer: dict[str, Any] = {
        "vectors_new": found.built.vectors_new,
        "checks": [asdict(check) for check in checks],
    }
    try:
        require_passed(answer["checks"])
    except GateRefused as error:
        return _answer(last, published=False, message=str(error), **answer)
    if found.built.changed:
        if last is None:
            classify_licences(root, found.built.skills, LicencePolicy(**policy))
        path = Path(encoder).relative_to(root.folder).as_posix()
        # The skills of marketplaces are no fresher than they were.
        at = last.published_at if last else now
        last = publish(
            root, found.built, card=card_of(encoder), path=path, run_id=run_id, now=at, learned=True
        )
        retain_versions(root, keep, now=now)
    if not words.unfinished():
        note_learned(root, found, how)
    return _answer(last, published=found.built.changed, **answer)


def _checked(root: Root, found: LearnedBuild, encoder: str, gate: Mapping[str, Any]) -> list[Check]:
    if not found.built.changed:
        return []
    # Only skills that were learned in the same way are compared with those served.
    kinds = (RUN, SKILL) if found.as_before else (RUN,)
    fresh = load_encoder(encoder)  # the gate takes no vector that is kept
    return check_learned(root, found.built, found.expected, encoder=fresh, kinds=kinds, **gate)


def _answer(served: Served | None, **found: Any) -> dict[str, Any]:  # noqa: ANN401 (what JSON holds)
    return {"vectors_new": 0, "checks": [], "served": served.version if served else None, **found}
