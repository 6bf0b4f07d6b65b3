"""Settings of SkillPager's methods: those of the paper's tables, and what the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from storage.errors import WrongInput
from storage.schemas import EDGE_TYPES

Entry = Literal["nearest", "first"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a published method that picks nodes, without a budget of tokens.

    Args:
        weight: MMR's relevance weight.
        k: The most nodes picked; None for the paper's 20 up to 100 nodes, else 60 (equation 4).
        concepts: `keep`, `only`, or `none` of the nodes typed as concepts.
        density: Concepts are left out if they are more than this share of the nodes.
        predecessors: Add to each node picked the nodes that edges come from.
        walk: Follow edges from an entry node instead of picking from all.
    """

    weight: float = 0.7
    k: int | None = None
    concepts: str = "keep"
    density: float = 1.0
    predecessors: bool = False
    walk: bool = False


@dataclass(frozen=True, slots=True)
class OpenSettings:
    """What SkillPager's paper leaves open, or says without a number; the same for all of its methods.

    Args:
        stop_below: Picking by MMR ends early when the best value left is below this; the paper's is 0
            (equation 3), -1 never ends early.
        entry: Where a walk begins: at the node `nearest` to the query, or at the `first` one.
        least_gain: A walk ends when no neighbour's MMR value, the paper's gain, reaches this.
        top_k: Nodes of `top-k-dependency` before their predecessors are added.
        edge_types: The edges that walks and predecessors follow.
        chunk_tokens: Tokens of a chunk.
        chunk_overlap: Tokens that a chunk shares with the next one, fewer than half of its own.

    Raises:
        WrongInput: A number or name is out of its range.
    """

    stop_below: float = 0.0
    entry: Entry = "nearest"
    least_gain: float = 0.0
    top_k: int = 10
    edge_types: tuple[str, ...] = EDGE_TYPES
    chunk_tokens: int = 256
    chunk_overlap: int = 0

    def __post_init__(self) -> None:
        if min(self.top_k, self.chunk_tokens) < 1 or not 0 <= 2 * self.chunk_overlap < self.chunk_tokens:
            msg = (
                f"SkillPager: top_k {self.top_k} and chunk_tokens {self.chunk_tokens}: at least 1; "
                f"chunk_overlap {self.chunk_overlap}: at least 0 and less than half of chunk_tokens"
            )
            raise WrongInput(msg)
        if unknown := set(self.edge_types) - set(EDGE_TYPES):
            msg = (
                f"SkillPager: edge_types {', '.join(sorted(unknown))}: choose some of {', '.join(EDGE_TYPES)}"
            )
            raise WrongInput(msg)


OPEN_SETTINGS = OpenSettings()
SKILLPAGER = Setting()


def settings_of(given: OpenSettings) -> dict[str, Setting]:
    """Return the setting of each of SkillPager's methods that pick nodes, by name."""
    return {
        "skillpager": SKILLPAGER,
        "mmr": SKILLPAGER,
        "greedy-graph": Setting(weight=1.0, walk=True),
        "top-k-dependency": Setting(weight=1.0, k=given.top_k, predecessors=True),
        "mmr-one-hop": replace(SKILLPAGER, predecessors=True),
        "concept-only": replace(SKILLPAGER, concepts="only"),
        "executable-only": replace(SKILLPAGER, concepts="none"),
        **{f"density-{share}": replace(SKILLPAGER, density=share) for share in (0.3, 0.4, 0.5)},
        **{f"weight-{weight}": replace(SKILLPAGER, weight=weight) for weight in (0.3, 0.5, 0.7, 0.9)},
        **{f"k-{k}": replace(SKILLPAGER, k=k) for k in (5, 10, 20, 30, 40, 60)},
    }
