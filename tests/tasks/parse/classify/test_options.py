"""Options of classification: names and identities, and how far a model that was measured is believed."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import Fallback
from tasks.models.llm.budget import Carried, Ceiling, Ledger, Prices
from tasks.models.llm.client import Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.llm import ACCURACY
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import (
    TypingOptions,
    belief,
    classifier_name,
    everything,
    known_fragments,
    llm_report,
    measured,
    open_classifier,
    typing_identity,
)
from tasks.parse.classify.protocol import FragmentInContext, Typed, read_fragments, write_typed
from tests.support.llm.llm_asking import IMPATIENT, classifier_of, fragments_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import says

LOCAL = LocalClassifier()


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=says()) as running:
        yield running


def options(server: LlmServer, **more: object) -> TypingOptions:
    endpoint = Endpoint(server.url, "small-model", retry=IMPATIENT)
    return replace(TypingOptions(endpoint, accuracy=None), **more)  # type: ignore[arg-type]


def test_the_fragments_hold_ten_to_twelve_of_each_type_in_several_languages() -> None:
    fragments, types = known_fragments()
    assert set(Counter(types)) == set(NODE_TYPES)
    assert all(10 <= count <= 12 for count in Counter(types).values())
    assert len({f.text for f in fragments}) == len(fragments) == len(types) >= 60
    assert sum("，" in f.text or "ñ" in f.text or "ö" in f.text for f in fragments) > 3
    right = [typed.node_type == t for typed, t in zip(LOCAL.classify(fragments), types, strict=True)]
    assert 0.65 < sum(right) / len(right) < 0.9


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        pytest.param("", "72, 0.17", id="one type"),
        pytest.param("Collects the links", "12, 1.00", id="one batch", marks=pytest.mark.slow),
        pytest.param("no such text", "0, 0.00", id="nothing", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_types_too_little_rightly_is_refused_with_both_figures_and_its_mistakes(
    server: LlmServer, answers: Answers, answered: str, told: str
) -> None:
    server.say = says(lambda _text, true: true if answered else "example")
    server.fault = lambda asked: None if answered in str(asked.texts) else "no-json"
    with pytest.raises(WrongInput) as refused:
        measured(classifier_of(server.url, answers))
    said = str(refused.value)
    assert "SKILLERY_LLM_MODEL small-model: of 72 fragments" in said
    assert f"it typed {told} of these right, the local classifier " in said
    assert ("(mistaken: none)" if answered else "12 of 12 step") in said
    assert answered or "the local classifier 0.72 " in said
    assert all(way in said for way in ("SKILLERY_LLM_ACCURACY=", "SKILLERY_CLASSIFIER=local"))
    assert "\n" not in said


def test_a_type_that_is_often_given_wrongly_is_believed_less_than_the_others(
    server: LlmServer, answers: Answers
) -> None:
    server.say = says(lambda _text, true: "step" if true == "error_handling" else true)
    found = measured(classifier_of(server.url, answers))
    share = 60 / 72
    assert found == {
        **dict.fromkeys(NODE_TYPES, pytest.approx((12 + 5 * share) / 17)),
        "step": pytest.approx((12 + 5 * share) / 29),
        "error_handling": pytest.approx(share),
    }


def test_what_was_measured_is_asked_once_and_is_the_confidence_of_each_type(
    server: LlmServer, tmp_path: Path
) -> None:
    root, llm = Root(tmp_path), options(server)
    runs = []
    fragments = fragments_of(1, 30)
    for _ in range(2):
        with open_classifier(root, LOCAL, llm) as (classifier, ledger):
            runs.append((classifier.classify(fragments), ledger.report()))
    assert belief(root, LOCAL, options(server, accuracy=0.3), Ledger()) == 0.3  # needs no question
    (first, spent), (again, saved) = runs
    assert (spent["requests"], saved["requests"], saved["cached"]) == (6, 0, 6)
    assert first == again
    assert {typed.confidence for typed in first} == {0.999}  # all right, but never certain
    assert server.requests == 6


@pytest.mark.parametrize("reason", ["unavailable", "budget"])
def test_a_measurement_that_was_cut_short_is_no_belief_and_is_ended_the_next_time(
    server: LlmServer, tmp_path: Path, reason: str
) -> None:
    root, llm, ledger = Root(tmp_path), options(server), Ledger(ceiling=Ceiling(tokens=4_500))
    server.usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
    if reason == "unavailable":
        ledger, server.fault = Ledger(), lambda _: "500" if server.requests else None
    found = belief(root, LOCAL, llm, ledger)
    assert isinstance(found, Fallback)
    assert found.reason == reason
    sent = server.requests
    fragments = fragments_of(2, 3)
    with open_classifier(root, LOCAL, replace(llm, accuracy=found)) as (classifier, _):
        typing = classifier.type_all(fragments)  # type: ignore[attr-defined]
    assert [row.typed for row in typing.rows] == LOCAL.classify(fragments)
    assert {row.classifier for row in typing.rows} == {f"{LOCAL.name}:fallback"}
    assert (typing.fallbacks, len(typing.unfinished)) == (Counter({reason: 6}), 2)
    assert server.requests == sent
    server.fault = lambda _: None
    assert set(belief(root, LOCAL, llm, Ledger())) == set(NODE_TYPES)  # type: ignore[arg-type]
    assert set(server.answered().values()) == {1}


def test_types_are_identified_without_the_figures(server: LlmServer) -> None:
    llm = options(server)
    unknown = typing_identity(LOCAL.name, llm)
    assert typing_identity(LOCAL.name, replace(llm, accuracy=dict.fromkeys(NODE_TYPES, 0.8))) == unknown
    assert typing_identity(LOCAL.name, replace(llm, accuracy=Fallback("budget", ""))) == unknown
    assert typing_identity(LOCAL.name, replace(llm, accuracy=ACCURACY)) == unknown.replace(
        "'measured-1'", "0.79"
    )


LINE = {
    "id": "kiln#3",
    "heading_path": ["Firing", "Before lighting"],
    "block": "list_item",
    "previous": "Stack the shelves.",
    "text": "Check the damper.",
    "next": None,
}


def lines_file(folder: Path, *lines: str) -> Path:
    path = folder / "fragments.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_line_becomes_a_fragment_whose_neighbours_may_be_missing(tmp_path: Path) -> None:
    short = {"id": "a", "heading_path": [], "block": "prose", "text": "x", "node_type": "step"}
    whole, alone = read_fragments(lines_file(tmp_path, json.dumps(LINE), "", json.dumps(short), "  "))
    path = ("Firing", "Before lighting")
    assert whole == FragmentInContext(
        "kiln#3", path, "list_item", "Stack the shelves.", "Check the damper.", None
    )
    assert alone == FragmentInContext("a", (), "prose", None, "x", None)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "not JSON"),
        ('["a"]', "no object"),
        (json.dumps({**LINE, "id": 3}), "`id`"),
        (json.dumps({**LINE, "text": None}), "`text`"),
        (json.dumps({**LINE, "block": ["prose"]}), "`block`"),
        (json.dumps({**LINE, "next": 0}), "`next`"),
        (json.dumps({**LINE, "heading_path": "Firing"}), "`heading_path`"),
        (json.dumps({**LINE, "heading_path": [1]}), "`heading_path`"),
        (json.dumps({key: LINE[key] for key in LINE if key != "heading_path"}), "`heading_path`"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path: Path, line: str, complaint: str) -> None:
    path = lines_file(tmp_path, json.dumps(LINE), "", line)
    with pytest.raises(WrongInput, match=rf"fragments\.jsonl:3: .*{complaint}"):
        list(read_fragments(path))


@given(st.lists(st.tuples(st.text(), st.floats(0.01, 0.99))))
def test_answers_are_written_a_line_each_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float]]
) -> None:
    out = tmp_path_factory.mktemp("typed") / "out.jsonl"
    write_typed(out, ((name, Typed("step", sure), "rules-1") for name, sure in rows))
    read = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [record["id"] for record in read] == [name for name, _ in rows]
    assert all(record.keys() == {"id", "node_type", "confidence", "classifier"} for record in read)
    assert [record["confidence"] for record in read] == pytest.approx([s for _, s in rows], abs=5e-5)


LOCAL_NAME = LocalClassifier.name
ENDPOINT = Endpoint("http://127.0.0.1:9/v1", "small-model", "sk-hush")
LLM = TypingOptions(ENDPOINT, threshold=None)
HYBRID = TypingOptions(ENDPOINT, threshold=0.6)


@pytest.mark.parametrize(
    ("llm", "name"),
    [
        (None, LOCAL_NAME),
        (LLM, "classify-1@small-model"),
        (HYBRID, f"{LOCAL_NAME}<0.6:classify-1@small-model"),
        (everything(HYBRID), "classify-1@small-model"),
    ],
)
def test_the_name_that_is_told_is_the_one_that_is_opened(
    llm: TypingOptions | None, name: str, tmp_path: Path
) -> None:
    assert classifier_name(LOCAL_NAME, llm) == name
    with open_classifier(Root(tmp_path / "root"), LocalClassifier(), llm) as (opened, _):
        assert opened.name == name
    assert llm or list(tmp_path.iterdir()) == []
    wrong = replace(HYBRID, threshold=1.5)
    with pytest.raises(WrongInput, match=r"1\.5"), open_classifier(Root(tmp_path), LocalClassifier(), wrong):
        pytest.fail("opened")


@pytest.mark.parametrize(
    ("change", "is_part"),
    [
        ({"endpoint": replace(ENDPOINT, model="large-model")}, True),
        ({"threshold": 0.7}, True),
        ({"threshold": None}, True),
        ({"sampling": Sampling(temperature=0.5)}, True),
        ({"batch": 10}, True),
        ({"accuracy": 0.9}, True),
        # Where it is asked and what it costs is not.
        ({"endpoint": replace(ENDPOINT, base_url="http://127.0.0.1:10/v1", api_key="", timeout=5.0)}, False),
        ({"prices": Prices(1.0, 2.0)}, False),
        ({"ceiling": Ceiling(tokens=5)}, False),
    ],
)
def test_what_shapes_an_answer_is_part_of_the_identity(change: dict[str, Any], is_part: bool) -> None:
    identity = typing_identity("rules-1", HYBRID)
    assert (typing_identity("rules-1", replace(HYBRID, **change)) != identity) == is_part


def test_another_prompt_or_local_classifier_is_another_identity_which_shows_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = typing_identity("rules-1", LLM)
    assert "sk-hush" not in before + repr(HYBRID)
    assert pickle.loads(pickle.dumps(HYBRID)) == HYBRID  # noqa: S301 - our own bytes
    assert typing_identity("rules-2", LLM) != before
    monkeypatch.setattr("tasks.parse.classify.llm.PROMPT.name", "classify-99")
    assert typing_identity("rules-1", LLM) != before


def test_batches_that_ask_at_once_share_the_questions_under_way() -> None:
    four = replace(LLM, endpoint=replace(ENDPOINT, concurrency=4))
    assert [four.shared_by(batches).endpoint.concurrency for batches in (1, 2, 3, 9)] == [4, 2, 1, 1]


def test_the_report_adds_up_what_a_run_asked() -> None:
    typed = {"documents": 9, "asked": 7, "unfinished": 2, "fallbacks: budget": 3, "fallbacks: refused": 1}
    account = Carried({"requests": 4, "prompt_tokens": 1_000_000, "completion_tokens": 10}, spent=True)
    report = llm_report("x@m", replace(LLM, prices=Prices(prompt=2.0)), typed, account)
    assert report is not None
    assert report["fallbacks"] == {"budget": 3, "refused": 1}
    wanted = {"classifier": "x@m", "asked": 7, "unfinished": 2, "partial": True, "requests": 4, "cost": 2.0}
    assert {k: report[k] for k in wanted} == wanted
    assert llm_report("rules-1", None, typed, account) is None
