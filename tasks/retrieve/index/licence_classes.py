"""Licence classes for serving: a run derives them from the policy, so that queries only look them up."""

from __future__ import annotations

from collections import Counter
from typing import Any

from storage.errors import StorageError
from storage.lance.served import CLASSES, Licences, read_licences, read_served, write_licences
from storage.lance.tables import SKILLS, TableAt
from storage.root import Root
from tasks.refine.licences.policy import LicencePolicy, licence_class

_LISTED = 20  # licences that the printed table names


def classify_licences(root: Root, skills: int, policy: LicencePolicy) -> list[dict[str, Any]]:
    """Write the class of every licence to `state/licences.json`; return the number of documents by licence.

    A change of policy needs this file alone: no text is encoded and no table is written. `skills` is the
    version of that table that was built; the caller holds the root's writer lock. The rows returned,
    `{class, licence, documents}`, are those of that version, most documents first.
    """
    built, served = _licences_at(root, skills), read_served(root)
    # Licences of older versions stay, because a rollback may serve them again.
    named = {*built, *_covered(root)}
    if served is not None and served.skills != skills:
        named |= _licences_at(root, served.skills).keys()
    classes = {licence: licence_class(licence, policy) for licence in sorted(filter(None, named))}
    licences = Licences(classes, policy.unknown)
    write_licences(root, licences)
    ranked = sorted(built.items(), key=lambda item: (-item[1], item[0] or ""))
    return [
        {"class": licences.class_of(licence), "licence": licence or "unknown", "documents": n}
        for licence, n in ranked
    ]


def _covered(root: Root) -> set[str]:
    try:
        known = read_licences(root)
    except StorageError:  # the damaged file is about to be replaced
        return set()
    return set(known.classes) if known else set()


def _licences_at(root: Root, skills: int) -> Counter[str | None]:
    counts = TableAt(root, SKILLS, skills).frame(["licence"])["licence"].value_counts(name="n")
    return Counter(dict(counts.iter_rows()))


def by_class(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of documents of every class; `rows` as `classify_licences` returns them."""
    return {name: sum(row["documents"] for row in rows if row["class"] == name) for name in CLASSES}


def licence_table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table: a total per class, the 20 most frequent licences, the rest."""
    table = [{"class": name, "licence": "all", "documents": n} for name, n in by_class(rows).items()]
    table += rows[:_LISTED]
    if rest := [row["documents"] for row in rows[_LISTED:]]:
        table.append({"class": "", "licence": f"{len(rest)} more licences", "documents": sum(rest)})
    return table
