from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from storage.errors import WrongInput
from tasks.models.onnx_export import GRAPHS
from tasks.retrieve.compose.local import BEGIN, INSIDE, OUT, counted
from tasks.retrieve.compose.ranking import fitted
from tasks.retrieve.compose.task_model import BACKWARD, NEITHER, ONWARD, TaskModel, packaged_model
from tasks.train.compose.task_model import (
    Recipe,
    WrittenRequest,
    batched,
    lessons,
    read_written,
    train_average,
    train_network,
    write_graph,
)
from tasks.train.compose.training import FEATURES, fit, held_out, labelled_pairs, report, told, train_pairs
from tasks.train.networks import encoder_graph
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot


@pytest.fixture(scope="module")
def known() -> list[WrittenRequest]:
    return [request for request in read_written() if request.servers is not None][:12]


def test_the_network_and_the_packaged_form_give_the_same_scores(known: list[WrittenRequest]) -> None:
    recipe = Recipe(rank=2, epochs=1, batch=4, rate=3e-3)
    network = train_network(lessons(known[:8], {}), np.eye(1, 384, dtype=np.float32), recipe)
    (lesson,) = lessons(known[:1], {})
    with torch.no_grad():
        words = network.words(batched([lesson], 0.0))[0]
        scores = network.label(words).numpy()
    model = TaskModel(network.arrays())
    # The network reads in 16 bits here.
    assert np.abs(model.labels(model.read(known[0].text)) - scores).max() < 0.2


def test_the_mean_of_two_orders_is_between_what_each_gives(known: list[WrittenRequest]) -> None:
    given, vectors = lessons(known[:8], {}), np.eye(1, 384, dtype=np.float32)
    recipe = Recipe(rank=2, epochs=1, batch=4, rate=3e-3)
    mean = train_average(given, vectors, recipe, 2)["label.w"].astype(np.float32)
    each = [train_network(given, vectors, replace(recipe, order=n)).arrays()["label.w"] for n in (0, 1)]
    assert not np.array_equal(*each)
    assert np.allclose(mean, np.mean([one.astype(np.float32) for one in each], axis=0), atol=1e-3)


def test_the_packaged_model_finds_the_steps_of_plain_requests() -> None:
    model = packaged_model()
    reading = model.read("Count the open orders in the shop, write them to a sheet and mail it to Ida.")
    found = counted(model.labels(reading), model.moves, 8)
    assert found.labels(found.likeliest()).count(BEGIN) == 3


def test_the_packaged_graphs_and_features_are_those_that_are_written(tmp_path: Path) -> None:
    models = PROJECT / "tasks" / "models"
    write_graph(tmp_path / "graph.onnx")
    assert (tmp_path / "graph.onnx").read_bytes() == (models / "data" / "adapted-1.onnx").read_bytes()
    for name, file in GRAPHS.items():
        assert encoder_graph(name) == (models / file).read_bytes()
    assert {model: tuple(weights) for model, weights in fitted().items()} == FEATURES


def test_pairs_of_steps_are_told_by_their_words() -> None:
    names, labels = labelled_pairs(read_written()[:150])
    model = train_pairs(names, labels)
    guessed = [int(np.argmax(model.shares(own))) for own in names]
    assert np.mean(np.array(guessed) == np.array(labels)) > np.mean(np.array(labels) == 1)


def test_the_packaged_requests_mark_parts_of_their_texts() -> None:
    for request in read_written():
        marked = sorted(span for spans in request.steps for span in spans)
        assert all(0 <= a < b <= len(request.text) for a, b in marked)
        assert all(one[1] <= other[0] for one, other in pairwise(marked)), request.text
        assert all(a != b and max(a, b) < len(request.steps) for a, b in request.edges)
        assert request.servers is None or len(request.servers) == len(request.steps)


def test_a_lesson_labels_words_and_pairs_in_the_order_in_which_they_are_told() -> None:
    text = "My oven is new. Brew tea once you bake bread."
    request = WrittenRequest(
        text, (((30, 44),), ((16, 24),)), ((0, 1),), (frozenset({"b"}), frozenset({"t"}))
    )
    (lesson,) = lessons([request], {"t": 4, "b": 7})
    assert lesson.labels == [OUT] * 5 + [BEGIN, INSIDE, OUT, BEGIN, INSIDE, INSIDE, OUT]
    assert lesson.pairs == [BACKWARD]
    assert lesson.served == [[4], [7]]


def test_pairs_follow_from_others_and_independent_steps_need_nothing() -> None:
    text = "one two three four"
    steps = (((0, 3),), ((4, 7),), ((8, 13),), ((14, 18),))
    (lesson,) = lessons([WrittenRequest(text, steps, ((0, 1), (1, 2)))], {})
    assert lesson.pairs == [ONWARD, ONWARD, NEITHER, ONWARD, NEITHER, NEITHER]
    assert lesson.served is None


def test_requests_that_are_not_there_say_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"none\.jsonl is not there: it comes with Skillery's source tree"):
        read_written(tmp_path / "none.jsonl")


WORK = {
    "bread": "bake rye bread",
    "bees": "treat the hive for mites",
    "bike": "patch a tyre",
    "tea": "brew tea",
}


def asked(first: str, second: str, group: int) -> WrittenRequest:
    """Return a request of two steps, the first of which is needed by the second."""
    text = f"Please {WORK[first]}, and after that {WORK[second]}."
    spans = [((text.index(step), text.index(step) + len(step)),) for step in (WORK[first], WORK[second])]
    servers = tuple(frozenset({f"local/market/{name}"}) for name in (first, second))
    return WrittenRequest(text, tuple(spans), ((0, 1),), servers, group)


def test_what_is_fitted_on_answers_is_told_with_how_well_it_does(served_bakery: SkillRoot) -> None:
    requests = [asked(a, b, k) for k, (a, b) in enumerate(permutations(WORK, 2))]
    with served_bakery.ask().version() as now:
        found = held_out(requests, now, Recipe(rank=2, epochs=2, batch=4), folds=2)
    answers = [answer for own in found for answer in own]
    assert (len(found), len(answers)) == (2, len(requests))
    assert all(len(answer.rows) == 2 and answer.rows[0].right.any() for answer in answers)
    # A step whose server was taken out is gone, and nothing is right for it.
    gone = [step for answer in answers for step in answer.found if step.gone]
    assert gone
    assert not any(step.right.any() or step.served for step in gone)
    assert {model: tuple(held) for model, held in told(fit(answers)).items()} == FEATURES
    shares = report(found)
    assert 0.25 < float(shares["hit@1"] or 0) <= shares["hit@10"] == 1
    assert all(value is None or 0 <= value <= 1 for value in shares.values())
