"""Screens many texts in one pass for the rules that can hit them: most rules hit few texts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tasks.refine.risks.rules import RiskRule, RiskRules

Region = tuple[int, int]
# How far a match extends before and after one of its literals at most, and the least distance of two literals
# that each get a window, in characters.
_BEFORE, _AFTER, _STEP = 400, 600, 200


class Screened:
    """The rules that may hit one text, and the literals of theirs that it holds."""

    def __init__(self, literals: frozenset[str], rules: tuple[RiskRule, ...]) -> None:
        self.rules = rules
        self._literals = literals

    def windows(self, rule: RiskRule, text: str) -> list[Region]:
        """Return the parts of a text, in order and apart, outside which the rule cannot hit."""
        if rule.screen:
            return [(0, len(text))]
        found = []
        for literal in self._literals.intersection(rule.literals):
            at = text.find(literal)
            while at >= 0:
                found.append((max(0, at - _BEFORE), min(len(text), at + _AFTER)))
                # A step keeps the time linear in a text full of one literal.
                at = text.find(literal, at + _STEP)
        return merged(found)


def merged(regions: list[Region]) -> list[Region]:
    """Return regions in order; those that overlap or touch become one."""
    apart: list[Region] = []
    for start, end in sorted(regions):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def screened(texts: Sequence[str], rules: RiskRules) -> list[Screened]:
    """Return the rules that may hit each text (lower case): one Aho-Corasick automaton finds all literals."""
    column = pl.Series(texts, dtype=pl.String)
    literals = sorted({literal for rule in rules.rules for literal in rule.literals})
    held = column.str.extract_many(literals, overlapping=True).list.unique().to_list()
    passed = {rule.id: column.str.contains(rule.screen).to_list() for rule in rules.rules if rule.screen}

    def passes(rule: RiskRule, text: int, present: frozenset[str]) -> bool:
        return passed[rule.id][text] if rule.screen else not present.isdisjoint(rule.literals)

    return [
        Screened(present, tuple(rule for rule in rules.rules if passes(rule, i, present)))
        for i, present in enumerate(map(frozenset, held))
    ]
