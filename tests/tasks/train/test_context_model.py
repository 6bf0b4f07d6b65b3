from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from storage.schemas import NODE_TYPES
from tasks.parse.classify.context_model import GRAPH, WEIGHTS, ContextModel, unpacked
from tasks.train import context_model as tune
from tasks.train.fragments import Labelled
from tasks.train.local_model import fit_model
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
