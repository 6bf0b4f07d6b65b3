"""Weights of suggested skills: what they are fitted to, and that they find what serves in another domain."""

from __future__ import annotations

from functools import partial

import numpy as np

from tasks.evaluate.stream.report import decision_means
from tasks.evaluate.stream.walk import Stream
from tasks.retrieve.suggest.methods import default
from tasks.train.suggested import fit, use_choices
from tests.support.induce.runs import add_bed, mooring
from tests.support.models.word_models import WordEncoder

ENCODE = WordEncoder().encode
BEDS = [add_bed(f"g{n}", f"t{n}", bed) for n, bed in enumerate(("Palm house", "Herb wall", "Fern bank"))]
BOATS = [mooring(f"h{n}", f"t{n}", boat) for n, boat in enumerate(("Petrel", "Auk", "Tern"))]


def test_each_step_gives_a_choice_among_the_uses_of_other_tasks() -> None:
    found = use_choices([*BEDS, *BOATS, mooring("h9", "t0", "Skua")], ENCODE)
    assert set(found) == {run.domain for run in (*BEDS, *BOATS)}
    for one in (choice for own in found.values() for choice in own):
        assert one.features.shape == (len(one.right), 4)
        assert one.right.any()
        assert np.abs(one.features).max() <= 1 + 1e-6
    # The first run of a domain can be offered nothing; the last is of the task of the first.
    (domain,) = others = use_choices([*BOATS, mooring("h9", "t9", "Skua")], ENCODE)
    assert found[domain][-1].right.size < others[domain][-1].right.size


def test_weights_of_one_domain_find_what_serves_in_another() -> None:
    found = use_choices([*BEDS, *BOATS], ENCODE)
    weights = fit(found[BEDS[0].domain])
    assert weights == fit(found[BEDS[0].domain])
    walked = Stream(ENCODE).walk(BOATS, {"": partial(default, weights=weights)})
    means = decision_means([decision for _, decision in walked])
    assert means["usable@5"] == means["reachable"] > 0
