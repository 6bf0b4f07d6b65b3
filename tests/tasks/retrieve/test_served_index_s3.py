"""A root in a bucket does what one in a folder does: the stages, what they leave, and who reads it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from storage.root import Root
from tasks.models.cached_encoder import export_here
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import roll_back
from tests.support.roots.built import built_at, lowest_cosine
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, Export, SkillRoot
from tests.support.s3_server import BUCKET

_QUERY = "how long does the dough rise?"


@pytest.fixture(scope="module")
def filled(
    s3: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory, minilm_export: Export
) -> Iterator[SkillRoot]:
    """A root that serves the hand-written skills; filling it takes hundreds of requests: tests share it."""
    folder = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**s3, "XDG_CACHE_HOME": str(folder / "copies")}.items():
            environment.setenv(name, value)
        root = SkillRoot(folder / "market", f"s3://{BUCKET}/on-s3", minilm_export.folder)
        for name, text in SKILLS.items():
            root.write(name, text)
        root.publish()
        yield root


def ask(root: Root) -> ServedIndex:
    return ServedIndex(root, encoder=MINILM, classifier=LocalClassifier)


def bread(root: Root) -> str:
    """Return the whole page of one skill."""
    page = ask(root).page("local/market/bread", _QUERY, budget=1.0, method="full")
    return str(page["context"])


def test_it_holds_the_same_as_a_folder_and_another_machine_answers_from_it(
    filled: SkillRoot, served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = built_at(served_bakery.root), built_at(filled.root)
    assert lowest_cosine(here, there) > 0.9999
    # Another machine has nothing but the bucket.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    other = Root(filled.root.uri)
    found = ask(other).search(_QUERY, 3)["results"]
    assert [row["doc_id"] for row in found] == [
        row["doc_id"] for row in served_bakery.ask().search(_QUERY, 3)["results"]
    ]
    assert bread(other) == bread(served_bakery.root)
    assert export_here(other.uri, "/elsewhere/models/x") == str(other.folder / "models/x")


def test_a_damaged_routing_index_is_found_and_made_again_by_readers(filled: SkillRoot) -> None:
    (arrays,) = [f for f in filled.root.files("routing") if f.endswith("vectors.npy")]
    filled.root.write(arrays, b"not an array")
    (finding,) = examine(filled.root)
    assert finding.mended
    assert ask(filled.root).search(_QUERY, 1)["results"]
    shutil.rmtree(filled.root.folder)
    assert ask(filled.root).search(_QUERY, 1)["results"]


def test_a_night_without_a_change_publishes_nothing_and_one_with_a_change_can_be_undone(
    filled: SkillRoot,
) -> None:
    first = filled.served()
    assert not filled.publish().changed
    filled.write("bread", SKILLS["bread"].replace("ten minutes", "twelve minutes"))
    assert filled.publish().changed
    assert "twelve minutes" in bread(filled.root)
    assert examine(filled.root) == []
    _, now = roll_back(filled.root, None)
    assert now.version == first.version
    assert "ten minutes" in bread(filled.root)
    report = forget(filled.root, "local/market/bread", run_id="later", now=filled.now)
    assert report.served == "v-later"
    held = [f for f in filled.root.files("") if b"Knead the dough" in filled.root.read(f)]
    assert held == []
