from __future__ import annotations

from collections import Counter

from tasks.evaluate.judge.judge import Verdict
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.judged import Verdicts
from tasks.evaluate.paging.label_sample import SAMPLED, LabelSample, draw_label_sample
from tasks.evaluate.paging.outcomes import Outcome

QUERIES = [EvidenceQuery(f"q{n}", "mill", f"How, case {n}?", (("crank",),)) for n in range(40)]
SETTINGS: list[tuple[str, float | None]] = [(method, None) for method in SAMPLED]
MEASURED = {
    (method, None): [
        Outcome(1.0, 10, 100, 1, 1.0, query_id=q.query_id, context=f"{method} {q.query_id}") for q in QUERIES
    ]
    for method in SAMPLED
}
_YES_AND_NO = ((True,) * 3, (True, False, True), (False, True, False), (False,) * 3, (True, True))
VOTES = [Verdict(votes) for votes in _YES_AND_NO]
VERDICTS = Verdicts({s: [VOTES[n % 5] for n in range(len(QUERIES))] for s in SETTINGS}, {})


def drawn(seed: int = 42, verdicts: Verdicts = VERDICTS) -> LabelSample:
    return draw_label_sample(MEASURED, verdicts, QUERIES, SETTINGS, seed=seed)


def test_the_papers_96_pairs_are_six_of_each_method_verdict_and_pattern() -> None:
    sample = drawn()

    assert len(sample.pairs) == len(set(sample.pairs)) == 96
    assert len(sample.cells) == 16
    assert {(cell["found"], cell["drawn"]) for cell in sample.cells} == {(8, 6)}
    assert Counter(pair.method for pair in sample.pairs) == dict.fromkeys(SAMPLED, 24)
    # Votes that are too few to tell are in no cell.
    assert not {pair.query_id for pair in sample.pairs} & {f"q{n}" for n in range(4, 40, 5)}
    assert all(pair.context == f"{pair.method} {pair.query_id}" for pair in sample.pairs)


def test_the_order_does_not_tell_the_cell_and_the_seed_decides() -> None:
    assert drawn() == drawn()
    assert drawn().pairs != drawn(seed=1).pairs
    assert len({pair.method for pair in drawn().pairs[:24]}) > 1


def test_a_cell_with_fewer_gives_all_and_says_so() -> None:
    few = Verdicts({**VERDICTS.of, SETTINGS[0]: [VOTES[0]] * 39 + [VOTES[1]]}, {})

    cells = [cell for cell in drawn(verdicts=few).cells if cell["method"] == SAMPLED[0]]

    assert [(c["sufficient"], c["votes"], c["found"], c["drawn"]) for c in cells] == [
        (True, "3-0", 39, 6),
        (True, "2-1", 1, 1),
        (False, "3-0", 0, 0),
        (False, "2-1", 0, 0),
    ]
