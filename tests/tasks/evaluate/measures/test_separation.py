from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate.measures import separation as module
from tasks.evaluate.measures.separation import ClusteredScores, separation
from tasks.evaluate.measures.statistics import auroc

SCORES = st.lists(st.tuples(st.floats(-5, 5), st.sampled_from("abc")), min_size=1, max_size=12)


def scored(*scores: float, clusters: str = "") -> ClusteredScores:
    return ClusteredScores(scores, clusters or "abcdefghijklmnopqrstuvwxyz"[: len(scores)])


def test_scores_that_do_not_overlap_route_no_unserved_query() -> None:
    found = separation(scored(2.0, 3.0, 4.0), scored(0.0, 1.0))

    assert found is not None
    assert (found["auroc"], found["false_route_rate"], found["threshold"]) == (1.0, 0.0, 2.0)
    assert found["ci95"] == {"auroc": [1.0, 1.0], "false_route_rate": [0.0, 0.0]}


def test_the_threshold_is_the_highest_that_routes_the_share_asked_for() -> None:
    served, unserved = scored(1.0, 2.0, 3.0, 4.0), scored(0.5, 1.5, 2.5, 3.5)

    found = [separation(served, unserved, recall) for recall in (0.25, 0.5, 0.51, 0.75, 1.0)]

    assert [one and one["threshold"] for one in found] == [4.0, 3.0, 2.0, 2.0, 1.0]
    assert [one and one["false_route_rate"] for one in found] == [0.0, 0.25, 0.5, 0.5, 0.75]


def test_a_share_that_floats_do_not_hold_exactly_asks_for_no_query_more() -> None:
    # 0.07 times 100 is a little more than 7 in floats.
    found = separation(scored(*range(100), clusters="a" * 100), scored(-1.0), 0.07)

    assert found is not None
    assert found["threshold"] == 93.0


def test_a_score_on_the_threshold_is_routed() -> None:
    found = separation(scored(1.0, 1.0), scored(1.0, 0.0))

    assert found is not None
    assert (found["false_route_rate"], found["auroc"]) == (0.5, 0.75)


def test_without_queries_of_either_side_there_is_nothing_to_tell_apart() -> None:
    assert separation(scored(1.0), scored()) is None
    assert separation(scored(), scored(1.0)) is None


def test_intervals_draw_whole_clusters_with_both_their_sides() -> None:
    served = ClusteredScores([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"])
    unserved = ClusteredScores([0.5, 0.5], ["a", "b"])

    found = separation(served, unserved)

    assert found is not None
    # Of a alone each pair is right, of b alone none: either is drawn in one resample of four.
    assert found["ci95"]["auroc"] == [0.0, 1.0]


def test_a_resample_without_one_side_does_not_count() -> None:
    found = separation(ClusteredScores([1.0], ["a"]), ClusteredScores([0.0], ["b"]))

    assert found is not None
    assert found["ci95"]["auroc"] == [1.0, 1.0]


def test_weighing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    served, unserved = scored(0.1, 0.4, 0.3, 0.9), scored(0.2, 0.35, 0.1)
    whole = separation(served, unserved)
    monkeypatch.setattr(module, "_BLOCK", 2500)

    assert separation(served, unserved) == whole


def test_resampled_areas_and_rates_are_those_of_the_queries_drawn() -> None:
    random = np.random.default_rng(1)
    high, low = random.normal(1, 1, 30).round(1), random.normal(0, 1, 20).round(1)
    of_high, of_low = random.integers(0, 4, 30), random.integers(0, 4, 20)
    times = np.array([2, 0, 1, 1])
    drawn = np.repeat(high, times[of_high]), np.repeat(low, times[of_low])

    wins = module._wins(high, low, of_high, of_low, 4)
    pairs = (times @ np.bincount(of_high, minlength=4)) * (times @ np.bincount(of_low, minlength=4))
    (threshold,), (rate,) = module._routed(high, low, times[of_high][None], times[of_low][None], 0.9)

    assert times @ wins @ times / pairs == pytest.approx(auroc(drawn[0].tolist(), drawn[1].tolist()))
    assert np.mean(drawn[0] >= threshold) >= 0.9 > np.mean(drawn[0] > threshold)
    assert rate == pytest.approx(np.mean(drawn[1] >= threshold))


@settings(max_examples=20, deadline=None)
@given(SCORES, SCORES, st.floats(0.05, 1))
def test_at_least_the_share_is_routed_and_no_higher_score_would_do(
    served: list[tuple[float, str]], unserved: list[tuple[float, str]], recall: float
) -> None:
    found = separation(
        ClusteredScores([s for s, _ in served], [c for _, c in served]),
        ClusteredScores([s for s, _ in unserved], [c for _, c in unserved]),
        recall,
    )

    assert found is not None
    routed = [s >= found["threshold"] for s, _ in served]
    higher = [s > found["threshold"] for s, _ in served]
    assert np.mean(routed) >= recall - 1e-9
    assert np.mean(higher) < recall
    for low, high in found["ci95"].values():
        assert 0 <= low <= high <= 1
