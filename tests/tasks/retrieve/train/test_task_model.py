"""Training of the task model: it learns from requests, and what is packaged reads as the network does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.retrieve.compose.chain import BEGIN, counted
from tasks.retrieve.compose.task_model import TaskModel, packaged_model
from tasks.retrieve.train.step_lessons import batched, lessons
from tasks.retrieve.train.step_network import StepNetwork
from tasks.retrieve.train.task_model import Recipe, train_average, train_network, write_graph
from tasks.retrieve.train.written import WrittenRequest, read_written
from tests.support.paths import PROJECT


@pytest.fixture(scope="module")
def known() -> list[WrittenRequest]:
    return [request for request in read_written() if request.servers is not None][:12]


@pytest.fixture(scope="module")
def network(known: list[WrittenRequest]) -> StepNetwork:
    servers = sorted({d for request in known for own in request.servers or () for d in own})
    rows = {server: place for place, server in enumerate(servers)}
    vectors = np.eye(len(rows), 384, dtype=np.float32)
    recipe = Recipe(rank=8, epochs=20, batch=8, rate=4e-3, hidden=0.0, dropout=0.0)
    return train_network(lessons(known, rows), vectors, recipe)


def test_what_was_trained_knows_its_requests_as_the_packaged_form_reads_them(
    known: list[WrittenRequest], network: StepNetwork
) -> None:
    model = TaskModel(network.arrays())
    right = []
    for request in known:
        found = counted(model.labels(model.read(request.text)), model.moves, 8)
        right.append(found.likeliest() == len(request.steps))

    assert np.mean(right) > 0.8


def test_the_network_and_the_packaged_form_give_the_same_scores(
    known: list[WrittenRequest], network: StepNetwork
) -> None:
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


def test_the_packaged_graph_is_the_one_that_is_written(tmp_path: Path) -> None:
    write_graph(tmp_path / "graph.onnx")

    packaged = PROJECT / "tasks" / "models" / "data" / "adapted-1.onnx"
    assert (tmp_path / "graph.onnx").read_bytes() == packaged.read_bytes()
