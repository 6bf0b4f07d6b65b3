"""Learned skills beside what else is served: published, gone back to, compacted, mended and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.answers import Answers, KeptAnswer
from storage.errors import ModelMismatch, UnknownDocument, WrongInput
from storage.lance import INDUCED, connect, open_at, tagged
from storage.served import published_versions
from tasks.induce.texts.summaries import STATES
from tasks.retrieve.suggest.served import ServedSkills
from tasks.retrieve.versions import forget_learned as forget_learned_module
from tasks.retrieve.versions.compact import check_compacted, compact_tables
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.forget_learned import forget_learned
from tasks.retrieve.versions.publish import publish, roll_back
from tests.support.induce.learning import RUNS, learned, served
from tests.support.induce.runs import Call, mooring, tool_run
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
HARBOUR = "harbour"
FLAG: list[Call] = [("find_flag", {"size": 3}, {"flag": "f3"}), ("raise_flag", {"flag": "f3"}, "up")]


@pytest.fixture
def root(skill_root: Make, tmp_path: Path) -> SkillRoot:
    """A root with skills of a marketplace, to which learned ones were added."""
    made = skill_root(SKILLS)
    made.publish()
    learned(made.root, tmp_path, RUNS)
    assert induced(made, "one")["published"]
    return made


def induced(root: SkillRoot, run_id: str) -> dict[str, object]:
    return served(root.root, root.root.folder / root.model, run_id)


def ids(root: SkillRoot, domain: str = HARBOUR) -> list[str]:
    return [skill.skill_id for skill in ServedSkills(root.root).skills(domain)]


def data_files(root: SkillRoot) -> list[Path]:
    return list(Path(root.root.at(f"lance/{INDUCED}.lance/data")).glob("*.lance"))


def test_the_skills_of_marketplaces_are_served_as_before_beside_those_learned(root: SkillRoot) -> None:
    now, before = published_versions(root.root)

    assert (now.skills, now.nodes, now.model) == (before.skills, before.nodes, before.model)
    assert (before.induced, now.order) == (None, before.order + 1)
    assert root.ask().search("bees", 1)["results"][0]["index_version"] == now.version
    assert tagged(connect(root.root), INDUCED) == {now.version: now.induced}


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


def test_after_a_night_with_another_encoder_learned_skills_are_encoded_anew(root: SkillRoot) -> None:
    before = ids(root)
    root.use_model("another/encoder", "r2")
    root.publish()

    with pytest.raises(ModelMismatch, match="`skillery induce` encodes them anew"):
        ServedSkills(root.root).encoder("another/encoder", 1)
    found = induced(root, "two")
    assert (found["published"], ids(root)) == (True, before)
    ServedSkills(root.root).encoder("another/encoder", 1)


def test_a_root_of_learned_skills_alone_takes_another_encoder(skill_root: Make, tmp_path: Path) -> None:
    made = skill_root({})
    learned(made.root, tmp_path, RUNS)
    induced(made, "one")
    made.use_model("another/encoder", "r2")

    assert induced(made, "two")["published"]
    ServedSkills(made.root).encoder("another/encoder", 1)


def holding(root: SkillRoot, words: str) -> set[str]:
    """Return the files below a root that hold words, raw or in Parquet."""
    found = set()
    for file in root.root.files(""):
        if not file.startswith("models/") and words.encode() in root.root.read(file):
            found.add(file.split("/")[0])
    return found


def test_a_forgotten_run_is_nowhere_and_is_not_read_again(root: SkillRoot, tmp_path: Path) -> None:
    assert "lance" in holding(root, "Petrel")
    found = forget_learned(root.root, "trajectory:h0", run_id="gone", now=NOW)

    assert (found.scope, found.doc_ids, found.served) == ("trajectory", ("h0",), "v-gone")
    assert holding(root, "Petrel") == holding(root, "boat-0") == set()
    assert [v.version for v in published_versions(root.root)] == ["v-gone"]
    learned(root.root, tmp_path, RUNS)
    induced(root, "two")
    assert holding(root, "Petrel") == set()
    assert all("h0" not in dict(skill.sources) for skill in ServedSkills(root.root).skills(HARBOUR))
    assert root.ask().search("bees", 1)["results"]


def test_a_forgotten_skill_is_not_learned_again(root: SkillRoot, tmp_path: Path) -> None:
    first = ids(root)
    forget_learned(root.root, f"learned:{first[0]}", run_id="gone", now=NOW)
    assert ids(root) == first[1:]
    learned(root.root, tmp_path, [mooring("h9", "boat-9", "Gull", "B9")])
    induced(root, "two")

    assert first[0] not in ids(root)


def test_what_has_no_such_id_is_not_forgotten(root: SkillRoot) -> None:
    with pytest.raises(UnknownDocument, match="no trajectory has the id 'h77'"):
        forget_learned(root.root, "trajectory:h77", run_id="gone", now=NOW)
    with pytest.raises(UnknownDocument, match="no learned skill has the id"):
        forget_learned(root.root, "learned:harbour/1", run_id="gone", now=NOW)


def test_forgetting_a_document_keeps_learned_skills(root: SkillRoot) -> None:
    before = ids(root)
    forget(root.root, "local/market/bees", run_id="gone", now=NOW)

    assert ids(root) == before
    assert root.served().version == "v-gone"


def test_with_a_run_go_what_a_model_said_of_it_and_of_any_state(root: SkillRoot) -> None:
    said = ("trajectory:h0", "trajectory:h1", STATES, "local/market/bees")
    with Answers(root.root) as answers:
        for number, about in enumerate(said):
            key = f"k{number}"
            kept = KeptAnswer(key, "m", "p", 0, "text", None, None, None, NOW.isoformat())
            answers.keep(kept, (about,))
    found = forget_learned(root.root, "trajectory:h0", run_id="gone", now=NOW)

    assert found.removed["state/answers"] == 2
    with Answers(root.root) as answers:
        assert [answers.find(f"k{number}") is None for number in range(4)] == [True, False, True, False]


def test_in_a_bucket_skills_are_learned_served_and_forgotten_as_on_a_disk(
    bucket: str, minilm_export: Export, tmp_path: Path
) -> None:
    made = SkillRoot(tmp_path / "market", bucket, minilm_export.folder)
    learned(made.root, tmp_path, RUNS)
    assert induced(made, "one")["published"]
    first = ids(made)
    forget_learned(made.root, f"learned:{first[0]}", run_id="gone", now=NOW)

    assert ids(made) == first[1:]
    assert examine(made.root) == []


def test_learned_skills_make_the_rest_no_fresher(root: SkillRoot) -> None:
    now, before = published_versions(root.root)

    assert now.published_at == before.published_at


@pytest.mark.parametrize("step", ["purge", "_clean", "mark_purged"])
def test_a_forgetting_that_was_killed_is_finished_by_the_next(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(forget_learned_module, step, die)
        with pytest.raises(KeyboardInterrupt):
            forget_learned(root.root, "trajectory:h0", run_id="killed", now=NOW)
    forget_learned(root.root, "trajectory:h0", run_id="gone", now=NOW)

    assert holding(root, "Petrel") == set()
    assert root.served().version == "v-gone"


def test_ids_that_differ_in_case_are_forgotten_apart(skill_root: Make, tmp_path: Path) -> None:
    made = skill_root({})
    runs = [mooring("Run", "boat-0", "Petrel", "B1"), mooring("run", "boat-1", "Gull", "B2")]
    learned(made.root, tmp_path, runs)
    induced(made, "one")
    forget_learned(made.root, "trajectory:Run", run_id="first", now=NOW)
    forget_learned(made.root, "trajectory:run", run_id="second", now=NOW)

    assert learned(made.root, tmp_path, runs)["trajectories"]["forgotten"] == 2
    assert holding(made, "Gull") == holding(made, "Petrel") == set()


def test_forgetting_serves_nothing_that_was_gone_back_from(root: SkillRoot, tmp_path: Path) -> None:
    learned(root.root, tmp_path, [tool_run("Raise the flag.", FLAG, name="h9")])
    induced(root, "two")
    roll_back(root.root)
    before = ids(root)
    forget_learned(root.root, "trajectory:g0", run_id="gone", now=NOW)

    assert ids(root) == before


def test_publishing_learned_skills_again_and_again_leaves_the_way_back_to_a_night(
    root: SkillRoot, tmp_path: Path
) -> None:
    night = published_versions(root.root)[-1]
    root.write("bees", SKILLS["bees"].replace("in October", "in September"))
    root.publish()
    for n in range(9):
        learned(root.root, tmp_path, [mooring(f"m{n}", f"more-{n}", "Gull", f"C{n}")])
        induced(root, f"again-{n}")
    versions = published_versions(root.root)

    assert len(versions) < 11
    assert night.skills in {version.skills for version in versions}


def test_an_id_without_its_kind_is_not_found(root: SkillRoot) -> None:
    forget_learned(root.root, "trajectory:h1", run_id="gone", now=NOW)
    with pytest.raises(UnknownDocument, match="no document or repository has the id 'h1'"):
        forget(root.root, "h1", run_id="again", now=NOW)


def test_a_skill_that_the_forgotten_run_alone_did_goes_with_it(root: SkillRoot, tmp_path: Path) -> None:
    before = ids(root)
    learned(root.root, tmp_path, [tool_run("Raise the flag.", FLAG, name="h9")])
    induced(root, "two")
    assert len(ids(root)) > len(before)
    forget_learned(root.root, "trajectory:h9", run_id="gone", now=NOW)

    assert ids(root) == before
