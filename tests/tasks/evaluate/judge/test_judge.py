from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
from storage.errors import WrongInput
from tasks.evaluate.judge.agreement import Label, agreement, cohen_kappa, read_labels, require_labelled
from tasks.evaluate.judge.judge import PROMPT, Case, Verdict, judge
from tasks.evaluate.judge.label_form import Pair, form_of, read_form, require_same_contexts
from tasks.models.llm.budget import Ceiling, Ledger
from tasks.models.llm.errors import Rejected
from tests.support.llm.bench_llm import judges_by_length
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer

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


def test_every_case_gets_three_votes_of_its_own_and_none_is_asked_for_twice(
    server: LlmServer, answers: Answers
) -> None:
    judged = judge(llm_of(server.url, answers), [*CASES, CASES[0]])
    assert [v.votes for v in judged.verdicts] == [(bool(n % 2),) * 3 for n in [*range(8), 0]]
    assert server.requests == 24
    assert {kept.attempt for kept in answers.kept(rejected=False)} == {0, 1, 2}
    ledger = Ledger()
    assert judge(llm_of(server.url, answers, ledger), CASES).verdicts == judged.verdicts[:8]
    assert (server.requests, ledger.report()["cached"]) == (24, 24)


def test_an_answer_that_is_no_verdict_is_asked_for_again_with_the_fault_named(
    server: LlmServer, answers: Answers
) -> None:
    server.fault = lambda asked: None if asked.corrected else ("prose", "no-json")[int(asked.key[0], 16) % 2]
    server.say = lambda asked: judges_by_length(asked) if asked.corrected else '{"sufficient": "perhaps"}'
    judged = judge(llm_of(server.url, answers), CASES[:2])
    assert [v.pattern for v in judged.verdicts] == ["3-0", "3-0"]
    assert server.requests == 12
    assert all("An earlier answer" in a.prompt for a in server.asked if a.corrected)


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


def test_a_spent_budget_and_a_silent_server_leave_cases_unjudged(server: LlmServer, answers: Answers) -> None:
    server.usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
    judged = judge(llm_of(server.url, answers, Ledger(ceiling=Ceiling(tokens=6_000))), CASES)
    assert judged.failed["budget"] > 0
    assert sum(len(v.votes) for v in judged.verdicts) == 24 - judged.failed["budget"]
    server.fault = lambda _: "500"
    other = [Case("market/other", "Why?", LONG)]
    assert judge(llm_of(server.url, answers), other).failed == Counter(unavailable=3)


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


def test_kappa_is_that_of_the_textbook() -> None:
    # 20 both yes, 15 both no, 5 and 10 apart: p_o 0.7, p_e 0.5.
    a = [True] * 20 + [True] * 5 + [False] * 10 + [False] * 15
    b = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohen_kappa(a, b) == pytest.approx(0.4)


def test_judges_who_always_say_the_same_one_thing_have_no_kappa() -> None:
    assert cohen_kappa([True, True], [True, True]) is None
    assert cohen_kappa([], []) is None
    assert cohen_kappa([True, False], [True, True]) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_kappa_is_symmetric_and_at_most_1_and_1_for_equal_judges_only(pairs: list[tuple[bool, bool]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    kappa = cohen_kappa(a, b)
    assert kappa == cohen_kappa(b, a)
    if kappa is not None:
        assert -1 <= kappa <= 1
        assert (kappa == pytest.approx(1)) == (a == b)


def test_agreement_is_told_by_vote_pattern_too() -> None:
    found = agreement([True, True, False, False], [True, False, False, True], ["3-0", "2-1", "3-0", "3-0"])
    assert (found["cases"], found["raw"], found["kappa"]) == (4, 0.5, 0.0)
    assert (found["only_a"], found["only_b"]) == (1, 1)
    assert list(found["by_pattern"]) == ["3-0", "2-1"]
    assert found["by_pattern"]["3-0"]["cases"] == 3
    assert found["by_pattern"]["3-0"]["raw"] == pytest.approx(2 / 3)
    assert found["by_pattern"]["2-1"]["kappa"] == 0.0


def test_cases_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        cohen_kappa([True], [True, False])


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


def test_an_empty_file_of_labels_is_refused(tmp_path: Path) -> None:
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


def test_what_a_person_writes_is_read_back(tmp_path: Path) -> None:
    form = form_of(PAIRS, "--method chunks --method mmr")
    found = read(tmp_path / "form.md", answered(form, "yes", "No"))
    assert [(label.key, label.sufficient) for label in found] == [
        (("q1", "chunks", None), True),
        (("q2", "mmr", 0.5), False),
    ]
    lines = (tmp_path / "form.md").read_text("utf-8").split("\n")
    assert [int(label.where.rpartition(":")[2]) for label in found] == [
        n for n, line in enumerate(lines, start=1) if line.startswith("Sufficient: ")
    ]
    require_same_contexts(found, {pair_key(pair): pair.context for pair in PAIRS})


def pair_key(pair: Pair) -> tuple[str, str, float | None]:
    return pair.query_id, pair.method, pair.budget


def test_the_form_shows_contexts_but_neither_methods_nor_control_characters() -> None:
    form = form_of(PAIRS, "")
    assert "> Turn the crank." in form
    assert "> Why?\n> Now." in form
    assert "chunks" not in form
    assert "\x1b" not in form
    assert "every step, command, parameter" in form  # the question that the model is asked


def test_pairs_left_blank_are_passed_over(tmp_path: Path) -> None:
    form = form_of(PAIRS, "")
    assert len(read(tmp_path / "form.md", answered(form, "", "y"))) == 1
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


def test_a_label_of_a_context_that_has_changed_is_refused(tmp_path: Path) -> None:
    labels = read(tmp_path / "form.md", answered(form_of(PAIRS, ""), "yes", "no"))
    now = {pair_key(pair): pair.context for pair in PAIRS} | {("q2", "mmr", 0.5): "Another."}
    with pytest.raises(WrongInput, match="another one than the form shows"):
        require_same_contexts(labels, now)
    # JSON lines do not say what was read.
    require_same_contexts([Label("q2", "mmr", 0.5, sufficient=True)], now)
