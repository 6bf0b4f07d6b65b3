"""Names that look like others, and whose skill of two is said to look like the other's."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from storage.schemas import RawDocument
from storage.state import documents_table, folded_table
from tasks.refine.risks.finders import is_one_edit
from tasks.refine.risks.look_alikes import KnownNames, skeleton
from tests.support.roots.nights import HandSource, Nights, raw

KNOWN = ["frontend-design", "nestjs-design", "pdf-tools", "pdf", "learn-git", "nextjs"]
LOOKS = [
    ("fr\u043entend-design", "frontend-design", "letters that are drawn alike", "warning"),
    ("\uff46rontend-design", "frontend-design", "letters that are drawn alike", "warning"),
    ("front\u00adend-design", "frontend-design", "letters that are drawn alike", "warning"),
    ("frontend\u2011design", "frontend-design", "letters that are drawn alike", "warning"),
    ("leam-git", "learn-git", "letters that are drawn alike", "warning"),
    ("PDF", "pdf", "case", "warning"),
    ("Frontend-Design", "frontend-design", "case", "warning"),
    ("frontend-desing", "frontend-design", "one character", "warning"),
    ("fronted-design", "frontend-design", "one character", "warning"),
    ("frontend-designs", "frontend-design", "one character", "info"),
    ("frontend_design", "frontend-design", "one character", "info"),
    ("nextjs-design", "nestjs-design", "one character", "info"),  # another word, which is known
    ("pdf-tool", "pdf-tools", "one character", "info"),
]


@pytest.mark.parametrize(("name", "other", "how", "severity"), LOOKS)
def test_a_name_that_looks_like_a_known_one_is_told(name: str, other: str, how: str, severity: str) -> None:
    assert list(KnownNames(KNOWN).like(name)) == [(other, how, severity)]


@pytest.mark.parametrize("name", [*KNOWN, "pdg", "frontend", "design-frontend", "pdf-toolbox", "日本語", ""])
def test_other_names_look_like_none(name: str) -> None:
    assert list(KnownNames(KNOWN).like(name)) == []


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_one_edit_is_what_one_edit_makes(one: str, other: str) -> None:
    places = range(len(one) + 1)
    made = {one[:k] + c + one[k + n :] for k in places for n in (0, 1) for c in ("", *"abc")}
    made |= {one[:k] + one[k + 1 : k + 2] + one[k : k + 1] + one[k + 2 :] for k in places}
    assert is_one_edit(one, other) == (other in made - {one})


@given(st.text(max_size=30))
def test_a_skeleton_is_its_own_whatever_a_name_holds(name: str) -> None:
    assert skeleton(skeleton(name)) == skeleton(name)


def named(doc_id: str, name: str) -> RawDocument:
    text = f"---\nname: {name}\ndescription: Designs pages.\n---\nDesign a page for {doc_id}.\n"
    return raw(doc_id, text.encode(), repo="/".join(doc_id.split("/")[:2]))


SKILLS = {
    doc_id: named(doc_id, name)
    for doc_id, name in {
        "anthropics/skills/a": "frontend-design",
        "evil/one/a": "fr\u043entend-design",
        "evil/two/a": "Frontend-Design",
        "bad/kit/a": "frontend-desing",
        "anthropic/skills/a": "frontend-design",
        "\u0430nthropics/skills/a": "frontend-design",
        "fair/kit/a": "frontend-design",  # a name is no key
        "fair/other/a": "water-colours",
    }.items()
}
NAMES = {
    doc_id: document.content.decode().split()[2] for doc_id, document in SKILLS.items() if document.content
}
OWNERS = {"anthropics/skills/a", "anthropic/skills/a", "\u0430nthropics/skills/a"}  # one looks like the other


@given(st.permutations(sorted(SKILLS)), st.integers(1, 3))
@settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_who_was_there_later_looks_like_who_was_first_in_whatever_order_they_come(
    order: list[str], together: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(Path(folder))
        for count in (*range(together, len(order), 3), len(order)):
            nights.run(HandSource("github:all", *(SKILLS[doc_id] for doc_id in order[:count])))
        tables = documents_table(nights.root), folded_table(nights.root)
        rows = [row for table in tables for row in table.read().iter_rows(named=True)]
    since = {row["doc_id"]: row["first_seen_at"] for row in rows}
    for row in rows:
        doc_id, name = row["doc_id"], NAMES[row["doc_id"]]
        first = min(since[other] for other in SKILLS if NAMES[other] == name)
        before = {
            other
            for other in SKILLS.keys() - {doc_id, "fair/other/a"}
            if (NAMES[other] != name and since[other] < first and other.split("/")[0] != doc_id.split("/")[0])
            or ({doc_id, other} <= OWNERS and since[other] < since[doc_id])
        }
        found = [risk["code"] for risk in row["risks"] if "identity" in risk["code"]] != []
        assert found == bool(before and doc_id != "fair/other/a"), (doc_id, order)
