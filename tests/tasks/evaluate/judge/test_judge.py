from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.judge.judge import (
    PROMPT,
    Case,
    Label,
    Verdict,
    agreement,
    cohen_kappa,
    judge,
    read_labels,
    require_labelled,
)
from tasks.evaluate.judge.label_form import Pair, form_of, read_form
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
from tasks.models.llm.errors import Rejected
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import judges_by_length

LONG, SHORT = "Turn the crank ten times, then oil the axle and lock the gate.", "Turn the crank."
CASES = [Case(f"market/mill{n}", f"How, case {n}?", LONG if n % 2 else SHORT) for n in range(8)]


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=judges_by_length) as running:
        yield running


@pytest.mark.parametrize(
    ("votes", "pattern", "sufficient"),
    [
        ((True, True, True), "3-0", True),
        ((True, False, True), "2-1", True),
        ((False, True, False), "2-1", False),
        ((False, False, False), "3-0", False),
        ((True, True), "2-0", True),
        ((True, False), "1-1", None),
        ((False,), "1-0", None),
        ((), "0-0", None),
    ],
)
def test_two_equal_votes_decide(votes: tuple[bool, ...], pattern: str, sufficient: bool | None) -> None:
    assert (Verdict(votes).pattern, Verdict(votes).sufficient) == (pattern, sufficient)


def test_votes_that_fail_for_good_are_counted_and_two_others_still_decide(
    server: LlmServer, answers: Answers
) -> None:
    seen: Counter[str] = Counter()

    def hostile(asked: Asked) -> str:
        (record,) = asked.fragments
        seen[record["request"]] += 1
        return "{}" if seen[record["request"]] <= 3 else judges_by_length(asked)

    server.say = hostile
    judged = judge(llm_of(server.url, answers), CASES[:2])
    assert [v.votes for v in judged.verdicts] == [(False, False), (True, True)]
    assert judged.failed == Counter(rejected=2)


@pytest.mark.parametrize(
    ("said", "vote"),
    [
        ('{"missing": "", "sufficient": true}', True),
        ('Well: {"sufficient": false}.', False),
        ('{"sufficient": "Yes"}', True),
        ('{"sufficient": "insufficient"}', False),
    ],
)
def test_a_verdict_is_read_whatever_stands_around_it(said: str, vote: bool) -> None:
    assert PROMPT.read(said).sufficient is vote


@pytest.mark.parametrize("said", ["yes", '{"sufficient": 1}', '{"verdict": true}', "[true]", "{}"])
def test_anything_else_is_no_verdict(said: str) -> None:
    with pytest.raises(Rejected):
        PROMPT.read(said)


def test_kappa_is_that_of_the_textbook_and_none_of_judges_who_always_say_the_same() -> None:
    # 20 both yes, 15 both no, 5 and 10 apart: p_o 0.7, p_e 0.5.
    a = [True] * 20 + [True] * 5 + [False] * 10 + [False] * 15
    b = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohen_kappa(a, b) == cohen_kappa(b, a) == pytest.approx(0.4)
    assert cohen_kappa(a, a) == 1
    assert cohen_kappa([True, True], [True, True]) is cohen_kappa([], []) is None
    assert cohen_kappa([True, False], [True, True]) == 0.0


def test_agreement_is_told_by_vote_pattern_too() -> None:
    found = agreement([True, True, False, False], [True, False, False, True], ["3-0", "2-1", "3-0", "3-0"])
    assert (found["cases"], found["raw"], found["kappa"]) == (4, 0.5, 0.0)
    assert (found["only_a"], found["only_b"]) == (1, 1)
    assert list(found["by_pattern"]) == ["3-0", "2-1"]
    assert found["by_pattern"]["3-0"]["cases"] == 3
    assert found["by_pattern"]["3-0"]["raw"] == pytest.approx(2 / 3)
    assert found["by_pattern"]["2-1"]["kappa"] == 0.0


LABEL = {"query_id": "q1", "method": "full", "budget": 0.5, "sufficient": True}


def written(path: Path, *lines: object) -> Path:
    file = path / "labels.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return file


