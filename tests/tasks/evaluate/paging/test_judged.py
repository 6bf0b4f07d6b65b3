from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.root import Root
from tasks.evaluate.judge.agreement import Label
from tasks.evaluate.judge.judge import Verdict
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.judged import (
    SAMPLED,
    LabelSample,
    NothingJudged,
    Verdicts,
    compare_judges,
    draw_label_sample,
    judge_measured,
    judged_rows,
)
from tasks.evaluate.paging.outcomes import Outcome
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import judges_by_length

LONG, SHORT = "Turn the crank ten times, then oil the axle and lock the gate.", "Turn the crank."
QUERIES = [EvidenceQuery(f"q{n}", "mill", f"How, case {n}?", (("crank",),)) for n in range(4)]
FULL, CUT = ("full", None), ("mmr", 0.5)


def outcomes(contexts: Sequence[str], coverages: Sequence[float]) -> list[Outcome]:
    return [
        Outcome(coverage, 10, 100, 1, 1.0, query_id=f"q{n}", doc_id="mill", context=context)
        for n, (context, coverage) in enumerate(zip(contexts, coverages, strict=True))
    ]


MEASURED = {FULL: outcomes([LONG] * 4, [1.0] * 4), CUT: outcomes([SHORT, SHORT, LONG, LONG], [1, 0, 1, 0])}
YES, NO, SPLIT, TORN = (
    Verdict((True,) * 3),
    Verdict((False,) * 3),
    Verdict((True, False, True)),
    Verdict((True, False)),
)
VERDICTS = Verdicts({FULL: [YES, YES, YES, TORN], CUT: [NO, NO, SPLIT, YES]}, {"rejected": 1})


def test_a_model_reads_the_contexts_that_were_measured(tmp_path: Path) -> None:
    with LlmServer(say=judges_by_length) as server, Answers(Root(tmp_path)) as answers:
        llm = llm_of(server.url, answers)
        found = judge_measured(MEASURED, QUERIES, llm)
        # Of eight contexts two are the same for the same request.
        assert server.requests == 18
    assert [v.sufficient for v in found.of[FULL]] == [True] * 4
    assert [v.sufficient for v in found.of[CUT]] == [False, False, True, True]
    assert (found.patterns(), found.failed) == ({"3-0": 8}, {})


def test_a_model_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with LlmServer(lambda _: "no-json", say=judges_by_length) as server, Answers(Root(tmp_path)) as answers:
        llm = llm_of(server.url, answers)
        with pytest.raises(NothingJudged, match=r"none of 8 contexts .*rejected 18"):
            judge_measured(MEASURED, QUERIES, llm)


def test_beside_the_evidence_a_row_says_what_the_model_found() -> None:
    full, cut = judged_rows(MEASURED, VERDICTS, "both")
    assert (full["sufficient"], cut["sufficient"]) == (1.0, 0.5)
    assert (full["llm"]["queries"], full["llm"]["unjudged"], full["llm"]["sufficient"]) == (3, 1, 1.0)
    assert (cut["llm"]["sufficient"], cut["llm"]["patterns"]) == (0.5, {"3-0": 3, "2-1": 1})
    low, high = cut["llm"]["ci95"]
    assert low < 0.5 < high


def test_where_the_model_speaks_alone_its_verdict_is_the_row_and_what_it_did_not_judge_is_left_out() -> None:
    measured = {**MEASURED, FULL: outcomes([LONG] * 4, [0.0] * 4)}
    full, cut = judged_rows(measured, VERDICTS, "llm")
    assert (full["queries"], full["sufficient"], full["coverage"]) == (3, 1.0, 0.0)
    assert (cut["queries"], cut["sufficient"]) == (4, 0.5)
    silent = Verdicts({FULL: [TORN] * 4, CUT: VERDICTS.of[CUT]}, {})
    assert [row["method"] for row in judged_rows(measured, silent, "llm")] == ["mmr"]


def test_judges_are_compared_with_each_other_and_with_people() -> None:
    labels = [Label("q0", "mmr", 0.5, False), Label("q2", "mmr", 0.5, False), Label("q3", "full", None, True)]
    found = compare_judges(MEASURED, VERDICTS, labels)
    both = found["evidence_llm"]
    assert (both["cases"], both["only_a"], both["only_b"]) == (7, 1, 1)
    assert both["by_pattern"]["2-1"]["cases"] == 1
    assert (found["people_evidence"]["cases"], found["people_evidence"]["raw"]) == (3, pytest.approx(1 / 3))
    # What the model left open is no case.
    assert (found["people_llm"]["cases"], found["people_llm"]["raw"]) == (2, 0.5)
    assert found["people_llm"]["by_pattern"]["2-1"]["raw"] == 0.0


def test_without_a_model_people_are_compared_with_the_evidence_alone() -> None:
    assert compare_judges(MEASURED, None, []) == {}
    assert list(compare_judges(MEASURED, None, [Label("q0", "full", None, True)])) == ["people_evidence"]


ASKED = [EvidenceQuery(f"q{n}", "mill", f"How, case {n}?", (("crank",),)) for n in range(40)]
SETTINGS: list[tuple[str, float | None]] = [(method, None) for method in SAMPLED]
SAMPLE = {
    (method, None): [
        Outcome(1.0, 10, 100, 1, 1.0, query_id=q.query_id, context=f"{method} {q.query_id}") for q in ASKED
    ]
    for method in SAMPLED
}
_YES_AND_NO = ((True,) * 3, (True, False, True), (False, True, False), (False,) * 3, (True, True))
VOTES = [Verdict(votes) for votes in _YES_AND_NO]
SPLIT_VERDICTS = Verdicts({s: [VOTES[n % 5] for n in range(len(ASKED))] for s in SETTINGS}, {})


def drawn(seed: int = 42, verdicts: Verdicts = SPLIT_VERDICTS) -> LabelSample:
    return draw_label_sample(SAMPLE, verdicts, ASKED, SETTINGS, seed=seed)


def test_the_papers_96_pairs_are_six_of_each_method_verdict_and_pattern() -> None:
    sample = drawn()
    assert len(sample.pairs) == len(set(sample.pairs)) == 96
    assert len(sample.cells) == 16
    assert {(cell["found"], cell["drawn"]) for cell in sample.cells} == {(8, 6)}
    assert Counter(pair.method for pair in sample.pairs) == dict.fromkeys(SAMPLED, 24)
    # Votes that are too few to tell are in no cell.
    assert not {pair.query_id for pair in sample.pairs} & {f"q{n}" for n in range(4, 40, 5)}
    assert all(pair.context == f"{pair.method} {pair.query_id}" for pair in sample.pairs)


def test_the_order_does_not_tell_the_cell_and_the_seed_decides() -> None:
    assert drawn() == drawn()
    assert drawn().pairs != drawn(seed=1).pairs
    assert len({pair.method for pair in drawn().pairs[:24]}) > 1


def test_a_cell_with_fewer_gives_all_and_says_so() -> None:
    few = Verdicts({**SPLIT_VERDICTS.of, SETTINGS[0]: [VOTES[0]] * 39 + [VOTES[1]]}, {})
    cells = [cell for cell in drawn(verdicts=few).cells if cell["method"] == SAMPLED[0]]
    assert [(c["sufficient"], c["votes"], c["found"], c["drawn"]) for c in cells] == [
        (True, "3-0", 39, 6),
        (True, "2-1", 1, 1),
        (False, "3-0", 0, 0),
        (False, "2-1", 0, 0),
    ]
