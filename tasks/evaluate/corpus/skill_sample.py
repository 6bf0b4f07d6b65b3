"""Samples the skills of a root that requests are written about: spread out, reproducible."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from storage.lance.served import require_licences, require_served
from storage.root import Root
from tasks.retrieve.routing.skill import Skill

SEED = 42
_IDS_PER_READ = 500


def namespace_of(doc_id: str) -> str:
    """Return whose skill it is: `owner/repo` of `owner/repo/folder`, `host/owner/repo` where a host leads."""
    parts = doc_id.split("/")
    return "/".join(parts[: 3 if "." in parts[0] else 2])


def stratified(
    doc_ids: Iterable[str], count: int, seed: int = SEED, *, stratum: Callable[[str], str] = namespace_of
) -> list[str]:
    """Return `count` ids, or all if there are fewer: one of each stratum before a second of any.

    Strata, and the ids of each, come in an order drawn by the seed: a smaller sample is the beginning of
    a larger one, so that a bench can grow. The order of `doc_ids` does not matter.
    """
    strata: dict[str, list[str]] = {}
    for doc_id in sorted(set(doc_ids)):
        strata.setdefault(stratum(doc_id), []).append(doc_id)
    chance = random.Random(seed)  # noqa: S311 (a sample, no secret)
    names = list(strata)
    chance.shuffle(names)
    ranked: list[tuple[int, int, str]] = []
    for place, name in enumerate(names):
        chance.shuffle(strata[name])
        ranked += [(turn, place, doc_id) for turn, doc_id in enumerate(strata[name])]
    return [doc_id for _, _, doc_id in sorted(ranked)[:count]]


def served_skill_ids(root: Root) -> dict[str, str | None]:
    """Return the ids of all skills served whose licence lets their text be shown, with their categories.

    Raises:
        NotPublished: Nothing is served.
        StorageError: The table or the file of licences' classes is damaged or missing.
    """
    licences = require_licences(root)
    rows = require_served(root).skills_table(root).rows(["doc_id", "category", "licence"], kind=["skill"])
    allowed = (row for row in rows.to_pylist() if licences.class_of(row["licence"]) == "allow")
    return {row["doc_id"]: row["category"] for row in allowed}


def served_skills(root: Root, doc_ids: Sequence[str]) -> list[Skill]:
    """Return served skills in the order of their ids; errors as `served_skill_ids`."""
    table = require_served(root).skills_table(root)
    found: dict[str, Skill] = {}
    for first in range(0, len(doc_ids), _IDS_PER_READ):
        some = doc_ids[first : first + _IDS_PER_READ]
        columns = ["doc_id", "name", "description", "text", "body_start"]
        for row in table.rows(columns, doc_id=some).to_pylist():
            body = row["text"][row["body_start"] :]
            found[row["doc_id"]] = Skill(row["doc_id"], row["name"], row["description"], body)
    return [found[doc_id] for doc_id in doc_ids if doc_id in found]
