"""An LLM is believed as far as it types known fragments rightly, and not at all below the local one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import Fallback
from tasks.models.llm.budget import Ceiling, Ledger
from tasks.models.llm.client import Endpoint
from tasks.parse.classify.llm import ACCURACY
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import (
    TypingOptions,
    belief,
    known_fragments,
    measured,
    open_classifier,
    typing_identity,
)
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


def test_a_model_that_says_one_type_is_refused_with_both_figures_and_its_mistakes(
    server: LlmServer, answers: Answers
) -> None:
    server.say = says(lambda _text, _true: "example")
    with pytest.raises(WrongInput) as refused:
        measured(classifier_of(server.url, answers))
    said = str(refused.value)
    assert "SKILLERY_LLM_MODEL small-model: of 72 fragments" in said
    assert "it typed 72, 0.17 of these right, the local classifier 0.72" in said
    assert "12 of 12 step" in said
    assert all(way in said for way in ("SKILLERY_LLM_ACCURACY=", "SKILLERY_CLASSIFIER=local"))
    assert "\n" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answered", "told"), [("Collects the links", "12, 1.00"), ("no such text", "0, 0.00")]
)
def test_a_model_that_types_next_to_nothing_is_refused(
    server: LlmServer, answers: Answers, answered: str, told: str
) -> None:
    server.fault = lambda asked: None if answered in str(asked.texts) else "no-json"
    with pytest.raises(WrongInput, match=f"it typed {told} of these right"):
        measured(classifier_of(server.url, answers))


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
    (first, spent), (again, saved) = runs
    assert (spent["requests"], saved["requests"], saved["cached"]) == (6, 0, 6)
    assert first == again
    assert {typed.confidence for typed in first} == {0.999}  # all right, but never certain
    assert server.requests == 6


def test_an_accuracy_that_is_given_needs_no_question(server: LlmServer, tmp_path: Path) -> None:
    assert belief(Root(tmp_path), LOCAL, options(server, accuracy=0.3), Ledger()) == 0.3
    assert server.requests == 0


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
