"""Learned skills beside what else is served: published, gone back to, compacted and mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import lancedb
import pytest

from storage.errors import ModelMismatch, WrongInput
from storage.lance.served import published_versions
from storage.lance.tables import INDUCED, RUN, SKILL, STATE
from storage.lance.versions import tagged
from tasks.induce.library.learn import Learning
from tasks.induce.skills.texts import StateWords
from tasks.induce.skills.wording import SUMMED_BY, summed_up
from tasks.models.llm.ask import Llm
from tasks.refine.licences.policy import SERVE_POLICY
from tasks.retrieve.index.gate import check_learned
from tasks.retrieve.suggest.stored import ServedSkills
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.learned import LearnedBuild, build_learned, serve_learned
from tasks.retrieve.versions.publish import publish, roll_back
from tasks.retrieve.versions.retention import check_compacted, compact_tables
from tests.support.induce.learning import FLAG, GATE, RUNS, ids, induced, learned, served
from tests.support.induce.runs import mooring, tool_run
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Make, SkillRoot
from tests.support.roots.vendor import connect, open_at

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def root(learned_from: SkillRoot, tmp_path: Path) -> SkillRoot:
    return learned_from.copied(tmp_path)


def data_files(root: SkillRoot) -> list[Path]:
    return list(Path(root.root.at(f"lance/{INDUCED}.lance/data")).glob("*.lance"))


def test_the_skills_of_marketplaces_are_served_as_before_beside_those_learned(root: SkillRoot) -> None:
    now, before = published_versions(root.root)
    assert (now.skills, now.nodes, now.model) == (before.skills, before.nodes, before.model)
    assert (before.induced, now.order) == (None, before.order + 1)
    assert now.published_at == before.published_at  # what is learned makes the rest no fresher
    assert root.ask().search("bees", 1)["results"][0]["index_version"] == now.version
    assert tagged(root.root, INDUCED) == {now.version: now.induced}


def test_a_root_without_skills_serves_learned_ones_and_searches_find_nothing(
    skill_root: Make, tmp_path: Path
) -> None:
    made = skill_root({})
    learned(made.root, tmp_path, RUNS)
    induced(made, "one")
    assert ids(made)
    assert made.ask().search("bees", 3)["results"] == []
    assert examine(made.root) == []


def test_what_is_learned_again_is_neither_written_nor_checked_nor_published(root: SkillRoot) -> None:
    last = root.served()
    found = induced(root, "two")
    assert (found["published"], found["vectors_new"], found["checks"]) == (False, 0, [])
    assert root.served() == last


def test_a_night_leaves_learned_skills_as_they_are(root: SkillRoot) -> None:
    before = root.served().induced
    root.write("bees", SKILLS["bees"].replace("in October", "in September"))
    root.publish()
    assert root.served().induced == before
    assert ids(root)


def test_new_runs_write_only_rows_that_differ(root: SkillRoot, tmp_path: Path) -> None:
    before = set(data_files(root))
    learned(root.root, tmp_path, [*RUNS, mooring("h9", "boat-9", "Gull", "B9")])
    found = induced(root, "two")
    table = open_at(connect(root.root), INDUCED, root.served().induced or 0)
    assert found["published"]
    assert 0 < int(str(found["vectors_new"])) < table.count_rows()
    assert before - set(data_files(root)) == set()


def test_one_goes_back_to_the_skills_of_before_and_forward_again(root: SkillRoot, tmp_path: Path) -> None:
    first = ids(root)
    learned(root.root, tmp_path, [tool_run("Raise the flag.", FLAG, name="h9")])
    induced(root, "two")
    second = ids(root)
    roll_back(root.root)
    assert (ids(root), first != second) == (first, True)
    roll_back(root.root, "v-two")
    assert ids(root) == second
    roll_back(root.root, root.served().version.replace("two", "one"))
    roll_back(root.root)
    with pytest.raises(WrongInput, match="no learned skills are served here"):
        ids(root)


def test_compaction_keeps_every_row(root: SkillRoot, tmp_path: Path) -> None:
    learned(root.root, tmp_path, [mooring("h9", "boat-9", "Gull", "B9")])
    induced(root, "two")
    before = ids(root)
    built, found = compact_tables(root.root)
    assert {one.table for one in found} == {"skills", "nodes", INDUCED}
    assert all(check.passed for check in check_compacted(root.root, built))
    publish(root.root, built, card=root.encoder.card, path=root.model, run_id="three", now=NOW)
    assert ids(root) == before


def test_where_learned_skills_cannot_be_read_the_rest_is_served_and_they_are_made_anew(
    root: SkillRoot,
) -> None:
    before = ids(root)
    for file in data_files(root):
        file.write_bytes(b"")
    (found,) = examine(root.root)
    assert (found.where, found.mended) == (f"lance/{INDUCED}.lance", True)
    assert root.served().induced is None
    assert root.ask().search("bees", 1)["results"]
    induced(root, "two")
    assert ids(root) == before


def test_a_row_that_the_disk_has_changed_is_found(root: SkillRoot) -> None:
    for file in data_files(root):
        file.write_bytes(file.read_bytes().replace(b"Fern corner", b"Fern cornet"))
    (found,) = examine(root.root)
    assert "is not what its digest says" in found.found


def test_a_library_that_cannot_be_read_is_removed_for_the_next_run_to_build(
    root: SkillRoot, tmp_path: Path
) -> None:
    before = ids(root)
    for file in root.root.files("induced/skills", ".parquet"):
        root.root.write(file, b"no parquet")
    found = examine(root.root)
    assert {one.mended for one in found} == {True}
    learned(root.root, tmp_path, RUNS)
    assert not induced(root, "two")["published"]
    assert ids(root) == before


def test_runs_that_cannot_be_read_are_set_aside_and_named(root: SkillRoot) -> None:
    (file,) = root.root.files("trajectories", ".parquet")
    root.root.write(file, b"no parquet")
    (found,) = examine(root.root)
    assert (found.where, found.mended) == (file, False)
    assert root.root.exists(f"{file}.damaged")


def test_another_encoder_is_refused(root: SkillRoot) -> None:
    root.use_model("another/encoder", "r2")
    with pytest.raises(ModelMismatch, match="set SKILLERY_ENCODER"):
        induced(root, "two")
    with pytest.raises(ModelMismatch, match="the settings name another/encoder"):
        ServedSkills(root.root).encoder("another/encoder", 1)


def test_a_root_of_learned_skills_alone_takes_another_encoder(skill_root: Make, tmp_path: Path) -> None:
    made = skill_root({})
    learned(made.root, tmp_path, RUNS)
    induced(made, "one")
    made.use_model("another/encoder", "r2")
    assert induced(made, "two")["published"]
    ServedSkills(made.root).encoder("another/encoder", 1)


@pytest.mark.slow
def test_publishing_learned_skills_again_and_again_leaves_the_way_back_to_a_night(
    root: SkillRoot, tmp_path: Path
) -> None:
    night = published_versions(root.root)[-1]
    root.write("bees", SKILLS["bees"].replace("in October", "in September"))
    root.publish()
    for n in range(4):
        learned(root.root, tmp_path, [mooring(f"m{n}", f"more-{n}", "Gull", f"C{n}")])
        induced(root, f"again-{n}", keep=2)
    versions = published_versions(root.root)
    assert len(versions) < 6
    assert night.skills in {version.skills for version in versions}


if TYPE_CHECKING:
    from tasks.models.llm.answer_cache import AnswerCache

Injury = Callable[[lancedb.table.Table], object]


@pytest.fixture
def root_learned(skill_root: Make, tmp_path: Path) -> SkillRoot:
    made = skill_root({})
    learned(made.root, tmp_path, RUNS)
    return made


def build(root_learned: SkillRoot) -> LearnedBuild:
    return build_learned(
        root_learned.root, encoder=root_learned.encoder, summarise=summed_up, said=SUMMED_BY, how="as ever"
    )


def failed(root_learned: SkillRoot, found: LearnedBuild) -> set[str]:
    checks = check_learned(
        root_learned.root, found.built, found.expected, encoder=root_learned.encoder, **GATE
    )
    return {check.check for check in checks if not check.passed}


def test_a_sound_table_passes_and_holds_all_kinds_of_rows(root_learned: SkillRoot) -> None:
    found = build(root_learned)
    assert failed(root_learned, found) == set()
    assert set(found.expected) == {SKILL, RUN, STATE}
    assert found.expected[RUN] == len(RUNS)


def lose_a(kind: str) -> Injury:
    return lambda table: table.delete(f"row_id = '{first(table, kind)}'")


def first(table: lancedb.table.Table, kind: str) -> str:
    rows = table.search().where(f"kind = '{kind}'").select(["row_id"]).to_arrow()
    return str(rows.column("row_id")[0].as_py())


def repeat_a_row(table: lancedb.table.Table) -> None:
    table.add(table.search().where(f"row_id = '{first(table, SKILL)}'").limit(1).to_arrow())
    table.optimize()


def turn_a_vector(table: lancedb.table.Table) -> None:
    rows = table.search().where(f"row_id = '{first(table, SKILL)}'").limit(1).to_arrow()
    turned = [-value for value in rows.column("vector")[0].as_py()]
    table.update(where=f"row_id = '{first(table, SKILL)}'", values={"vector": turned})
    table.optimize()


def leave_rows_unindexed(table: lancedb.table.Table) -> None:
    table.drop_index("row_id_idx")


@pytest.mark.parametrize(
    ("injure", "check"),
    [
        (lose_a(SKILL), "induced.skills"),
        (lose_a(RUN), "induced.runs"),
        (repeat_a_row, "induced.repeated_ids"),
        (turn_a_vector, "induced.other_vectors"),
        (leave_rows_unindexed, "induced.unindexed_rows"),
    ],
)
def test_the_gate_refuses_a_table_that_was_spoiled(
    root_learned: SkillRoot, injure: Injury, check: str
) -> None:
    found = build(root_learned)
    table = connect(root_learned.root).open_table(INDUCED)
    injure(table)
    spoiled = replace(found, built=replace(found.built, induced=int(table.version)))
    assert check in failed(root_learned, spoiled)


def test_fewer_skills_by_choice_are_no_loss(root_learned: SkillRoot, tmp_path: Path) -> None:
    encoder = root_learned.root.folder / root_learned.model
    served(root_learned.root, encoder, "one")
    learned(root_learned.root, tmp_path, RUNS, Learning(support=4))
    assert served(root_learned.root, encoder, "two", "of four tasks")["published"]
    table = open_at(connect(root_learned.root), INDUCED, root_learned.served().induced or 0)
    assert table.count_rows(f"kind = '{SKILL}'") == 0


def test_a_library_that_lost_its_skills_though_it_was_learned_as_before_is_refused(
    root_learned: SkillRoot, tmp_path: Path
) -> None:
    encoder = root_learned.root.folder / root_learned.model
    served(root_learned.root, encoder, "one")
    learned(
        root_learned.root, tmp_path, RUNS, Learning(support=4)
    )  # as if an inducer had found no use for any
    found = served(root_learned.root, encoder, "two")
    assert not found["published"]
    assert "induced.skills_shrink" in found["message"]


def test_states_for_which_the_rule_stands_in_are_summed_up_again(root_learned: SkillRoot) -> None:
    llm = Llm(cast("AnswerCache", None))
    llm.fallbacks["summary: unavailable"] += 1
    encoder = root_learned.root.folder / root_learned.model
    down = StateWords("a model", summed_up, llm)
    back = StateWords("a model", lambda *seen: f"Summed up: {summed_up(*seen)}")
    given = {"gate": GATE, "policy": asdict(SERVE_POLICY), "keep": 7}
    serve_learned(root_learned.root, str(encoder), "one", "as ever", words=down, **given)
    assert serve_learned(root_learned.root, str(encoder), "two", "as ever", words=back, **given)["published"]
