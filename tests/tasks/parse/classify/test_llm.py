"""The LLM classifier against a server that misbehaves: everything is typed, and nothing is asked twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from tasks.models.llm.budget import Ledger
from tasks.models.llm.errors import LlmDenied
from tasks.parse.classify.llm import (
    ACCURACY,
    HybridClassifier,
    HybridPoint,
    LlmClassifier,
    Typing,
    hybrid_curve,
)
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import FragmentInContext
from tests.support.llm.llm_asking import FAULTS, classifier_of, fragments_of, llm_of, mischief
from tests.support.llm.llm_process import type_all
from tests.support.llm.llm_server import Asked, LlmServer, label_of
from tests.support.paths import PROJECT

FALLBACK = f"{LocalClassifier.name}:fallback"


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer() as running:
        yield running


def labels(typing: Typing) -> list[str]:
    return [row.typed.node_type for row in typing.rows]


def wanted(fragments: list[FragmentInContext]) -> list[str]:
    return [label_of(fragment.text) for fragment in fragments]


def test_fragments_of_a_document_are_asked_about_twenty_at_a_time(
    server: LlmServer, answers: Answers
) -> None:
    fragments = fragments_of(2, 45)
    classifier = classifier_of(server.url, answers)
    typing = classifier.type_all(fragments)
    assert labels(typing) == wanted(fragments)
    assert sorted(len(a.fragments) for a in server.asked) == [5, 5, 20, 20, 20, 20]
    assert all(len({f["headings"][0] for f in a.fragments}) == 1 for a in server.asked)
    assert {row.classifier for row in typing.rows} == {"classify-1@small-model"} == {classifier.name}
    assert {row.typed.confidence for row in typing.rows} == {ACCURACY}
    assert (typing.asked, typing.fallbacks, typing.partial) == (90, Counter(), False)
    assert classifier.classify(fragments) == [row.typed for row in typing.rows]
    assert server.requests == 6
    told: list[tuple[int, int]] = []
    classifier.type_all(fragments[:30], report=lambda *done: told.append(done))
    assert sorted(done for done, _ in told) in ([10, 30], [20, 30])
    assert {total for _, total in told} == {30}


def test_hundreds_of_fragments_are_all_typed_and_nothing_is_asked_twice(
    server: LlmServer, answers: Answers
) -> None:
    server.fault = mischief
    fragments = fragments_of(8, 50)
    ledger = Ledger()
    typing = classifier_of(server.url, answers, ledger).type_all(fragments)
    assert len(typing.rows) == 400
    by_model = [k for k, row in enumerate(typing.rows) if row.classifier != FALLBACK]
    assert [labels(typing)[k] for k in by_model] == [wanted(fragments)[k] for k in by_model]
    assert len(by_model) > 320
    assert sum(typing.fallbacks.values()) == 400 - len(by_model) == typing.fallbacks["rejected"]
    assert set(server.faults()) >= FAULTS
    assert set(server.answered().values()) == {1}
    counts = ledger.report()
    assert counts["requests"] == server.requests
    assert counts["answered"] == len(server.answered()) == counts["accepted"] + counts["rejected"]
    assert counts["requests"] == counts["answered"] + counts["retries"]
    sent, second = server.requests, Ledger()
    assert classifier_of(server.url, answers, second).type_all(fragments) == typing
    assert server.requests == sent
    assert second.report()["cached"] == counts["accepted"]
    assert second.report()["tokens"] == 0


def test_a_batch_that_stays_wrong_is_halved_down_to_one_and_then_typed_locally(
    server: LlmServer, answers: Answers
) -> None:
    fragments = fragments_of(1, 8)
    cursed = fragments[5].text
    server.fault = lambda asked: "extra" if cursed in asked.texts else None
    typing = classifier_of(server.url, answers).type_all(fragments)
    assert [row.classifier == FALLBACK for row in typing.rows] == [k == 5 for k in range(8)]
    assert typing.rows[5].typed == LocalClassifier().classify(fragments)[5]
    assert typing.fallbacks == Counter(rejected=1)
    assert (typing.partial, typing.unfinished) == (False, frozenset())
    assert Counter(len(asked.fragments) for asked in server.asked) == Counter({8: 2, 4: 3, 2: 3, 1: 3})


@pytest.mark.parametrize(
    ("fault", "reason"), [("overflow", "refused"), ("length", "rejected"), ("refused", "refused")]
)
def test_what_is_too_long_is_halved_without_asking_again(
    server: LlmServer, answers: Answers, fault: str, reason: str
) -> None:
    server.fault = lambda asked: fault if len(asked.fragments) > 5 else None
    fragments = fragments_of(1, 20)
    typing = classifier_of(server.url, answers).type_all(fragments)
    assert labels(typing) == wanted(fragments)
    first = [a for a in server.asked if "json_schema" in a.body.get("response_format", {})]
    sizes = Counter(len(asked.fragments) for asked in first)
    assert (sizes[10], sizes[5]) == (2, 4)
    server.fault = lambda _: fault
    typing = classifier_of(server.url, answers).type_all(fragments_of(2, 1)[1:])
    assert typing.fallbacks == Counter({reason: 1})


def test_a_denied_key_stops_at_once(server: LlmServer, answers: Answers) -> None:
    server.fault = lambda _: "401"
    with pytest.raises(LlmDenied):
        classifier_of(server.url, answers).type_all(fragments_of(10, 20))
    assert server.requests == 1


def test_documents_may_be_named_beside_their_fragments(server: LlmServer, answers: Answers) -> None:
    fragments = [replace(f, fragment_id=f"n{k}") for k, f in enumerate(fragments_of(1, 12))]
    named = ["market/bees"] * 5 + ["market/kilns"] * 5 + [None] * 2
    typing = classifier_of(server.url, answers).type_all(fragments, named)
    assert labels(typing) == wanted(fragments)
    assert sorted(len(asked.fragments) for asked in server.asked) == [2, 5, 5]
    # Equal documents share their answers, and either can be forgotten.
    copy = [replace(f, fragment_id=f"m{k}") for k, f in enumerate(fragments[:5])]
    assert labels(classifier_of(server.url, answers).type_all(copy, ["mirror/bees"] * 5)) == wanted(copy)
    assert server.requests == 3
    for name in ("market/kilns", "mirror/bees"):
        assert answers.forget(lambda doc_id, name=name: doc_id == name) == 1


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"accuracy": 1.0}])
def test_settings_out_of_range_are_refused(
    server: LlmServer, answers: Answers, wrong: dict[str, float]
) -> None:
    with pytest.raises(WrongInput):
        LlmClassifier(llm_of(server.url, answers), LocalClassifier(), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [0, 2, 4])
def test_only_what_the_local_classifier_is_unsure_of_is_sent(
    server: LlmServer, answers: Answers, rank: int
) -> None:
    local = LocalClassifier()
    texts = ["Run `make`.", "Honey.", "Never open the hive in rain.", "--depth: how deep", "Bees dance."]
    fragments = [FragmentInContext(f"m/b#{k}", (), "prose", None, t, None) for k, t in enumerate(texts)]
    sure = [typed.confidence for typed in local.classify(fragments)]
    assert len(set(sure)) == 5
    threshold = sorted(sure)[rank]
    unsure = [confidence < threshold for confidence in sure]
    hybrid = HybridClassifier(local, classifier_of(server.url, answers), threshold)
    typing = hybrid.type_all(fragments)
    assert [t for a in server.asked for t in a.texts] == [t for t, u in zip(texts, unsure, strict=True) if u]
    assert [row.classifier == "classify-1@small-model" for row in typing.rows] == unsure
    assert hybrid.classify(fragments) == [row.typed for row in typing.rows]
    assert typing.asked == rank


def test_the_curve_gives_the_share_sent_and_the_accuracy_of_all() -> None:
    fragments = [FragmentInContext(f"m/b#{k}", (), "prose", None, "Run it.", None) for k in range(2)]
    sure = LocalClassifier().classify(fragments)[0]
    local = [sure._replace(node_type="step", confidence=c) for c in (0.3, 0.6, 0.9, 0.95)]
    points = hybrid_curve(["param", "step", "step", "concept"], local, ["param"] * 4, [0.0, 0.5, 0.7, 1.0])
    assert points == [
        HybridPoint(0.0, 0.0, 0.5),
        HybridPoint(0.5, 0.25, 0.75),
        HybridPoint(0.7, 0.5, 0.5),
        HybridPoint(1.0, 1.0, 0.25),
    ]


AT_ONCE = 3


def fault(asked: Asked) -> str | None:
    """Fail some batches once on the way, and answer some wrongly each time."""
    kind = int(asked.key[:8], 16) % 8
    if asked.before == 0 and kind == 0:
        return "500"
    return {1: "short", 2: "no-json", 3: "prose"}.get(kind)


@pytest.mark.slow
def test_a_typing_killed_at_random_and_begun_again_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    kills, size = 3, (5, 40)
    with LlmServer(fault) as server:
        whole = type_all(tmp_path / "whole", server.url, *size)
        undisturbed = server.requests
    chance = random.Random(5)  # noqa: S311 - no secret
    with LlmServer(fault, delay=0.02) as server:
        place = [str(tmp_path / "killed"), server.url, *map(str, size)]
        command = [sys.executable, "-m", "tests.support.llm.llm_process", *place]
        struck = 0
        for stop in sorted(chance.sample(range(1, undisturbed), kills)):
            process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)
            while server.requests < stop + struck * AT_ONCE and process.poll() is None:
                time.sleep(0.002)
            struck += process.poll() is None
            process.kill()
            process.communicate()
        again = json.loads(subprocess.check_output(command, cwd=PROJECT))
        disturbed = server.requests
    assert struck >= kills - 1
    assert again["rows"] == json.loads(json.dumps(whole["rows"]))
    assert undisturbed <= disturbed <= undisturbed + struck * AT_ONCE
    assert 0 < again["report"]["requests"] < undisturbed
