from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.evaluate.measures.evidence import EvidenceQuery, read_documents, read_queries
from tasks.evaluate.paging.bench import (
    SEED,
    PagingBench,
    Remembering,
    body_of,
    digest,
    fitted,
    held_out_scorer,
    measure,
    prepare_all,
)
from tasks.evaluate.paging.outcomes import summarise_outcomes
from tasks.evaluate.paging.report import paging_markdown, report_paging
from tasks.evaluate.stream.report import decision_means
from tasks.evaluate.stream.walk import Stream
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.paging.scorer import FILE
from tasks.retrieve.routing.fit import FEATURES
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.suggest.methods import default
from tasks.train.paging_scorer import FOLDS, example, held_out, stored, write_fitted
from tasks.train.paging_scorer import fit as fit_scorer
from tasks.train.routing import DECISIVE, by_score, helps, reranked, routed
from tasks.train.routing_fit import (
    AskedCorpus,
    AskedSkill,
    FitRows,
    asked_of,
    fit,
    halves,
    main,
    of_pairs,
    report,
)
from tasks.train.splits import folds_of
from tasks.train.suggested import fit as fit_uses
from tasks.train.suggested import use_choices
from tests.conftest import Export
from tests.support.induce.runs import add_bed, mooring
from tests.support.models.training_material import trades
from tests.support.models.word_models import WordEncoder, WordTokenizer
from tests.support.paging.paging_bench import AllConcepts, workshop
from tests.support.paths import PROJECT, SHARED

BENCH = SHARED / "bench/paging"
SAMPLE = PROJECT / "tasks/crawl/marketplace"


def bench(documents: int) -> PagingBench:
    texts = {f"d{n}": workshop(f"w{n}", 3) for n in range(documents)}
    queries = [
        EvidenceQuery(f"q{k}", f"d{n}", "grease the anvil handle", ((f"every 3 weeks with w{n}anvil1 wax",),))
        for k, n in enumerate([*range(documents), 0])  # the first has two
    ]
    encoder, tokenizer = Remembering(WordEncoder()), WordTokenizer()
    ready = prepare_all(texts, queries, encoder=encoder, tokenizer=tokenizer, classifier=AllConcepts())
    return PagingBench(ready, queries, encoder, tokenizer)


def shared_bench(encoder: OnnxEncoder, documents: int, each: int = 1000) -> PagingBench:
    """Return the shared bench's first documents, each with so many of its requests."""
    if not BENCH.exists():
        pytest.skip("the shared paging bench is not on this machine")
    texts, queries = read_documents(BENCH / "documents.jsonl"), read_queries(BENCH / "queries.jsonl")
    some = sorted({q.doc_id for q in queries})[:documents]
    asked = [query for doc_id in some for query in [q for q in queries if q.doc_id == doc_id][:each]]
    ready = prepare_all(texts, asked, encoder=encoder, tokenizer=encoder, classifier=LocalClassifier())
    return PagingBench(ready, asked, Remembering(encoder), encoder)


def test_what_a_scorer_was_fitted_on_is_written_and_read_with_a_scorer_for_each_fold(tmp_path: Path) -> None:
    made = bench(18)
    examples = [example(q, made.documents[q.doc_id], made.encoder, made.tokenizer) for q in made.queries]
    ids = list(made.documents)
    drawn = dict(zip(ids, folds_of(ids, FOLDS, SEED).tolist(), strict=True))
    scorers = held_out(examples, SEED)
    for fold, own in scorers.items():
        others = [e for e in examples if drawn[e.query.doc_id] != fold]
        assert np.allclose(own.weight, fit_scorer(others).weight)
    bodies = {made.documents[doc_id].body: fold for doc_id, fold in drawn.items()}
    write_fitted(tmp_path / "fitted.json", bodies, [stored(scorers[k]) for k in sorted(scorers)], "packaged")
    found = fitted(tmp_path / "fitted.json")
    assert found.folds == {digest(body): fold for body, fold in bodies.items()}
    assert found.packaged == digest("packaged")
    assert all(np.allclose(found.scorers[k].weight, scorers[k].weight, atol=1e-6) for k in scorers)
    # A bench pages each document by the scorer of its fold, and says so.
    made.scorers = {doc_id: found.scorers[fold] for doc_id, fold in drawn.items()}
    measured = measure(made, [("facets", 0.3), ("mmr", 0.3)])
    ours, theirs = (summarise_outcomes(outcomes) for outcomes in measured.values())
    assert (ours["held_out"], theirs["held_out"]) == (19, 0)
    # Where the same sentence answers in every document, the others teach it.
    assert (ours["sufficient"], ours["token_reduction"] >= 0.7) == (1.0, True)


