from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from itertools import islice

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from storage.errors import GateRefused
from storage.lance.served import Served
from storage.lance.tables import NODES, SKILLS, TableAt
from tasks.retrieve.index import gate
from tasks.retrieve.index.build import Built
from tasks.retrieve.index.gate import Check, check_shrink, check_words, few_changed, require_passed
from tasks.retrieve.routing import store
from tasks.retrieve.routing.postings import Postings, postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.versions.publish import candidate
from tests.support.processes import slow_but
from tests.support.roots.hand_written import SKILLS as TEXTS
from tests.support.roots.hand_written import skill
from tests.support.roots.many_skills import many_skills
from tests.support.roots.skill_root import Export, Make, SkillRoot
from tests.support.roots.vendor import Injury, connect, rewritten, with_vectors

KEYS = {SKILLS: "doc_id", NODES: "node_id"}


def first_is(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(vectors: np.ndarray) -> np.ndarray:
        # A coordinate that is 0 stays: times infinity it would be no number.
        vectors[0, vectors[0] != 0] *= value
        return vectors

    return change


def first_is_last(vectors: np.ndarray) -> np.ndarray:
    vectors[0] = vectors[-1]
    return vectors


def lose_a_row(table: lancedb.table.Table) -> None:
    key = KEYS[table.name]
    first = table.search().select([key]).to_arrow().column(key)[0].as_py()
    table.delete(f"{key} = '{first}'")


def repeat_a_row(table: lancedb.table.Table) -> None:
    table.add(table.search().to_arrow().slice(0, 1))
    table.optimize()


def swap_a_row_for_a_copy(table: lancedb.table.Table) -> None:
    lose_a_row(table)
    repeat_a_row(table)


def leave_a_row_unindexed(table: lancedb.table.Table) -> None:
    rows = table.search().to_arrow()
    lose_a_row(table)
    table.add(rows.slice(0, 1))


def drop_an_index(table: lancedb.table.Table) -> None:
    table.drop_index(next(i.name for i in table.list_indices() if i.columns == [KEYS[table.name]]))


def lose_a_vector(table: lancedb.table.Table) -> None:
    rows = table.search().to_arrow()
    column = pa.array([None, *rows.column("vector").to_pylist()[1:]], rows.schema.field("vector").type)
    table.delete("true")
    table.add(rows.set_column(rows.schema.get_field_index("vector"), rows.schema.field("vector"), column))
    table.optimize()


INJURIES: dict[str, tuple[Injury, set[str]]] = {
    "a row is missing": (lose_a_row, {"rows"}),
    "a row is there twice": (repeat_a_row, {"rows", "repeated_ids"}),
    "a row stands for another": (swap_a_row_for_a_copy, {"repeated_ids"}),
    "a row is not indexed": (leave_a_row_unindexed, {"unindexed_rows"}),
    "an index is missing": (drop_an_index, {"unindexed_rows"}),
    "a vector is infinite": (rewritten(first_is(np.inf)), {"bad_vectors"}),
    "a vector is too long": (rewritten(first_is(1.01)), {"bad_vectors"}),
    "a vector is zero": (rewritten(first_is(0)), {"bad_vectors", "other_vectors"}),
    "vectors belong to other rows": (
        rewritten(lambda v: np.roll(v, 1, axis=0)),
        {"found_by_own_text", "other_vectors"},
    ),
    "one vector is another's": (rewritten(first_is_last), {"other_vectors"}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> tuple[SkillRoot, Built]:
    root = SkillRoot.below(tmp_path_factory.mktemp("checked"), minilm_export, TEXTS)
    root.crawl()
    root.parse()
    return root, root.build()


@pytest.fixture
def built(sound: tuple[SkillRoot, Built]) -> tuple[SkillRoot, Built]:
    """Both tables as they were built, whatever was done to them since."""
    root, version = sound
    for name, at in ((SKILLS, version.skills), (NODES, version.nodes or 0)):
        table = connect(root.root).open_table(name)
        table.checkout(at)
        table.restore()
    return root, version


def test_a_sound_build_passes_every_check(built: tuple[SkillRoot, Built]) -> None:
    root, version = built
    checks = root.check(version)
    assert {c.check for c in checks} == {
        f"{table}.{check}"
        for table in (SKILLS, NODES)
        for check in (
            *("rows", "repeated_ids", "bad_vectors", "unindexed_rows"),
            *("other_model", "other_vectors", "found_by_own_text"),
        )
    } | {"nodes.other_text", "nodes.other_states"}
    assert all(check.passed for check in checks)
    require_passed([asdict(check) for check in checks])


@pytest.mark.parametrize(
    ("name", "injury"),
    [
        *((NODES, injury) for injury in INJURIES),
        (SKILLS, "a row is missing"),
        *(pytest.param(SKILLS, injury, marks=pytest.mark.slow) for injury in [*INJURIES][1:]),
    ],
)
def test_a_defect_fails_its_check_and_leaves_the_other_table_alone(
    built: tuple[SkillRoot, Built], name: str, injury: str
) -> None:
    root, version = built
    injure, expected = INJURIES[injury]
    table = connect(root.root).open_table(name)
    injure(table)
    at = table.version
    injured = replace(version, skills=at) if name == SKILLS else replace(version, nodes=at)
    failed = {c.check for c in root.check(injured) if not c.passed}
    assert {f"{name}.{check}" for check in expected} <= failed
    assert all(check.startswith(name) for check in failed)
    probes = {"found_by_own_text", "other_vectors"}
    assert failed <= {f"{name}.{check}" for check in {*expected, *probes}}


def test_nodes_of_another_text_than_the_one_served_fail_their_check(built: tuple[SkillRoot, Built]) -> None:
    root, version = built
    table = connect(root.root).open_table(SKILLS)
    table.update(where="name = 'bees'", values={"text": "bees"})
    table.optimize()
    checks = root.check(replace(version, skills=table.version))
    assert "nodes.other_text" in {c.check for c in checks if not c.passed}


def of_another(states: list[bytes]) -> list[bytes]:
    return [states[-1], *states[1:]]


def turned_round(states: list[bytes]) -> list[bytes]:
    first = (14 - (byte >> 4) << 4 | 14 - (byte & 15) for byte in states[0])
    return [bytes(first), *states[1:]]


@pytest.mark.parametrize("change", [of_another, turned_round, lambda states: [b"", *states[1:]]])
def test_states_of_another_text_or_none_fail_their_check(
    built: tuple[SkillRoot, Built], change: Callable[[list[bytes]], list[bytes]]
) -> None:
    root, version = built
    table = connect(root.root).open_table(NODES)
    rows = table.search().to_arrow()
    at = rows.schema.get_field_index("states")
    states = pa.array(change(rows.column("states").to_pylist()), pa.large_binary())
    table.delete("true")
    table.add(rows.set_column(at, rows.schema.field("states"), states))
    table.optimize()
    failed = [c for c in root.check(replace(version, nodes=table.version)) if not c.passed]
    assert [(c.check, c.value) for c in failed] == [("nodes.other_states", 1)]


def to_serve(root: SkillRoot, version: Built, run_id: str) -> Served:
    return candidate(root.root, version, card=root.encoder.card, path=root.model, run_id=run_id, now=root.now)


def test_words_of_every_skill_find_it_before_anything_was_served(built: tuple[SkillRoot, Built]) -> None:
    root, version = built
    checks = check_words(root.root, to_serve(root, version, "sound"))
    size = len(TEXTS)
    assert [(c.check, c.value, c.limit, c.passed) for c in checks] == [
        ("routing.rows", size, size, True),
        ("routing.found_by_own_words", size, size, True),
    ]


def without_bodies(documents: Iterable[Skill]) -> Postings:
    return postings_of([Skill(document.doc_id, "", "", "") for document in documents])


def of_another_skill(documents: Iterable[Skill]) -> Postings:
    return postings_of([*documents][::-1])


@pytest.mark.parametrize("fault", [without_bodies, of_another_skill])
def test_a_routing_index_whose_words_are_not_the_skills_is_refused_and_goes(
    built: tuple[SkillRoot, Built],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Iterable[Skill]], Postings],
) -> None:
    root, version = built
    served = to_serve(root, version, fault.__name__)
    monkeypatch.setattr(store, "postings_of", fault)
    failed = [check for check in check_words(root.root, served) if not check.passed]
    assert [(c.check, c.value < c.limit) for c in failed] == [("routing.found_by_own_words", True)]
    assert not root.root.files(f"routing/{served.version}.{served.skills}", "")


def test_a_skill_of_signs_or_of_words_that_stand_everywhere_does_not_keep_a_version_back(
    skill_root: Make,
) -> None:
    said = skill("what", "What this is and how it was", "This is what there will be.\n")
    root = skill_root({"what": said, "bread": TEXTS["bread"], "signs": skill("---", "...", "!!! ??? ***\n")})
    root.crawl()
    root.parse()
    checks = check_words(root.root, to_serve(root, root.build(), "signs"))
    assert all(check.passed for check in checks)
    assert checks[0].value == checks[0].limit >= 2


def test_a_table_made_with_another_model_fails_its_check(
    built: tuple[SkillRoot, Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, version = built
    monkeypatch.setitem(root.encoder.card, "revision", "another")
    failed = {c.check for c in root.check(version) if not c.passed}
    assert failed == {"skills.other_model", "nodes.other_model"}


def of_changed(table: lancedb.table.Table) -> pa.Table:
    return table.search().where("doc_id = 'local/market/mill'").limit(1).to_arrow()


def repeat_what_changed(table: lancedb.table.Table) -> None:
    lose_a_row(table)
    table.add(of_changed(table))
    table.optimize()


def lengthen(table: lancedb.table.Table, row: pa.Table) -> None:
    key = KEYS[table.name]
    table.delete(f"{key} = '{row.column(key)[0].as_py()}'")
    table.add(with_vectors(row, 1.01 * np.array(row.column("vector").to_pylist())))
    table.optimize()


def others(table: lancedb.table.Table) -> pa.Table:
    return table.search().where("doc_id != 'local/market/mill'").to_arrow()


def swap_another_for_a_copy(table: lancedb.table.Table) -> None:
    rows, key = others(table), KEYS[table.name]
    table.delete(f"{key} = '{rows.column(key)[0].as_py()}'")
    table.add(rows.slice(1, 1))
    table.optimize()


@pytest.mark.parametrize("name", slow_but({NODES}, [SKILLS, NODES]))
def test_an_update_is_checked_where_it_changed_what_is_served(
    skill_root: Make, minilm_export: Export, name: str
) -> None:
    root = skill_root({**many_skills(8), "mill": TEXTS["bread"]})
    root.publish()
    assert few_changed(root.root, root.served().tables_at(root.root)) == []
    root.write("mill", TEXTS["bees"])
    root.crawl()
    root.parse()
    version = root.build()
    assert few_changed(root.root, version.tables_at(root.root)) == ["local/market/mill"]
    assert {c.check for c in root.check(version) if not c.passed} == set()
    table, at = connect(root.root).open_table(name), version.tables()[name] or 0
    for injure, check in (
        (lose_a_row, "rows"), (repeat_what_changed, "repeated_ids"),
        (leave_a_row_unindexed, "unindexed_rows"),
        (lambda made: lengthen(made, of_changed(made)), "bad_vectors"),
        (lambda made: lengthen(made, others(made).slice(1, 1)), "bad_vectors"),
        (swap_another_for_a_copy, "repeated_ids"),
    ):  # fmt: skip
        table.checkout(at)
        table.restore()
        injure(table)
        failed = {c.check for c in root.check(replace(version, **{name: table.version})) if not c.passed}
        assert f"{name}.{check}" in failed
    searched = {c.check: c.limit for c in root.check(version)}[f"{name}.found_by_own_text"]
    sample = gate._sample(
        {**version.tables_at(root.root), name: TableAt(root.root, name, at)}, name, ["local/market/mill"]
    )
    ends = [row_id.startswith("local/market/mill") for row_id in (sample[0], sample[-1])]
    assert (searched, ends) == (2, [True, False])
    for number, text in enumerate(TEXTS.values()):
        root.write(next(islice(many_skills(8), number, None)), text)
    root.crawl()
    root.parse()
    assert few_changed(root.root, root.build().tables_at(root.root)) is None


def test_a_vector_that_is_null_is_bad(built: tuple[SkillRoot, Built]) -> None:
    root, version = built
    table = connect(root.root).open_table(NODES)
    lose_a_vector(table)
    bad = {c.check: c.value for c in root.check(replace(version, nodes=table.version)) if not c.passed}
    assert bad[f"{NODES}.bad_vectors"] == 1


def test_the_gate_names_each_check_that_failed_with_value_and_limit() -> None:
    require_passed([])
    checks = [
        asdict(check)
        for check in (
            Check("skills.rows", passed=False, value=3, limit=4),
            Check("skills.bad_vectors", passed=True, value=0, limit=0),
            Check("nodes.bad_vectors", passed=False, value=2, limit=0),
        )
    ]
    with pytest.raises(GateRefused) as caught:
        require_passed(checks)
    assert "skills.rows is 3, must be 4; nodes.bad_vectors is 2, must be 0" in str(caught.value)
    assert "skills.bad_vectors" not in str(caught.value)


def test_a_version_that_lost_a_skill_of_four_is_refused_with_the_share(root: SkillRoot) -> None:
    root.remove("bees")
    root.crawl()
    root.parse()
    built = root.build()
    checks = {c.check: c for c in check_shrink(root.root, built, max_shrink=0.05, few=0)}
    assert checks["skills.shrink"].value == 0.25
    with pytest.raises(GateRefused, match=r"skills\.shrink is 0\.25, may be at most 0\.05"):
        require_passed([asdict(check) for check in checks.values()])


def test_only_a_loss_of_more_than_few_rows_and_the_share_is_refused_of_skills_and_of_nodes(
    root: SkillRoot,
) -> None:
    # Losing few rows is no shrink whatever their share nor are more rows.
    built = root.build()
    for skills, nodes, share, few in ((3, built.nodes_rows, 0.05, 1), (40, 4000, 0, 0)):
        now = replace(built, skills_rows=skills, nodes_rows=nodes)
        assert all(check.passed for check in check_shrink(root.root, now, max_shrink=share, few=few))
    # A loss up to the share passes and one more row does not.
    built = root.build()
    lost = {n: replace(built, skills_rows=4 - n) for n in (1, 2)}
    passed = {n: check_shrink(root.root, lost[n], max_shrink=0.25, few=0)[0].passed for n in lost}
    assert passed == {1: True, 2: False}
    # Lost nodes are told apart from lost skills.
    built = replace(root.build(), nodes_rows=1)
    passed = {c.check: c.passed for c in check_shrink(root.root, built, max_shrink=0.05, few=0)}
    assert passed == {"skills.shrink": True, "nodes.shrink": False}
    # A version without nodes is compared by its skills alone.
    built = replace(root.build(), nodes=None, nodes_rows=0)
    assert [c.check for c in check_shrink(root.root, built, max_shrink=0, few=0)] == ["skills.shrink"]
