"""The table of learned skills: what a build writes, and what the gate refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import lancedb
import pytest

from storage.lance.tables import INDUCED
from tasks.induce.library.build import DomainLibrary
from tasks.induce.library.held import HeldLibraries
from tasks.induce.library.learn import Learning
from tasks.induce.skills.wording import SUMMED_BY, summed_up
from tasks.models.llm.ask import Llm
from tasks.refine.licences.policy import SERVE_POLICY
from tasks.retrieve.index.gate import check_learned
from tasks.retrieve.index.learned import LearnedBuild, build_learned
from tasks.retrieve.suggest.stored import RUN, SKILL, STATE, StateWords
from tasks.retrieve.versions.learned import serve_learned
from tests.support.induce.learning import GATE, RUNS, learned, served
from tests.support.induce.runs import mooring
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

if TYPE_CHECKING:
    from tasks.models.llm.answer_cache import AnswerCache

Make = Callable[[dict[str, str]], SkillRoot]
Injury = Callable[[lancedb.table.Table], object]


@pytest.fixture
def root(skill_root: Make, tmp_path: Path) -> SkillRoot:
    made = skill_root({})
    learned(made.root, tmp_path, RUNS)
    return made


def build(root: SkillRoot) -> LearnedBuild:
    return build_learned(root.root, encoder=root.encoder, summarise=summed_up, said=SUMMED_BY, how="as ever")


def failed(root: SkillRoot, found: LearnedBuild) -> set[str]:
    checks = check_learned(root.root, found.built, found.expected, encoder=root.encoder, **GATE)
    return {check.check for check in checks if not check.passed}


def test_a_sound_table_passes_and_holds_all_kinds_of_rows(root: SkillRoot) -> None:
    found = build(root)

    assert failed(root, found) == set()
    assert set(found.expected) == {SKILL, RUN, STATE}
    assert found.expected[RUN] == len(RUNS)


def test_texts_of_rows_that_stay_are_not_encoded_again(root: SkillRoot, tmp_path: Path) -> None:
    served(root.root, root.root.folder / root.model, "one")
    learned(root.root, tmp_path, [mooring("h9", "boat-9", "Gull", "B9")])
    root.encoder.encoded.clear()
    build(root)

    assert "Moor the Gull tonight." in root.encoder.encoded
    assert "Moor the Petrel tonight." not in root.encoder.encoded


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
def test_the_gate_refuses_a_table_that_was_spoiled(root: SkillRoot, injure: Injury, check: str) -> None:
    found = build(root)
    table = connect(root.root).open_table(INDUCED)
    injure(table)
    spoiled = replace(found, built=replace(found.built, induced=int(table.version)))

    assert check in failed(root, spoiled)


def test_a_version_that_lost_many_runs_is_refused_and_the_one_before_stays(
    root: SkillRoot, tmp_path: Path
) -> None:
    encoder = root.root.folder / root.model
    learned(root.root, tmp_path, [mooring(f"m{n}", f"more-{n}", "Gull", f"B{n}") for n in range(20)])
    served(root.root, encoder, "one")
    last = root.served()
    for file in root.root.files("trajectories", ".parquet"):
        root.root.delete(file)
    learned(root.root, tmp_path, RUNS)
    found = served(root.root, encoder, "two")

    assert not found["published"]
    assert "induced.runs_shrink" in found["message"]
    assert root.served() == last
    again = served(root.root, encoder, "three")
    assert (again["published"], "message" in again) == (False, True)


def test_fewer_skills_by_choice_are_no_loss(root: SkillRoot, tmp_path: Path) -> None:
    encoder = root.root.folder / root.model
    served(root.root, encoder, "one")
    learned(root.root, tmp_path, RUNS, Learning(support=4))

    assert served(root.root, encoder, "two", "of four tasks")["published"]
    table = open_at(connect(root.root), INDUCED, root.served().induced or 0)
    assert table.count_rows(f"kind = '{SKILL}'") == 0


def test_a_library_that_lost_its_skills_though_it_was_learned_as_before_is_refused(
    root: SkillRoot, tmp_path: Path
) -> None:
    encoder = root.root.folder / root.model
    served(root.root, encoder, "one")
    learned(root.root, tmp_path, RUNS, Learning(support=4))  # as if an inducer had found no use for any
    found = served(root.root, encoder, "two")

    assert not found["published"]
    assert "induced.skills_shrink" in found["message"]


def test_a_library_that_a_model_left_unfinished_is_compared_again(root: SkillRoot, tmp_path: Path) -> None:
    held = HeldLibraries(root.root)
    encoder = root.root.folder / root.model
    held.put("harbour", DomainLibrary(held.skills("harbour")[:1]), "")
    served(root.root, encoder, "one")
    assert learned(root.root, tmp_path, RUNS)["skills"]["new"] > 0
    held.put("harbour", DomainLibrary(held.skills("harbour")), "")  # unfinished still, with more in it

    assert served(root.root, encoder, "two")["published"]


def test_states_for_which_the_rule_stands_in_are_summed_up_again(root: SkillRoot) -> None:
    llm = Llm(cast("AnswerCache", None))
    llm.fallbacks["summary: unavailable"] += 1
    encoder = root.root.folder / root.model
    down = StateWords("a model", summed_up, llm)
    back = StateWords("a model", lambda *seen: f"Summed up: {summed_up(*seen)}")
    given = {"gate": GATE, "policy": asdict(SERVE_POLICY), "keep": 7}
    serve_learned(root.root, str(encoder), "one", "as ever", words=down, **given)

    assert serve_learned(root.root, str(encoder), "two", "as ever", words=back, **given)["published"]
