"""Scale a bread formula: give the dough weight in grams, get the weight of each ingredient."""

from __future__ import annotations

import sys

FORMULA = {"bread flour": 90.0, "whole grain": 10.0, "water": 70.0, "starter": 20.0, "salt": 2.0}


def scale(dough_weight: float, formula: dict[str, float]) -> dict[str, int]:
    """Return grams for each ingredient, rounded, so that all of them together weigh `dough_weight`."""
    unit = dough_weight / sum(formula.values())
    return {name: round(share * unit) for name, share in formula.items()}


if __name__ == "__main__":
    for ingredient, grams in scale(float(sys.argv[1]), FORMULA).items():
        print(f"{grams:5d} g  {ingredient}")