def test_the_held_out_scorers_go_with_the_packaged_one() -> None:
    assert fitted().packaged == digest(FILE.read_text("utf-8"))
    assert set(fitted().folds.values()) == set(range(len(fitted().scorers)))
    # Documents that the packaged one never saw are paged by it.
    made = bench(2)
    assert made.scorers == {}
    [outcomes] = measure(made, [("facets", None)]).values()
    assert summarise_outcomes(outcomes)["held_out"] == 0


def test_the_scorer_never_saw_the_sample_that_a_nights_evaluation_measures() -> None:
    bodies = [body_of(path.read_text("utf-8", "replace")) for path in SAMPLE.rglob("SKILL.md")]
    assert bodies
    assert [body for body in bodies if held_out_scorer(body)] == []


def test_of_a_few_documents_that_it_was_fitted_on_every_figure_is_held_out(minilm: OnnxEncoder) -> None:
    made = shared_bench(minilm, 2, 1)
    assert len(made.scorers) == 2
    report = report_paging(made, lambda: None)
    ours = [row for row in report.rows if row["method"] == "facets"]
    assert {row["held_out"] for row in ours} == {len(made.queries)}
    assert {row["held_out"] for row in report.rows if row["method"] != "facets"} == {0}
    assert {contest["held_out"] for contest in report.contests} == {len(made.queries)}
    text = paging_markdown(report)
    assert "Held out: the scorer of facets was fitted on 2 of these documents" in text
    assert "| facets |" not in text.partition("## Latency")[0]


@pytest.mark.slow
def test_each_shipped_scorer_is_what_the_fit_gives_without_its_fold(minilm: OnnxEncoder) -> None:
    made = shared_bench(minilm, 36)
    examples = [example(q, made.documents[q.doc_id], minilm, minilm) for q in made.queries]
    drawn = fitted().folds
    assert len(made.scorers) == 36
    for fold, shipped in enumerate(fitted().scorers):
        others = [e for e in examples if drawn[digest(made.documents[e.query.doc_id].body)] != fold]
        again = fit_scorer(others)
        assert len(others) < len(examples)
        assert np.allclose(again.weight, shipped.weight, atol=1e-4)
        assert np.allclose(again.mean, shipped.mean, atol=1e-4)


ENCODE = WordEncoder().encode
BEDS = [add_bed(f"g{n}", f"t{n}", bed) for n, bed in enumerate(("Palm house", "Herb wall", "Fern bank"))]
BOATS = [mooring(f"h{n}", f"t{n}", boat) for n, boat in enumerate(("Petrel", "Auk", "Tern"))]


def test_each_step_gives_a_choice_among_the_uses_of_other_tasks() -> None:
    found = use_choices([*BEDS, *BOATS, mooring("h9", "t0", "Skua")], ENCODE)
    assert set(found) == {run.domain for run in (*BEDS, *BOATS)}
    for one in (choice for own in found.values() for choice in own):
        assert one.features.shape == (len(one.right), 4)
        assert one.right.any()
        assert np.abs(one.features).max() <= 1 + 1e-6
    # The first run of a domain can be offered nothing; the last is of the task of the first.
    (domain,) = others = use_choices([*BOATS, mooring("h9", "t9", "Skua")], ENCODE)
    assert found[domain][-1].right.size < others[domain][-1].right.size


def test_weights_of_one_domain_find_what_serves_in_another() -> None:
    found = use_choices([*BEDS, *BOATS], ENCODE)
    weights = fit_uses(found[BEDS[0].domain])
    assert weights == fit_uses(found[BEDS[0].domain])
    walked = Stream(ENCODE).walk(BOATS, {"": partial(default, weights=weights)})
    means = decision_means([decision for _, decision in walked])
    assert means["usable@5"] == means["reachable"] > 0


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


def test_a_group_is_told_by_a_model_of_others_that_saw_nothing_of_its_repository() -> None:
    given = rows(3, 500)
    turned = given.evidence * np.where(given.group == "g1", -0.3, 1)[:, None]
    repo = np.where(given.group == "g2", "G0", given.group)
    told = report(given._replace(evidence=turned, repo=repo))
    assert told["g0"]["right"] < 0.7  # of the one other, where it speaks against, nothing can be learned
    assert told["g1"]["right"] < 0.3


def test_a_pairs_skill_is_read_without_what_is_asked_of_it(tmp_path: Path) -> None:
    given = of_pairs(_pairs(tmp_path), _corpus(tmp_path), WordEncoder())
    assert len(given.asked) == 16
    assert not any(one.query in one.skill.body for one in given.asked)


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
