"""Where a reranker looks: how much of its answer's attention goes to a skill's name, description and body.

SkillRouter, section 3.2 and table 14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.schemas import Qrel
from tasks.evaluate.routing.data import RoutingQuery, best_skills
from tasks.models.protocols import Tokenizer
from tasks.retrieve.baselines.skillrouter import BETWEEN, flat_parts
from tasks.retrieve.routing.skill import Skill

MOST = 75  # pairs, as in the paper
FIELDS = ("name", "description", "body")
# Of SR-Rank-0.6B, whose groups are layers 0 to 6, 7 to 20 and 21 to 27.
_PAPER = {
    "early": (0.023, 0.003, 0.973), "middle": (0.096, 0.014, 0.890), "late": (0.075, 0.008, 0.917),
    "all": (0.073, 0.010, 0.917),
}  # fmt: skip
Shares = npt.NDArray[np.float64]
Pair = tuple[str, Skill]


class Attending(Tokenizer, Protocol):
    """A reranker whose attention can be seen."""

    def attention(self, query: str, text: str, parts: Sequence[tuple[int, int]]) -> Shares:
        """Return how much of the answer's attention goes to each part, by layer, shape `(layers, parts)`."""


def pairs_of(tasks: Sequence[RoutingQuery], qrels: Sequence[Qrel], skills: pl.DataFrame) -> list[Pair]:
    """Return the texts of the first 75 tasks, each with the skill that serves it best, as `best_skills`."""
    return [(task.text, skill) for task, skill in best_skills(tasks, qrels, skills)[:MOST]]


def attention_by_field(
    reranker: Attending, pairs: Sequence[Pair], limits: tuple[int, int], step: Callable[[], None]
) -> list[dict[str, Any]]:
    """Return a row for each group of layers, each layer, and all: the mean shares of `FIELDS`, sum 1.

    There is at least one pair; `limits` are tokens of the description and of the body. Rows have `layers`
    (`early`, a first quarter; `middle`; `late`, a last quarter; a number from 0; `all`), a share for each
    field, and `paper`, the same of the paper's reranker, or None. `step` is called after each pair.
    """
    seen = []
    for task, skill in pairs:
        parts = flat_parts(skill, limits, reranker)
        shares = reranker.attention(task, BETWEEN.join(parts), _spans(parts))
        seen.append(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12))
        step()
    layers = np.mean(seen, axis=0)
    count = len(layers)
    first, last = round(count / 4), round(3 * count / 4)
    groups = {"early": layers[:first], "middle": layers[first:last], "late": layers[last:]}
    rows = [(name, some.mean(axis=0)) for name, some in groups.items() if len(some)]
    rows += [(str(at), layer) for at, layer in enumerate(layers)]
    return [_row(name, shares) for name, shares in [*rows, ("all", layers.mean(axis=0))]]


def _spans(parts: Sequence[str]) -> list[tuple[int, int]]:
    """Return where parts stand when they are joined."""
    starts = accumulate((len(part) + len(BETWEEN) for part in parts[:-1]), initial=0)
    return [(start, start + len(part)) for start, part in zip(starts, parts, strict=True)]


def _row(name: str, shares: Shares) -> dict[str, Any]:
    paper = _PAPER.get(name)
    return {"layers": name, **dict(zip(FIELDS, shares.tolist(), strict=True)), "paper": paper}
