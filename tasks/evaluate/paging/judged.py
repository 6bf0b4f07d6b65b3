"""Judged contexts: an LLM's verdicts beside evidence and people's labels, and a sample for people to label.

The sample is stratified as SkillPager's validation (section 4.2).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from storage.errors import TransientError
from tasks.evaluate.judge.judge import VOTES, Case, Label, Verdict, agreement, judge
from tasks.evaluate.judge.label_form import Pair
from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.evaluate.measures.statistics import bootstrap_interval
from tasks.evaluate.paging.outcomes import Outcome, Setting, by_evidence, rows_of
from tasks.models.llm.ask import Llm

Speaker = Literal["evidence", "llm", "both"]
Measured = Mapping[Setting, Sequence[Outcome]]


class NothingJudged(TransientError):
    """A language model was to judge, and has said nothing that could be used."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on everything measured, setting by setting, in the order of the queries."""

    of: Mapping[Setting, Sequence[Verdict]]
    failed: Mapping[str, int]

    def patterns(self) -> dict[str, int]:
        """Return how often votes were split in which way."""
        return dict(Counter(v.pattern for verdicts in self.of.values() for v in verdicts).most_common())


def judge_measured(
    measured: Measured,
    queries: Sequence[EvidenceQuery],
    llm: Llm,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Verdicts:
    """Ask a language model to judge every context, equal ones once.

    Outcomes hold their contexts, one for each query, in the order of the queries. `report` is called with the
    contexts done and their total.

    Raises:
        LlmDenied: The server lets nobody in, or has no such model.
        NothingJudged: No context has a verdict: the budget was spent, or the server silent, before one had.
    """
    text = {query.query_id: query.query for query in queries}
    cases = [Case(o.doc_id, text[o.query_id], o.context) for found in measured.values() for o in found]
    judged = judge(llm, cases, report)
    if all(verdict.sufficient is None for verdict in judged.verdicts):
        why = ", ".join(f"{reason} {n}" for reason, n in judged.failed.items())
        msg = f"the LLM judged none of {len(cases)} contexts (votes that failed: {why}); see its settings"
        raise NothingJudged(msg)
    verdicts = iter(judged.verdicts)
    return Verdicts({s: [next(verdicts) for _ in found] for s, found in measured.items()}, judged.failed)


def judged_rows(measured: Measured, verdicts: Verdicts, speaker: Speaker) -> list[dict[str, Any]]:
    """Return a row for each method and budget, with what the language model says under `llm`.

    If the speaker is `llm`, the row's own `sufficient` is the model's too, over the contexts that it judged;
    rows of which it judged none are left out.
    """
    settings = [s for s in measured if speaker != "llm" or _judged(measured[s], verdicts.of[s])]
    shown: Measured = measured
    if speaker == "llm":
        shown = {s: [o for o, _ in _judged(measured[s], verdicts.of[s])] for s in settings}
    rows = rows_of({s: shown[s] for s in settings})
    said = [_said(measured[s], verdicts.of[s]) for s in settings]
    return [{**row, "llm": llm} for row, llm in zip(rows, said, strict=True)]


def compare_judges(
    measured: Measured, verdicts: Verdicts | None, labels: Sequence[Label]
) -> dict[str, dict[str, Any]]:
    """Return how judges agree, as `agreement` has it, by vote pattern if the language model is one of them.

    Of `evidence_llm`, `people_evidence` and `people_llm` (the first named is `a`) those with cases.
    `verdicts` None: the model did not judge. `labels` are of people, each on a context that was measured.
    """
    judged = [] if verdicts is None else [p for s in measured for p in _judged(measured[s], verdicts.of[s])]
    found = {}
    if pairs := [(e, bool(o.verdict), v) for o, v in judged if (e := by_evidence(o)) is not None]:
        evidence, said_by_llm, patterns = (list(column) for column in zip(*pairs, strict=True))
        found["evidence_llm"] = agreement(evidence, said_by_llm, patterns)
    said = {label.key: label.sufficient for label in labels}
    seen = [(said[k], o) for s in measured for o in measured[s] if (k := (o.query_id, *s)) in said]
    if shown := [(x, e) for x, o in seen if (e := by_evidence(o)) is not None]:
        found["people_evidence"] = agreement([x for x, _ in shown], [e for _, e in shown])
    both = [
        (said[key], bool(o.verdict), pattern)
        for s in (measured if verdicts is not None else {})
        for o, pattern in _judged(measured[s], verdicts.of[s] if verdicts else ())
        if (key := (o.query_id, *s)) in said
    ]
    if both:
        people, model, patterns = (list(column) for column in zip(*both, strict=True))
        found["people_llm"] = agreement(people, model, patterns)
    return found


def with_verdicts(measured: Measured, verdicts: Verdicts) -> Measured:
    """Return outcomes with the verdict of each that was judged."""
    return {
        s: [replace(o, verdict=v.sufficient) for o, v in zip(measured[s], verdicts.of[s], strict=True)]
        for s in measured
    }


def _judged(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> list[tuple[Outcome, str]]:
    """Return the outcomes with a verdict, which now decides, and how its votes were split."""
    pairs = zip(outcomes, verdicts, strict=True)
    return [(replace(o, verdict=v.sufficient), v.pattern) for o, v in pairs if v.sufficient is not None]


def _said(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    judged = _judged(outcomes, verdicts)
    values = [float(bool(outcome.verdict)) for outcome, _ in judged]
    return {
        "queries": len(judged),
        "unjudged": len(outcomes) - len(judged),
        "sufficient": sum(values) / len(values) if values else None,
        "ci95": list(bootstrap_interval(values)) if values else None,
        "patterns": dict(Counter(pattern for _, pattern in judged).most_common()),
    }


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
    measured: Measured, verdicts: Verdicts, queries: Sequence[EvidenceQuery], settings: Sequence[Setting],
    seed: int = SEED,
) -> LabelSample:  # fmt: skip
    """Draw the pairs that validate a judge: six of every method, verdict and pattern of votes, by a seed.

    Contexts with fewer than three votes are not drawn; a cell with fewer pairs gives all that it has.
    """
    text: Mapping[str, str] = {query.query_id: query.query for query in queries}
    pairs: list[Pair] = []
    cells = []
    for setting, verdict, pattern in product(settings, (True, False), _PATTERNS):
        held = list(_cell(measured[setting], verdicts.of[setting], verdict, pattern))
        chance = random.Random(f"{seed} {setting} {verdict} {pattern}")  # noqa: S311 (a sample, no secret)
        drawn = chance.sample(held, min(EACH, len(held)))
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
