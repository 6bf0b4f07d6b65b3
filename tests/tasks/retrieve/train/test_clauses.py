"""Training of the local decomposer: it learns labels, and what it writes is read back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.compose.decompose.chain import BEGIN, OUT
from tasks.retrieve.compose.decompose.clauses import clauses
from tasks.retrieve.compose.decompose.local import FILE, LocalDecomposer, packaged_models
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.dependencies import ordered, packaged_pairs
from tasks.retrieve.train.clause_chain import Penalties
from tasks.retrieve.train.clauses import WrittenRequest, labels_of, read_requests, save, train
from tasks.retrieve.train.dependencies import labelled_pairs, train_pairs
from tests.support.roots.skill_root import SkillRoot


@pytest.fixture(scope="module")
def requests_() -> list[WrittenRequest]:
    return read_requests()[:30]


def test_the_packaged_requests_mark_parts_of_their_texts() -> None:
    for request in read_requests():
        spans = sorted(span for spans in request.steps for span in spans)
        assert all(0 <= a < b <= len(request.text) for a, b in spans)
        assert all(one[1] <= other[0] for one, other in pairwise(spans)), request.text
        assert all(max(edge) < len(request.steps) for edge in request.edges)


def test_labels_follow_the_steps_of_a_request() -> None:
    text = "My oven is new. Bake bread, then brew tea."
    request = WrittenRequest(text, (((16, 26),), ((33, 41),)), ((0, 1),))

    assert labels_of(request, clauses(text)) == [OUT, BEGIN, BEGIN]


def test_what_was_trained_is_read_back_and_knows_its_requests(
    requests_: list[WrittenRequest], served_bakery: SkillRoot, minilm: OnnxEncoder, tmp_path: Path
) -> None:
    _, router = served_bakery.ask().read(lambda now: now.searcher().router)
    save(train(requests_, router, minilm, Penalties(0.5, 1.0, axes=8)), tmp_path / "weights.npz")
    local = LocalDecomposer(minilm, models=packaged_models(tmp_path / "weights.npz"))

    right = [len(local.decompose(r.text, None, Matcher(router)).steps) == len(r.steps) for r in requests_]

    assert np.mean(right) > 0.8


def test_dependencies_are_learnt_and_packaged(requests_: list[WrittenRequest]) -> None:
    names, labels = labelled_pairs(requests_)
    model = train_pairs(names, labels)
    guessed = [int(np.argmax(model.shares(own))) for own in names]

    assert np.mean(np.array(guessed) == np.array(labels)) > np.mean(np.array(labels) == 1)
    assert packaged_pairs().weights
    assert FILE.stat().st_size < 500_000
    assert ordered("", []).order == ()
