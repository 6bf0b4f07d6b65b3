from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import packaged_projection
from tasks.parse.classify.context_model import GRAPH, WEIGHTS, ContextModel, unpacked
from tasks.train import context_model as tune
from tasks.train.fragments import Labelled
from tasks.train.local_model import fit_model
from tasks.train.state_axes import axes, draw, group_states, main
from tests.support.roots.skill_root import Export
from tests.support.texts.fragments import CLEAR


def rows() -> list[Labelled]:
    return [
        Labelled(given, f"doc{copy}", node_type, copy == 0) for copy in range(5) for node_type, given in CLEAR
    ]


@pytest.mark.slow
def test_training_lowers_the_loss_and_what_is_written_answers_like_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning = tune.Tuning(epochs=4, batch=8)
    given = tune.material(rows(), tuning)
    network = tune.fit(given, range(len(rows())), tuning)
    losses = [float(line.split()[-1]) for line in capsys.readouterr().err.splitlines() if "loss" in line]
    assert losses[-1] < losses[0] - 0.3
    (tmp_path / "data").mkdir()
    tune.export(network, tmp_path)
    tuned = unpacked((tmp_path / WEIGHTS).read_bytes())
    model = ContextModel((tmp_path / GRAPH).read_bytes(), lambda: tuned, "trained here")
    asked = list(range(len(CLEAR)))
    trained = tune.predict(network, given, asked)
    found = model.probabilities([given for _, given in CLEAR])
    # The shipped weights have 8 bits.
    np.testing.assert_allclose(found, trained, atol=0.05)
    assert (found.argmax(axis=1) == given.targets[asked].numpy().argmax(axis=1)).mean() > 0.8


@pytest.mark.slow
def test_a_student_answers_like_its_teachers_before_it_sees_a_label() -> None:
    labelled, tuning = rows(), tune.Tuning(epochs=4, batch=8)
    given = tune.material(labelled, tuning)
    unlabelled = [fragment for _, fragment in CLEAR for _ in range(6)]
    lesson, first = tune.Lesson(labelled, given, tuning, unlabelled), fit_model(labelled)
    teacher = tune.fit(given, range(len(labelled)), tuning)
    student = tune.taught(lesson, teacher, first)
    right = [NODE_TYPES.index(node_type) for node_type, _ in CLEAR]
    found = tune.predict(student, given, range(len(CLEAR)))
    assert (found.argmax(axis=1) == right).mean() > 0.5
    after = tune.predict(tune.trained(lesson, range(len(labelled)), first), given, range(len(CLEAR)))
    assert (after.argmax(axis=1) == right).mean() > 0.8


@pytest.mark.slow
def test_the_command_reports_held_out_documents_and_writes_both_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"id": str(k), "doc_id": row.doc_id, "heading_path": list(row.fragment.heading_path),
         "block": row.fragment.block, "text": row.fragment.text, "node_type": row.node_type}
        for k, row in enumerate(rows())
    ]  # fmt: skip
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "data").mkdir()
    tune.main([str(path), "--out", str(tmp_path), "--epochs", "1"])
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == len(CLEAR)
    assert 0 <= said["looked at twice"] <= 1
    assert {path.name for path in (tmp_path / "data").iterdir()} == {Path(GRAPH).name, Path(WEIGHTS).name}


TRADES = ("hive", "oven", "kiln")


def skill(trade: str, *, more: str = "") -> str:
    """Return a skill of 24 nodes in four sections, of a length that is drawn."""
    sections = ("Light it", "Feed it", "Clean it", "Leave it for winter")
    said = "\n\n".join(
        f"## {title}\n\n"
        + "\n\n".join(
            f"Before you {title.lower()}, look at the {trade} from side {k} and note in the book of "
            f"the {trade} what you find there, who was with you, and which of {k + 3} tools you had."
            for k in range(6)
        )
        for title in sections
    )
    return f"---\nname: {trade}\n---\n# The {trade}\n\n{said}\n{more}"


def corpus(folder: Path, texts: dict[str, str]) -> Path:
    file = folder / "skills.parquet"
    pl.DataFrame({"id": list(texts), "content": list(texts.values())}).write_parquet(file)
    return file


