"""How the marketplace on loopback decides which request meets a fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.marketplace.faults import TRANSIENT, Fault, FaultKind, Faults


def drawn(faults: Faults, urls: int, times: int) -> list[list[FaultKind | None]]:
    tries = [[faults.next("api", f"/u{url}", "") for _ in range(times)] for url in range(urls)]
    return [[fault.kind if fault else None for fault in row] for row in tries]


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_a_rate_is_kept_and_a_seed_repeats_itself(rate: float) -> None:
    rows = drawn(Faults(rate, seed=5), 4_000, 1)
    kinds = Counter(kind for (kind,) in rows if kind)

    assert kinds.total() / 4_000 == pytest.approx(rate, abs=0.02)
    assert set(kinds) == set(TRANSIENT)
    assert rows == drawn(Faults(rate, seed=5), 4_000, 1)
    assert rows != drawn(Faults(rate, seed=6), 4_000, 1)


@pytest.mark.parametrize("most", [1, 2])
def test_three_tries_always_suffice(most: int) -> None:
    rows = drawn(Faults(0.9, kinds=["500"], most_in_a_row=most), 50, 30)

    runs = ["".join("x" if kind else " " for kind in row).split() for row in rows]
    assert max(len(run) for row in runs for run in row) == most


def test_a_script_comes_first_and_the_rate_goes_on_after_it() -> None:
    faults = Faults(1.0, kinds=["502"])
    faults.script("api:/a", [Fault("html"), Fault("none")])

    met = [faults.next("api", "/a", "x=1") for _ in range(4)]

    assert [fault.kind if fault else None for fault in met] == ["html", None, "502", "502"]
