from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from storage.errors import StorageError, UnknownDocument, Withheld
from storage.lance.served import CLASSES, LICENCES, Licences, require_licences
from tasks.refine.licences.policy import SERVE_POLICY, LicencePolicy, licence_class
from tasks.retrieve.index.licence_classes import by_class, classify_licences, licence_table
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots import hand_written
from tests.support.roots.skill_root import Make, SkillRoot

STATED = {
    "bread": "MIT",
    "bees": "Proprietary",
    "bike": "GPL-3.0-only",
    "tea": None,
}
QUERY = "Looks after honey bees through the year"  # the description of the one that is denied


def licensed(text: str, licence: str | None) -> str:
    return text.replace("---\n", f"---\nlicense: {licence}\n", 1) if licence else text


SKILLS_LICENSED = {name: licensed(hand_written.SKILLS[name], licence) for name, licence in STATED.items()}


def page(index: ServedIndex, name: str) -> dict[str, Any]:
    return index.page(f"local/market/{name}", "what comes first?", budget=None, method="mmr")


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SkillRoot:
    """A root that serves a skill of each kind of licence; tests that change the policy put it back."""
    export = request.getfixturevalue("minilm_export")
    root = SkillRoot.below(tmp_path_factory.mktemp("licensed"), export, SKILLS_LICENSED)
    root.publish()
    return root


def under(root: SkillRoot, policy: LicencePolicy) -> ServedIndex:
    """Return what a night leaves in which nothing changed but the policy."""
    classify_licences(root.root, root.served().skills, policy)
    return root.ask()


def found(index: ServedIndex, k: int = 10) -> dict[str, str]:
    return {r["name"]: r["licence_class"] for r in index.search(QUERY, k)["results"]}


def test_what_is_denied_is_not_found_takes_no_place_and_the_rest_says_its_class(served: SkillRoot) -> None:
    # What is denied is not found and the rest says its class.
    index = under(served, SERVE_POLICY)
    assert found(index) == {"bread": "allow", "bike": "allow", "お茶": "allow"}
    assert page(index, "bread")["licence_class"] == "allow"
    # A denied skill takes no place of another.
    assert list(found(under(served, LicencePolicy(deny=(), unknown="allow")), k=1)) == ["bees"]
    assert len(found(under(served, SERVE_POLICY), k=1)) == 1
    # Where all is denied nothing is found.
    assert found(under(served, LicencePolicy(allow=(), unknown="deny", other="deny"))) == {}


def test_the_file_holds_what_the_policy_says_of_each_licence_served(served: SkillRoot) -> None:
    policy = LicencePolicy(unknown="deny", other="metadata-only")
    under(served, policy)
    written = json.loads(served.root.read(LICENCES))
    assert written["unknown"] == "deny"
    named = {"MIT", "GPL-3.0-only", "LicenseRef-Proprietary"}
    assert written["classes"] == {name: licence_class(name, policy) for name in named}


@pytest.mark.parametrize("unknown", CLASSES)
def test_unknown_licences_are_of_the_class_that_the_policy_gives_them(
    unknown: Any,  # noqa: ANN401 (a class, from a tuple of them)
    served: SkillRoot,
) -> None:
    results = found(under(served, replace(SERVE_POLICY, unknown=unknown)))
    assert results.get("お茶") == (None if unknown == "deny" else unknown)
    assert {"bread", "bike"} <= set(results)
    assert "bees" not in results


@pytest.mark.parametrize(
    ("name", "policy", "said"),
    [
        ("bees", SERVE_POLICY, "LicenseRef-Proprietary, is of class deny by SKILLERY_LICENCES_ALLOW"),
        ("bike", LicencePolicy(), "GPL-3.0-only, is of class metadata-only by SKILLERY_LICENCES_ALLOW"),
        ("tea", LicencePolicy(), "unknown, is of class metadata-only by SKILLERY_LICENCES_UNKNOWN_SERVE"),
    ],
)
def test_a_text_that_is_kept_back_has_no_page_and_says_why(
    name: str, policy: LicencePolicy, said: str, served: SkillRoot
) -> None:
    index = under(served, policy)
    with pytest.raises(Withheld, match=rf"local/market/{name} is withheld: its licence, {said}"):
        page(index, name)
    with pytest.raises(Withheld):
        index.find(f"local/market/{name}")


