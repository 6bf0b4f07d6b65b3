from __future__ import annotations

import pickle

import pytest

from tasks.models.llm.budget import Ceiling, Ledger, Prices, Usage
from tasks.models.llm.errors import BudgetSpent


def test_a_ledger_goes_on_where_an_earlier_part_of_the_run_ended() -> None:
    first = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000))
    first.spend(Usage(600, 100))
    second = Ledger(Prices(prompt=1.0), Ceiling(tokens=1_000), pickle.loads(pickle.dumps(first.carried())))  # noqa: S301 - our own bytes
    assert second.report() == first.report()
    reserved = second.reserve(300, 50)
    assert reserved is not None
    second.release(reserved)
    with pytest.raises(BudgetSpent, match="700 tokens"):
        second.reserve(3_000, 100)
    assert first.tokens == 700


@pytest.mark.parametrize("field", ["spent", "unanswered"])
def test_what_ended_the_asking_ends_it_in_later_parts_too(field: str) -> None:
    first = Ledger()
    setattr(first, field, True)
    assert getattr(Ledger(before=first.carried()), field)


def test_what_fits_alone_but_not_beside_others_is_to_wait_for_them() -> None:
    ledger = Ledger(ceiling=Ceiling(tokens=250))
    first = ledger.reserve(0, 149)
    assert first is not None
    assert ledger.reserve(0, 149) is None
    assert not ledger.spent
    ledger.release(first)
    assert ledger.reserve(0, 149) is not None


def test_what_was_carried_does_not_change_afterwards() -> None:
    ledger = Ledger()
    carried = ledger.carried()
    ledger.spend(Usage(1, 1))
    assert carried.counts == {}
