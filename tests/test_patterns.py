"""Patterns that meet text of others: none takes more than linear time."""

from __future__ import annotations

import re

import pytest

from tests.support.patterns import MOST, collected, growth_of


@pytest.mark.slow
def test_no_pattern_takes_more_than_linear_time() -> None:
    worst = {(place, pattern.pattern): growth_of(pattern) for pattern, place in collected().items()}
    assert len(worst) > 400
    assert not {place: found for place, found in worst.items() if found.ratio > MOST}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [r"\s+x", r"^.*\|.*\|$", r"<[^>]*>"])
def test_a_pattern_that_takes_more_is_found(pattern: str) -> None:
    assert growth_of(re.compile(pattern), 400).ratio > MOST