def test_an_id_nothing_has_is_unknown_and_not_withheld(served: SkillRoot) -> None:
    with pytest.raises(UnknownDocument):
        page(under(served, LicencePolicy(unknown="deny", other="deny")), "wasps")


def test_a_warm_index_heeds_a_policy_that_changed(served: SkillRoot) -> None:
    index = under(served, SERVE_POLICY)
    assert page(index, "bike")["licence_class"] == "allow"
    under(served, LicencePolicy(other="deny"))
    assert "bike" not in found(index)
    with pytest.raises(Withheld):
        page(index, "bike")


def test_documents_are_counted_by_licence_and_class(served: SkillRoot) -> None:
    rows = classify_licences(served.root, served.served().skills, SERVE_POLICY)
    assert {(r["class"], r["licence"], r["documents"]) for r in rows} == {
        ("allow", "MIT", 1), ("deny", "LicenseRef-Proprietary", 1), ("allow", "GPL-3.0-only", 1),
        ("allow", "unknown", 1),
    }  # fmt: skip
    assert by_class(rows) == {"allow": 3, "metadata-only": 0, "deny": 1}


def test_the_table_names_twenty_licences_and_sums_up_the_rest() -> None:
    rows: list[dict[str, Any]] = [
        {"class": "allow", "licence": f"LicenseRef-{n}", "documents": 30 - n} for n in range(23)
    ]
    table = licence_table(rows)
    assert table[0] == {"class": "allow", "licence": "all", "documents": sum(r["documents"] for r in rows)}
    assert table[3:23] == rows[:20]
    assert table[23:] == [{"class": "", "licence": "3 more licences", "documents": 10 + 9 + 8}]
    assert len(licence_table(rows[:20])) == 23


def test_another_policy_alone_writes_no_table_and_encodes_nothing(skill_root: Make) -> None:
    root = skill_root(SKILLS_LICENSED)
    root.publish()
    before, encoded = root.served(), len(root.encoder.encoded)
    root.policy = LicencePolicy(other="deny")
    built = root.publish()
    assert (built.changed, built.vectors_new) == (False, 0)
    assert root.served() == before
    assert len(root.encoder.encoded) == encoded
    assert require_licences(root.root).class_of("GPL-3.0-only") == "deny"


@pytest.mark.slow
def test_a_licence_keeps_its_class_while_a_version_with_it_may_be_served(skill_root: Make) -> None:
    root = skill_root(SKILLS_LICENSED)
    root.publish()
    root.write("bees", licensed(hand_written.BEES, "ISC"))
    root.crawl()
    root.parse()
    # A gate that refuses now leaves the version served in which the licence was another.
    built = root.build()
    root.root.delete(LICENCES)
    classify_licences(root.root, built.skills, SERVE_POLICY)
    assert root.served().skills != built.skills
    with pytest.raises(Withheld):
        page(root.ask(), "bees")
    root.index()
    root.publish()
    classes = require_licences(root.root).classes
    assert (classes["ISC"], classes["LicenseRef-Proprietary"]) == ("allow", "deny")
    assert page(root.ask(), "bees")["licence"] == "ISC"


def test_a_copy_is_withheld_with_the_document_it_is_a_copy_of(skill_root: Make) -> None:
    root = skill_root(SKILLS_LICENSED)
    root.publish()
    root.write("zz-copy", SKILLS_LICENSED["bees"])
    root.publish()
    with pytest.raises(Withheld, match="is withheld: its licence"):
        page(root.ask(), "zz-copy")


def test_a_licence_no_run_has_classed_keeps_its_text_back() -> None:
    licences = Licences({"MIT": "allow"}, unknown="allow")
    assert [licences.class_of(x) for x in ("MIT", "ISC", None)] == ["allow", "metadata-only", "allow"]


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"classes": {"MIT": "maybe"}, "unknown": "deny"}', b'{"classes": 1, "unknown": 1}'],
)
def test_a_damaged_file_is_named_and_the_next_run_mends_it(content: bytes, served: SkillRoot) -> None:
    served.root.write(LICENCES, content)
    with pytest.raises(StorageError, match=r"licences\.json"):
        page(served.ask(), "bread")
    assert page(under(served, SERVE_POLICY), "bread")["context"]


def test_where_the_file_is_missing_a_run_is_asked_for(served: SkillRoot) -> None:
    served.root.delete(LICENCES)
    with pytest.raises(StorageError, match=r"licences\.json is missing: `skillery run"):
        served.ask().search(QUERY)
