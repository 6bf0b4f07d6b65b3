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
from tasks.parse.classify.local import LocalClassifier, load_model, tree_scores
from tasks.train import local_model as train
from tasks.train.local_model import Boosting, Labelled, agreement, fit_forest
from tasks.train.state_axes import axes, draw, group_states, main
from tests.support.roots.skill_root import Export
from tests.support.texts.fragments import CLEAR, fragment


def labelled_file(folder: Path) -> Path:
    path = folder / "train.jsonl"
    rows = [
        {"id": f"{k}-{copy}", "doc_id": f"doc{copy}",
         "heading_path": list(given.heading_path), "block": given.block,
         "text": given.text, "node_type": node_type,
         "confidence": "low" if copy == 0 else "high"}
        for copy in range(6)
        for k, (node_type, given) in enumerate(CLEAR)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_training_learns_its_rows_and_writes_the_same_weights_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = labelled_file(tmp_path)
    written = []
    for out in (tmp_path / "one.npz", tmp_path / "two.npz"):
        train.main([str(path), "--out", str(out), "--rounds", "25"])
        assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
        written.append(load_model(out.read_bytes()))
    fragments = [given for _, given in CLEAR]
    answers = LocalClassifier(written[0]).classify(fragments)
    assert [answer.node_type for answer in answers] == [node_type for node_type, _ in CLEAR]
    first, second = (model.probabilities(fragments) for model in written)
    np.testing.assert_array_equal(first, second)


def rows_of(labels: list[str], doubted: list[bool]) -> list[Labelled]:
    return [Labelled(fragment("x"), "d", kind, d) for kind, d in zip(labels, doubted, strict=True)]


def sure_of(answers: list[str], confidence: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    given = np.full((len(answers), len(NODE_TYPES)), (1 - confidence) / 5)
    given[np.arange(len(answers)), [NODE_TYPES.index(a) for a in answers]] = confidence
    return given


def test_agreement_counts_each_type_alike_and_undoubted_rows_by_themselves() -> None:
    rows = rows_of(["step", "step", "step", "param"], [False, False, True, False])
    measured = agreement(rows, sure_of(["step", "step", "param", "param"], 0.95))
    assert (measured["accuracy"], measured["undoubted"]) == (0.75, 1.0)
    assert measured["f1"]["step"] == pytest.approx(0.8)
    assert measured["f1"]["param"] == pytest.approx(2 / 3)
    assert measured["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 6)
    assert measured["calibration_error"] == pytest.approx(0.2)


def test_confidence_that_was_too_high_is_cooled_and_too_low_is_sharpened() -> None:
    rows = rows_of(["step"] * 10, [False] * 10)
    half_right = ["step"] * 5 + ["param"] * 5
    assert train.fit_temperature(sure_of(half_right, 0.95), rows) > 1.5
    assert train.fit_temperature(sure_of(["step"] * 10, 0.7), rows) < 0.8


def test_a_document_is_never_tested_by_a_model_that_saw_it() -> None:
    told = Labelled(fragment("Lift the lid.", heading="Steps"), "known", "step", doubted=False)
    only_here = [Labelled(one, "other", kind, doubted=False) for kind, one in CLEAR if kind == "param"]
    given = train.held_out([told] * 4 + only_here * 4, Boosting(rounds=3), folds=2)
    assert (given[4:].argmax(axis=1) != NODE_TYPES.index("param")).all()


def test_a_sum_of_cues_learns_which_type_each_speaks_for() -> None:
    found, values = [np.array([k % 3]) for k in range(30)], [np.ones(1, np.float32)] * 30
    target = np.eye(3, dtype=np.float32)[[k % 3 for k in range(30)]]
    weights = train.fit_linear(found, values, 3, target, np.ones(30, np.float32))
    assert (weights.argmax(axis=1) == np.arange(3)).all()
    assert weights.max() > 1


def test_trees_learn_what_no_sum_of_cues_can() -> None:
    pairs = [(0, 0)] * 8 + [(0, 1)] * 10 + [(1, 0)] * 10 + [(1, 1)] * 12
    present = np.array(pairs, dtype=np.bool_)
    crossed = present[:, 0] ^ present[:, 1]
    target = np.eye(2, dtype=np.float32)[crossed.astype(int)]
    how = Boosting(rounds=60, depth=2, columns=1.0)
    forest = fit_forest(present, target, np.ones(len(pairs), np.float32), np.random.default_rng(0), how)
    assert (tree_scores(forest, present).argmax(axis=1) == crossed).all()


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
    # Those that are short, or of few sections, are not drawn.
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


def test_a_corpus_without_a_skill_of_middling_size_and_another_encoder_are_refused(
    tmp_path: Path, minilm_export: Export
) -> None:
    file = corpus(tmp_path, {"hive": "# Hive\n\nLift the lid.", "oven": skill("oven") * 8})
    with pytest.raises(WrongInput, match="no skill of middling size"):
        main(["--corpus", str(file), "--encoder", str(minilm_export.folder)])
    other = tmp_path / "other"
    shutil.copytree(minilm_export.folder, other)
    card = json.loads((other / "encoder.json").read_text("utf-8"))
    (other / "encoder.json").write_text(json.dumps({**card, "name": "another"}), "utf-8")
    with pytest.raises(WrongInput, match="holds another: states are kept of"):
        main(["--corpus", str(file), "--encoder", str(other)])
