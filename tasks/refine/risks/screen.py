"""Screens many texts in one pass for the rules that can hit them at all, because most rules hit few."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tasks.refine.risks.rules import RiskRule, RiskRules

Region = tuple[int, int]
# A match stands around one of its literals; no pattern reaches further than this.
_BEFORE, _AFTER, _STEP = 400, 600, 200


class Screened:
    """The rules that may hit one text, and the literals of theirs that it holds."""

    def __init__(self, literals: frozenset[str], rules: tuple[RiskRule, ...]) -> None:
        self.rules = rules
        self._literals = literals

    def windows(self, rule: RiskRule, text: str) -> list[Region]:
        """Return the parts of a text, in order and apart, outside of which the rule cannot hit.

        Of literals closer than 200 characters the first stands for all, so that a text full of them costs
        no more than one read.
        """
        if rule.screen:
            return [(0, len(text))]
        found = []
        for literal in self._literals.intersection(rule.literals):
            at = text.find(literal)
            while at >= 0:
                found.append((max(0, at - _BEFORE), min(len(text), at + _AFTER)))
                at = text.find(literal, at + _STEP)
        return merged(found)


def merged(regions: list[Region]) -> list[Region]:
    """Return regions in order, those that overlap or touch made one."""
    apart: list[Region] = []
    for start, end in sorted(regions):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def screened(texts: Sequence[str], rules: RiskRules) -> list[Screened]:
    """Return what may hit each text: literals by one Aho-Corasick automaton, screens by regular expressions.

    Args:
        texts: In lower case; a batch of some hundred at a time keeps memory low.
        rules: To choose from.
    """
    column = pl.Series(texts, dtype=pl.String)
    literals = sorted({literal for rule in rules.rules for literal in rule.literals})
    held = column.str.extract_many(literals, overlapping=True).list.unique().to_list()
    passed = {rule.id: column.str.contains(rule.screen).to_list() for rule in rules.rules if rule.screen}
    screened_texts = []
    for i, found in enumerate(held):
        present = frozenset(found)
        worth = (
            r for r in rules.rules if (passed[r.id][i] if r.screen else present.intersection(r.literals))
        )
        screened_texts.append(Screened(present, tuple(worth)))
    return screened_texts
