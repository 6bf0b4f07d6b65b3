"""The papers' own figures of routing, by the variant of a method that they are of.

They were measured on SkillsBench with 36,000 skills (SkillFlow) and 80,000 (SkillRouter, means of its two
tiers): what other tasks and skills give is read beside them, not against them. SkillFlow's MRR has no cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from storage.jsonl import read_lines

_FIGURES = "data/papers_routing.jsonl"


@lru_cache(maxsize=1)
def papers() -> Mapping[str, Mapping[str, Any]]:
    """Return what the papers measured, by method: `table`, and the value of each measure that they give."""
    with resources.as_file(resources.files("tasks.evaluate").joinpath(_FIGURES)) as path:
        return {str(line.pop("method")): line for _, line in read_lines(path, "{method, table}")}


def beside_papers(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield method, measure, value here, the paper's value and its table, for methods that a paper has.

    `rows` are those of `summarise_method`.
    """
    for row in rows:
        known = papers().get(row["method"], {})
        for measure, value in known.items():
            if measure != "table":
                yield [row["method"], measure, f"{row[measure]:.3f}", f"{value:.3f}", known["table"]]