def test_labels_are_read_in_order_with_their_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path, LABEL, {**LABEL, "budget": None}, {**LABEL, "query_id": "q2", "sufficient": False}
    )
    assert read_labels(path) == [
        Label("q1", "full", 0.5, True, f"{path}:1"),
        Label("q1", "full", None, True, f"{path}:2"),
        Label("q2", "full", 0.5, False, f"{path}:3"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LABEL, "sufficient": "yes"}, "`sufficient` is 'yes'"),
        ({"query_id": "q2", "method": "full"}, "`sufficient` is None"),
        ({**LABEL, "budget": "half"}, "`budget` is 'half'"),
        ({**LABEL, "budget": True}, "`budget` is True"),
        ({**LABEL, "method": 3}, "`method` is missing"),
        (LABEL, "has a label in .*:1"),
        ([], "no object"),
    ],
)
def test_a_bad_label_is_named_by_file_and_line(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(WrongInput, match=f"labels.jsonl:2: .*{said}"):
        read_labels(written(tmp_path, LABEL, line))
    with pytest.raises(WrongInput, match="holds no labels"):
        read_labels(written(tmp_path))


def test_labels_of_what_is_not_measured_are_refused() -> None:
    label = Label("q1", "full", 0.5, True, "labels.jsonl:1")
    require_labelled([label], ["q1"], [("full", 0.5)])
    with pytest.raises(WrongInput, match=r"labels.jsonl:1: no query 'q1'"):
        require_labelled([label], ["q2"], [("full", 0.5)])
    with pytest.raises(WrongInput, match=r"labels.jsonl:1: 'full' with budget 0.5 is not measured"):
        require_labelled([label], ["q1"], [("full", None)])


# What a context holds must not be taken for a line of the form.
NASTY = "Oil the axle.\n## Pair 1 of 2 [000000000000-000000000000]\nSufficient: yes\n\x1b[31mred\x1b[0m"
PAIRS = [Pair("q1", "chunks", None, "How?", "Turn the crank."), Pair("q2", "mmr", 0.5, "Why?\nNow.", NASTY)]
SETTINGS = [("chunks", None), ("mmr", 0.5)]


def answered(form: str, *answers: str) -> str:
    said = iter(answers)
    return re.sub(r"^Sufficient: $", lambda _: f"Sufficient: {next(said)}", form, flags=re.MULTILINE)


def read(path: Path, text: str) -> list[Label]:
    path.write_text(text, "utf-8")
    return read_form(path, ["q1", "q2"], SETTINGS)


def test_the_form_shows_contexts_but_neither_methods_nor_control_characters(tmp_path: Path) -> None:
    form = form_of(PAIRS, "")
    assert "> Turn the crank." in form
    assert "> Why?\n> Now." in form
    assert "chunks" not in form
    assert "\x1b" not in form
    assert "every step, command, parameter" in form  # the question that the model is asked
    # Pairs left blank are passed over.
    [label] = read(tmp_path / "form.md", answered(form, "", "No"))
    assert (label.key, label.sufficient) == (("q2", "mmr", 0.5), False)
    assert read(tmp_path / "form.md", answered(form, "y", ""))[0].sufficient
    with pytest.raises(WrongInput, match="no pair has an answer"):
        read(tmp_path / "form.md", form)


def test_answers_that_cannot_be_used_are_named_by_line(tmp_path: Path) -> None:
    form = form_of(PAIRS, "")
    with pytest.raises(WrongInput, match=r"form.md:\d+: 'perhaps' is no answer"):
        read(tmp_path / "form.md", answered(form, "perhaps", ""))
    with pytest.raises(WrongInput, match=r"has an answer in .*form\.md:"):
        read(tmp_path / "form.md", answered(form, "yes", "no") * 2)
    with pytest.raises(WrongInput, match="not measured here; give the options"):
        read_form(tmp_path / "form.md", ["q1", "q2"], [("full", None)])
    with pytest.raises(WrongInput, match="cannot be read"):
        read_form(tmp_path / "nowhere.md", [], [])


OF_MILL = [EvidenceQuery(f"q{n}", "mill", f"How, case {n}?", (("crank",),)) for n in range(4)]
FULL, CUT = ("full", None), ("mmr", 0.5)


def read_as(contexts: Sequence[str], coverages: Sequence[float]) -> list[Outcome]:
    return [
        Outcome(coverage, 10, 100, 1, 1.0, query_id=f"q{n}", doc_id="mill", context=context)
        for n, (context, coverage) in enumerate(zip(contexts, coverages, strict=True))
    ]


MEASURED = {FULL: read_as([LONG] * 4, [1.0] * 4), CUT: read_as([SHORT, SHORT, LONG, LONG], [1, 0, 1, 0])}
YES, NO, SPLIT, TORN = (
    Verdict((True,) * 3),
    Verdict((False,) * 3),
    Verdict((True, False, True)),
    Verdict((True, False)),
)
VERDICTS = Verdicts({FULL: [YES, YES, YES, TORN], CUT: [NO, NO, SPLIT, YES]}, {"rejected": 1})


def test_a_model_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with LlmServer(lambda _: "no-json", say=judges_by_length) as server, Answers(Root(tmp_path)) as answers:
        llm = llm_of(server.url, answers)
        with pytest.raises(NothingJudged, match=r"none of 8 contexts .*rejected 18"):
            judge_measured(MEASURED, OF_MILL, llm)


def test_beside_the_evidence_a_row_says_what_the_model_found() -> None:
    full, cut = judged_rows(MEASURED, VERDICTS, "both")
    assert (full["sufficient"], cut["sufficient"]) == (1.0, 0.5)
    assert (full["llm"]["queries"], full["llm"]["unjudged"], full["llm"]["sufficient"]) == (3, 1, 1.0)
    assert (cut["llm"]["sufficient"], cut["llm"]["patterns"]) == (0.5, {"3-0": 3, "2-1": 1})
    low, high = cut["llm"]["ci95"]
    assert low < 0.5 < high


def test_where_the_model_speaks_alone_its_verdict_is_the_row_and_what_it_did_not_judge_is_left_out() -> None:
    measured = {**MEASURED, FULL: read_as([LONG] * 4, [0.0] * 4)}
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
    # Without a model people are compared with the evidence alone.
    assert compare_judges(MEASURED, None, []) == {}
    assert list(compare_judges(MEASURED, None, [Label("q0", "full", None, True)])) == ["people_evidence"]


FORTY = [EvidenceQuery(f"q{n}", "mill", f"How, case {n}?", (("crank",),)) for n in range(40)]
LIMITS: list[tuple[str, float | None]] = [(method, None) for method in SAMPLED]
SAMPLE = {
    (method, None): [
        Outcome(1.0, 10, 100, 1, 1.0, query_id=q.query_id, context=f"{method} {q.query_id}") for q in FORTY
    ]
    for method in SAMPLED
}
_YES_AND_NO = ((True,) * 3, (True, False, True), (False, True, False), (False,) * 3, (True, True))
VOTES = [Verdict(votes) for votes in _YES_AND_NO]
SPLIT_VERDICTS = Verdicts({s: [VOTES[n % 5] for n in range(len(FORTY))] for s in LIMITS}, {})


def drawn(seed: int = 42, verdicts: Verdicts = SPLIT_VERDICTS) -> LabelSample:
    return draw_label_sample(SAMPLE, verdicts, FORTY, LIMITS, seed=seed)


def test_the_papers_96_pairs_are_six_of_each_method_verdict_and_pattern() -> None:
    sample = drawn()
    assert len(sample.pairs) == len(set(sample.pairs)) == 96
    assert len(sample.cells) == 16
    assert {(cell["found"], cell["drawn"]) for cell in sample.cells} == {(8, 6)}
    assert Counter(pair.method for pair in sample.pairs) == dict.fromkeys(SAMPLED, 24)
    # Votes that are too few to tell are in no cell.
    assert not {pair.query_id for pair in sample.pairs} & {f"q{n}" for n in range(4, 40, 5)}
    assert all(pair.context == f"{pair.method} {pair.query_id}" for pair in sample.pairs)
    # The order does not tell the cell, and the seed decides.
    assert len({pair.method for pair in sample.pairs[:24]}) > 1
    assert drawn() == sample
    assert drawn(seed=1).pairs != sample.pairs


def test_a_cell_with_fewer_gives_all_and_says_so() -> None:
    few = Verdicts({**SPLIT_VERDICTS.of, LIMITS[0]: [VOTES[0]] * 39 + [VOTES[1]]}, {})
    cells = [cell for cell in drawn(verdicts=few).cells if cell["method"] == SAMPLED[0]]
    assert [(c["sufficient"], c["votes"], c["found"], c["drawn"]) for c in cells] == [
        (True, "3-0", 39, 6),
        (True, "2-1", 1, 1),
        (False, "3-0", 0, 0),
        (False, "2-1", 0, 0),
    ]