def drawn(folder: Path, texts: dict[str, str], without: list[str]) -> set[str]:
    found = draw(corpus(folder, texts), without)
    return {trade for some in found for trade in TRADES if f"the {trade} from" in some[0].text}


def test_skills_are_drawn_once_under_whatever_name_and_not_those_left_out(tmp_path: Path) -> None:
    texts = {trade: skill(trade) for trade in TRADES} | {"hive again": skill("hive", more="\nAnd rest.\n")}
    assert drawn(tmp_path, texts, []) == set(TRADES)
    assert len(list(draw(corpus(tmp_path, texts), []))) == len(TRADES)
    assert drawn(tmp_path, texts, [skill("oven")]) == {"hive", "kiln"}


def test_skills_that_are_short_or_of_few_sections_are_not_drawn(tmp_path: Path) -> None:
    flat = skill("kiln").replace("## Feed it", "").replace("## Clean it", "")
    assert drawn(tmp_path, {"b": flat, "c": skill("oven")}, []) == {"oven"}
    assert drawn(tmp_path, {"a": "# The hive\n\nThe hive from side 1.", "b": skill("oven")}, []) == {"oven"}


def test_states_are_those_of_the_tokens_in_pairs(tmp_path: Path, minilm: OnnxEncoder) -> None:
    fragments = next(draw(corpus(tmp_path, {"hive": skill("hive")}), []))
    found = group_states(fragments, minilm)
    tokens = minilm.count([fragment.text for fragment in fragments])
    assert len(found) == sum(-(-n // 2) for n in tokens)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)


def test_axes_follow_what_varies_within_skills_whatever_sets_skills_apart() -> None:
    chance = np.random.default_rng(0)
    within = np.diag([3.0, 1.0, 0.2, 0.0])
    skills = [
        (chance.normal(size=(500, 4)) @ within + [0, 0, 0, far]).astype(np.float32) for far in (-50, 50)
    ]
    found, share = axes(skills, 2)
    assert np.abs(found[:, 0]) == pytest.approx([1, 0, 0, 0], abs=0.05)
    assert np.abs(found[:, 1]) == pytest.approx([0, 1, 0, 0], abs=0.05)
    assert found.T @ found == pytest.approx(np.eye(2), abs=1e-6)
    assert share == pytest.approx(10 / 10.04, abs=0.002)


def test_the_command_writes_axes_that_the_package_can_take(
    tmp_path: Path, minilm_export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = corpus(tmp_path, {trade: skill(trade) for trade in TRADES}), tmp_path / "made.npy"
    without = tmp_path / "without.jsonl"
    without.write_text(json.dumps({"doc_id": "hive", "content": skill("hive")}), "utf-8")
    given = ["--corpus", str(file), "--encoder", str(minilm_export.folder), "--out", str(out)]
    main([*given, "--without", str(without)])
    assert np.load(out).shape == packaged_projection().shape
    assert capsys.readouterr().out.startswith("2 skills: 192 dimensions hold ")
    main([*given, "--skills", "1"])
    assert capsys.readouterr().out.startswith("1 skills: ")


def test_a_corpus_without_a_skill_of_middling_size_is_refused(tmp_path: Path, minilm_export: Export) -> None:
    file = corpus(tmp_path, {"hive": "# Hive\n\nLift the lid.", "oven": skill("oven") * 8})
    with pytest.raises(WrongInput, match="no skill of middling size"):
        main(["--corpus", str(file), "--encoder", str(minilm_export.folder)])


def test_an_encoder_whose_states_are_not_kept_is_refused_before_anything_is_encoded(
    tmp_path: Path, minilm_export: Export
) -> None:
    file, other = corpus(tmp_path, {"hive": skill("hive")}), tmp_path / "other"
    shutil.copytree(minilm_export.folder, other)
    card = json.loads((other / "encoder.json").read_text("utf-8"))
    (other / "encoder.json").write_text(json.dumps({**card, "name": "another"}), "utf-8")
    with pytest.raises(WrongInput, match="holds another: states are kept of"):
        main(["--corpus", str(file), "--encoder", str(other)])
