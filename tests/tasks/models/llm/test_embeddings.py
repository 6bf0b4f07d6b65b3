"""An encoder that an endpoint serves: its vectors are unit, its tokens are counted up to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tasks.models.llm.budget import Ceiling, Ledger, Prices
from tasks.models.llm.client import Endpoint
from tasks.models.llm.embeddings import ApiEncoder
from tasks.models.llm.errors import BudgetSpent, LlmDenied
from tests.support.llm.llm_server import LlmServer


@pytest.fixture(scope="module")
def server() -> Iterator[LlmServer]:
    with LlmServer() as running:
        yield running


def encoder(server: LlmServer, ledger: Ledger, name: str = "letters") -> ApiEncoder:
    return ApiEncoder(Endpoint(server.url, "m", api_key="sk-hush"), name, ledger)


def test_its_vectors_are_unit_in_the_order_of_the_texts_and_cost_what_their_tokens_do(
    server: LlmServer,
) -> None:
    ledger = Ledger(Prices(prompt=1000))
    found = encoder(server, ledger).encode(["b" * 99, "", "c" * 99])
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    assert found.argmax(axis=1).tolist() == [1, 0, 2]
    assert (ledger.counts["requests"], ledger.tokens) == (1, 67)  # guessed: this server does not count
    assert ledger.cost == pytest.approx(0.067)
    assert ledger.counts["tokens_guessed"] == 67


def test_what_passes_the_ceiling_is_not_asked(server: LlmServer) -> None:
    ledger, before = Ledger(Prices(prompt=1e6), Ceiling(money=50)), len(server.embedded)
    asking = encoder(server, ledger)
    asking.encode(["a" * 99])
    with pytest.raises(BudgetSpent, match="34 tokens and 34"):
        asking.encode(["a" * 99])
    assert len(server.embedded) == before + 1


def test_a_model_that_is_not_there_is_told_and_costs_nothing(server: LlmServer) -> None:
    ledger = Ledger()
    with pytest.raises(LlmDenied, match="no such model"):
        encoder(server, ledger, "figures").encode(["a"])
    assert (ledger.tokens, +ledger._under_way) == (0, {})
