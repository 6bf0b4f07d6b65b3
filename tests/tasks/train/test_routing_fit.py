from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.fit import FEATURES
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.train.routing import DECISIVE, by_score, helps, reranked, routed
from tasks.train.routing_fit import AskedCorpus, AskedSkill, FitRows, asked_of, fit, halves, main, report
from tests.conftest import Export
from tests.support.models.training_material import trades
from tests.support.models.word_models import WordEncoder

SKILLS = trades()


def asked(place: int) -> AskedSkill:
    skill = SKILLS[place]
    return AskedSkill(f"who needs a {skill.body.split()[4]}", place, skill, "guild", "guild")


def rows(groups: int, each: int, seed: int = 0) -> FitRows:
    """Return results that are right as often as one feature says, in groups of requests, all first."""
    draw = np.random.default_rng(seed)
    evidence = draw.normal(size=(groups * each, len(FEATURES)))
    right = draw.random(len(evidence)) < 1 / (1 + np.exp(-3 * evidence[:, 1]))
    named = np.repeat([f"g{i}" for i in range(groups)], each)
    return FitRows(evidence, right, np.ones(len(evidence), dtype=bool), right, named, named)


def test_a_skill_that_is_left_out_is_not_found_and_one_that_is_kept_is() -> None:
    encoder = WordEncoder()
    given = AskedCorpus.of(SKILLS, encoder, ())
    found = asked_of(given, range(12), [asked(0), asked(20)], [asked(1)])
    assert found.served.tolist() == [True] * 6 + [False] * 3
    assert found.right[found.first].tolist() == [True, True, False]
    assert not found.right[6:].any()


@pytest.mark.parametrize("most", [3, 50])
def test_a_half_of_the_skills_is_kept_and_none_is_in_both(most: int) -> None:
    given = [asked(place) for place in (*range(24), *range(24))]
    kept, left_out = halves(given, most, np.random.default_rng(0))
    assert not {a.place for a in kept} & {a.place for a in left_out}
    assert (len(kept), len(left_out)) == (min(most, 24), min(most, 24))


def test_what_tells_right_from_wrong_is_learned_and_holds_for_a_group_that_was_left_out() -> None:
    model, told = fit(rows(4, 500)), report(rows(4, 500))
    assert int(np.argmax(np.abs(model.weights))) == 1
    assert set(told) == {"g0", "g1", "g2", "g3"}
    assert all(one["right"] > 0.85 for one in told.values())
    assert 0 < model.least < 1


def test_one_command_writes_the_model_and_tells_how_each_group_does(
    minilm_export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, pairs = _corpus(tmp_path), _pairs(tmp_path)
    _bench(tmp_path / "bench")
    given = [minilm_export.folder, corpus, pairs, tmp_path / "bench"]
    outs = [tmp_path / "first.json", tmp_path / "second.json"]
    for out in outs:
        monkeypatch.setattr(sys, "argv", ["fit", *map(str, given), "--out", str(out)])
        main()
        told = json.loads(capsys.readouterr().out)
    first, second = (json.loads(out.read_text("utf-8")) for out in outs)
    assert first == second
    assert list(first["weights"]) == list(FEATURES)
    assert set(told) == {"pairs", "bench"}
    assert told["bench"]["served"] > 0.5


def _file(skill: Skill) -> str:
    return f"---\nname: {skill.name}\ndescription: {skill.description}\n---\n{skill.body}"


def _corpus(folder: Path) -> Path:
    file = folder / "corpus.parquet"
    pl.DataFrame({"id": [s.doc_id for s in SKILLS], "content": [_file(s) for s in SKILLS]}).write_parquet(
        file
    )
    return file


def _pairs(folder: Path) -> Path:
    """Write a request out of each body, which is cut out of it."""
    file, made = folder / "pairs.parquet", []
    for skill in SKILLS[:16]:
        start = skill.body.index("Whoever")
        made.append({
            "query": skill.body[start:].strip(), "doc_id": skill.doc_id, "skill": "", "repo": "guild",
            "cut_field": "body", "split": "train",
            "cut_start": start, "cut_end": len(skill.body),
        })  # fmt: skip
    pl.DataFrame(made).write_parquet(file)
    return file


def _bench(folder: Path) -> None:
    folder.mkdir()
    queries = [{"query_id": s.name, "text": f"Work with a {s.body.split()[4]}"} for s in SKILLS]
    qrels = [{"query_id": s.name, "doc_id": s.doc_id, "relevance": 1} for s in SKILLS]
    for name, lines in (("queries", queries), ("qrels", qrels)):
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")


TRADES = trades()[:8]


class Words:
    """An encoder whose vectors count the words of the trades' tools."""

    tools = tuple(skill.body.split()[4] for skill in TRADES)

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.array([[text.count(tool) for tool in self.tools] for text in texts], dtype=np.float32)
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1), np.float32)


def test_skills_are_ranked_by_scores_and_equal_ones_by_position() -> None:
    found = by_score(TRADES, lambda _task: -(np.arange(8) // 2))("whatever", 3)
    assert found == [TRADES[k].doc_id for k in (0, 1, 2)]


def test_a_reranker_puts_the_first_candidates_in_order_and_leaves_the_rest() -> None:
    router = Router.from_documents(TRADES, Words())
    task = f"who needs the {TRADES[5].body.split()[4]}"
    before = [one.doc_id for one in router.rank(task, 8, fold=False)]

    class Backwards:
        def score(self, _query: str, texts: Sequence[str]) -> np.ndarray:
            return np.arange(len(texts), dtype=np.float64)

    (answer,) = reranked(TRADES, routed(router), Backwards(), lambda skill: skill.body, 3)(task, 8)
    assert answer.doc_ids == [*reversed(before[:3]), *before[3:]]


@pytest.mark.parametrize(("low", "expected"), [(0.01, True), (0.0, False), (-0.2, False)])
def test_a_method_helps_if_its_whole_interval_lies_above_the_baseline(low: float, expected: bool) -> None:
    contests = [
        {"method": "a", "measure": "hit@1", "low": 1.0},
        {"method": "a", "measure": DECISIVE, "low": low},
    ]
    assert helps(contests, "a") is expected
