"""Forgetting runs and learned skills: they are nowhere, do not come back, and the rest stays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.answers import Answers, KeptAnswer
from storage.errors import UnknownDocument
from storage.lance.served import published_versions
from tasks.induce.skills.texts import STATES
from tasks.retrieve.suggest.stored import ServedSkills
from tasks.retrieve.versions import forget as forget_module
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import roll_back
from tests.support.induce.learning import FLAG, HARBOUR, RUNS, ids, induced, learned
from tests.support.induce.runs import mooring, tool_run
from tests.support.roots.skill_root import Export, Make, SkillRoot

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def root(learned_from: SkillRoot, tmp_path: Path) -> SkillRoot:
    return learned_from.copied(tmp_path)


def holding(root: SkillRoot, words: str) -> set[str]:
    """Return the files below a root that hold words, raw or in Parquet."""
    found = set()
    for file in root.root.files(""):
        if not file.startswith("models/") and words.encode() in root.root.read(file):
            found.add(file.split("/")[0])
    return found


def test_a_forgotten_run_is_nowhere_and_is_not_read_again(root: SkillRoot, tmp_path: Path) -> None:
    assert "lance" in holding(root, "Petrel")
    found = forget(root.root, "trajectory:h0", run_id="gone", now=NOW)
    assert (found.scope, found.doc_ids, found.served) == ("trajectory", ("h0",), "v-gone")
    assert holding(root, "Petrel") == holding(root, "boat-0") == set()
    assert [v.version for v in published_versions(root.root)] == ["v-gone"]
    with pytest.raises(UnknownDocument, match="no document or repository has the id 'h0'"):
        forget(root.root, "h0", run_id="without its kind", now=NOW)
    learned(root.root, tmp_path, RUNS)
    induced(root, "two")
    assert holding(root, "Petrel") == set()
    assert all("h0" not in dict(skill.sources) for skill in ServedSkills(root.root).skills(HARBOUR))
    assert root.ask().search("bees", 1)["results"]


def test_a_forgotten_skill_is_not_learned_again(root: SkillRoot, tmp_path: Path) -> None:
    first = ids(root)
    forget(root.root, f"learned:{first[0]}", run_id="gone", now=NOW)
    assert ids(root) == first[1:]
    learned(root.root, tmp_path, [mooring("h9", "boat-9", "Gull", "B9")])
    induced(root, "two")
    assert first[0] not in ids(root)


def test_what_has_no_such_id_is_not_forgotten(root: SkillRoot) -> None:
    with pytest.raises(UnknownDocument, match="no trajectory has the id 'h77'"):
        forget(root.root, "trajectory:h77", run_id="gone", now=NOW)
    with pytest.raises(UnknownDocument, match="no learned skill has the id"):
        forget(root.root, "learned:harbour/1", run_id="gone", now=NOW)


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
    found = forget(root.root, "trajectory:h0", run_id="gone", now=NOW)
    assert found.removed["state/answers"] == 2
    with Answers(root.root) as answers:
        assert [answers.find(f"k{number}") is None for number in range(4)] == [True, False, True, False]


@pytest.mark.slow
def test_in_a_bucket_skills_are_learned_served_and_forgotten_as_on_a_disk(
    bucket: str, minilm_export: Export, tmp_path: Path
) -> None:
    made = SkillRoot(tmp_path / "market", bucket, minilm_export.folder)
    learned(made.root, tmp_path, RUNS)
    assert induced(made, "one")["published"]
    first = ids(made)
    forget(made.root, f"learned:{first[0]}", run_id="gone", now=NOW)
    assert ids(made) == first[1:]
    assert examine(made.root) == []


@pytest.mark.parametrize(
    "step", ["purge", "clean_learned", pytest.param("mark_purged", marks=pytest.mark.slow)]
)
def test_a_forgetting_that_was_killed_is_finished_by_the_next(
    root: SkillRoot, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(forget_module, step, die)
        with pytest.raises(KeyboardInterrupt):
            forget(root.root, "trajectory:h0", run_id="killed", now=NOW)
    forget(root.root, "trajectory:h0", run_id="gone", now=NOW)
    assert holding(root, "Petrel") == set()
    assert root.served().version == "v-gone"


def test_ids_that_differ_in_case_are_forgotten_apart(skill_root: Make, tmp_path: Path) -> None:
    made = skill_root({})
    runs = [mooring("Run", "boat-0", "Petrel", "B1"), mooring("run", "boat-1", "Gull", "B2")]
    learned(made.root, tmp_path, runs)
    induced(made, "one")
    forget(made.root, "trajectory:Run", run_id="first", now=NOW)
    forget(made.root, "trajectory:run", run_id="second", now=NOW)
    assert learned(made.root, tmp_path, runs)["trajectories"]["forgotten"] == 2
    assert holding(made, "Gull") == holding(made, "Petrel") == set()


@pytest.mark.slow
def test_forgetting_serves_nothing_that_was_gone_back_from(root: SkillRoot, tmp_path: Path) -> None:
    learned(root.root, tmp_path, [tool_run("Raise the flag.", FLAG, name="h9")])
    induced(root, "two")
    roll_back(root.root)
    before = ids(root)
    forget(root.root, "trajectory:g0", run_id="gone", now=NOW)
    assert ids(root) == before


@pytest.mark.slow
def test_a_skill_that_the_forgotten_run_alone_did_goes_with_it(root: SkillRoot, tmp_path: Path) -> None:
    before = ids(root)
    learned(root.root, tmp_path, [tool_run("Raise the flag.", FLAG, name="h9")])
    induced(root, "two")
    assert len(ids(root)) > len(before)
    forget(root.root, "trajectory:h9", run_id="gone", now=NOW)
    assert ids(root) == before
