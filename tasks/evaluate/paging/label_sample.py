"""The sample of judged contexts that people label, stratified as SkillPager's validation (section 4.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tasks.evaluate.judge.judge import VOTES, Verdict
from tasks.evaluate.judge.label_form import Pair
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.paging.bench import Setting
from tasks.evaluate.paging.judged import Measured, Verdicts
from tasks.evaluate.paging.outcomes import Outcome

# The four of the paper's table 4 that select; with 2 verdicts, 2 vote patterns and 6 each these are 96 pairs.
SAMPLED = ("skillpager", "top-k-dependency", "greedy-graph", "chunks")
EACH = 6
SEED = 42
_PATTERNS = (f"{VOTES}-0", f"{VOTES - 1}-1")


@dataclass(frozen=True, slots=True)
class LabelSample:
    """The pairs drawn, in an order that tells nothing, and a row a cell: what was found, and what drawn."""

    pairs: list[Pair]
    cells: list[dict[str, Any]]


def draw_label_sample(
    measured: Measured,
    verdicts: Verdicts,
    queries: Sequence[EvidenceQuery],
    settings: Sequence[Setting],
    *,
    each: int = EACH,
    seed: int = SEED,
) -> LabelSample:
    """Draw the pairs that validate a judge: equally many of each method, verdict and pattern of votes.

    Args:
        measured: Outcomes with their contexts.
        verdicts: What the language model said of them; those with fewer than three votes are not drawn.
        queries: In the outcomes' order.
        settings: The methods and budgets to draw from.
        each: Pairs of each cell; a cell with fewer gives all that it has.
        seed: Decides what is drawn, and in which order.
    """
    text: Mapping[str, str] = {query.query_id: query.query for query in queries}
    pairs: list[Pair] = []
    cells = []
    for setting, verdict, pattern in product(settings, (True, False), _PATTERNS):
        held = list(_cell(measured[setting], verdicts.of[setting], verdict, pattern))
        chance = random.Random(f"{seed} {setting} {verdict} {pattern}")  # noqa: S311 (a sample, no secret)
        drawn = chance.sample(held, min(each, len(held)))
        pairs += [Pair(o.query_id, *setting, text[o.query_id], o.context) for o in drawn]
        cells.append(
            {
                "method": setting[0], "budget": setting[1], "sufficient": verdict, "votes": pattern,
                "found": len(held), "drawn": len(drawn),
            }
        )  # fmt: skip
    random.Random(seed).shuffle(pairs)  # noqa: S311 (as above)
    return LabelSample(pairs, cells)


def _cell(
    outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], sufficient: bool, pattern: str
) -> Iterator[Outcome]:
    for outcome, verdict in zip(outcomes, verdicts, strict=True):
        if verdict.sufficient is sufficient and verdict.pattern == pattern:
            yield outcome
