"""The options of composing: how a task is cut, how its steps are served."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.errors import WrongInput
from tasks.retrieve.compose.decompose.rounds import HINTS
from tasks.retrieve.compose.pages import require_pages
from tasks.retrieve.routing.search import Filters

MOST_STEPS, CANDIDATES = 8, 5
LARGEST = 40  # steps; what needs more is several tasks


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """How a task is composed: candidates a step, steps at most, rounds with hints, hints a round, filters.

    `alpha` weighs relevance against compatibility with the steps before (equation 4); 1 is relevance alone.
    Without `context` a step's rows are ranked by its own words and vector alone. `pages` is the budget of
    each step's page (`with_pages`); None makes no pages.
    """

    k: int = CANDIDATES
    max_steps: int = MOST_STEPS
    rounds: int = 1
    hints: int = HINTS
    explain: bool = False
    filters: Filters = field(default_factory=Filters)
    alpha: float = 1.0
    context: bool = True
    pages: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("max_steps", 1), ("rounds", 0), ("hints", 1)):
            if getattr(self, name) < least:
                msg = f"{name} is {getattr(self, name)}: give at least {least}"
                raise WrongInput(msg)
        if self.max_steps > LARGEST:
            msg = f"max_steps is {self.max_steps}: give at most {LARGEST}"
            raise WrongInput(msg)
        if not 0 <= self.alpha <= 1:  # NaN neither
            msg = f"alpha is {self.alpha}: give a number from 0 to 1"
            raise WrongInput(msg)
        require_pages(self.pages)
