"""The budget of questions: tokens and money are counted, up to a ceiling."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import WrongInput
from tasks.models.llm.errors import BudgetSpent

# Not an attribute: a ledger is sent to other processes.
_LOCK = threading.Lock()
_BYTES_PER_TOKEN = 3.0  # for guesses: fewer than English has with any common tokenizer


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens, in whatever currency; 0 for a server of one's own.

    Raises:
        WrongInput: A price is negative.
    """

    prompt: float = 0.0
    completion: float = 0.0

    def __post_init__(self) -> None:
        if not min(self.prompt, self.completion) >= 0:
            raise WrongInput(f"{self}: a price must be 0 or more")

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that a run may spend; None: no limit.

    Raises:
        WrongInput: A limit is negative.
    """

    tokens: int | None = None
    money: float | None = None

    def __post_init__(self) -> None:
        if any(limit is not None and not limit >= 0 for limit in (self.tokens, self.money)):
            raise WrongInput(f"{self}: a ceiling must be 0 or more")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; `counted` tells whether the server counted them, else they are a guess."""

    prompt_tokens: int
    completion_tokens: int
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a question under way may cost at most, by our guess."""

    tokens: int
    money: float


@dataclass(frozen=True, slots=True)
class Carried:
    """A ledger's account between two parts of a run, which may be two processes; fields as of `Ledger`."""

    counts: Mapping[str, int] = field(default_factory=dict)
    spent: bool = False
    unanswered: int = 0


class Ledger:
    """The counts of one run, and its ceiling: shared by every client, stage and thread of the run.

    A question is let through only if the ceiling holds what is spent, what is under way and its own longest
    answer, as far as prompt lengths are guessed well. Once the ceiling is reached, nothing is let through any
    more. `counts` has `requests` (retries included), `retries`, `answered`, `accepted`, `rejected`,
    `overflows`, `shortened` (asked again with less), `cached` (answers reused), `replayed` (known to have
    been rejected), `prompt_tokens`, `completion_tokens`, `tokens_guessed` (of these, not counted by the
    server), `milliseconds` (of all requests together); `unanswered` is how many questions in a row had no
    answer; `before` is what an earlier part of the run has `carried`.
    """

    def __init__(
        self, prices: Prices | None = None, ceiling: Ceiling | None = None, before: Carried | None = None
    ) -> None:
        self.prices, self.ceiling = prices or Prices(), ceiling or Ceiling()
        earlier = before or Carried()
        self.counts: Counter[str] = Counter(earlier.counts)
        self.spent, self.unanswered = earlier.spent, earlier.unanswered
        self._under_way: Counter[Reservation] = Counter()

    @property
    def tokens(self) -> int:
        """Tokens spent so far."""
        return self.counts["prompt_tokens"] + self.counts["completion_tokens"]

    @property
    def cost(self) -> float:
        """Money spent so far."""
        return self.prices.of(self.counts["prompt_tokens"], self.counts["completion_tokens"])

    def reserve(self, prompt_bytes: int, max_tokens: int) -> Reservation | None:
        """Set aside what a question may cost; None: it fits the ceiling, but not beside what is under way.

        Give it back with `release`; after a `release`, ask again.

        Raises:
            BudgetSpent: It does not fit the ceiling, or an earlier one did not.
        """
        guess = guessed_tokens(prompt_bytes)
        wanted = Reservation(guess + max_tokens, self.prices.of(guess, max_tokens))
        with _LOCK:
            self.spent = self.spent or self._passes([wanted])
            if self.spent:
                spent = f"{self.tokens} tokens and {self.cost:.4f} of money are spent, and the ceiling is"
                most = f"{self.ceiling.tokens} tokens, {self.ceiling.money} of money (None: no limit)"
                raise BudgetSpent(f"{spent} {most}")
            if self._passes([wanted, *self._under_way.elements()]):
                return None
            self._under_way[wanted] += 1
            return wanted

    def _passes(self, reserved: Sequence[Reservation]) -> bool:
        tokens = self.tokens + sum(r.tokens for r in reserved)
        money = self.cost + sum(r.money for r in reserved)
        limits = ((tokens, self.ceiling.tokens), (money, self.ceiling.money))
        return any(limit is not None and amount > limit for amount, limit in limits)

    def release(self, reservation: Reservation) -> None:
        """Give back what a question had set aside, whatever became of it."""
        with _LOCK:
            self._under_way[reservation] -= 1

    def spend(self, usage: Usage) -> None:
        """Count an answer's tokens."""
        with _LOCK:
            self.counts["answered"] += 1
            self.counts["prompt_tokens"] += usage.prompt_tokens
            self.counts["completion_tokens"] += usage.completion_tokens
            if not usage.counted:
                self.counts["tokens_guessed"] += usage.prompt_tokens + usage.completion_tokens

    def spend_unseen(self, prompt_bytes: int) -> None:
        """Count a question that the server took and did not answer to the end: its prompt, by our guess."""
        guess = guessed_tokens(prompt_bytes)
        self.counts["prompt_tokens"] += guess
        self.counts["tokens_guessed"] += guess

    def carried(self) -> Carried:
        """Return the account as it stands, for the next part of the run to go on from."""
        return Carried(dict(self.counts), self.spent, self.unanswered)

    def report(self) -> dict[str, Any]:
        """Return the counts with `tokens`, `seconds`, `cost` and `spent`: whether the ceiling was reached."""
        names = (
            "requests", "retries", "answered", "accepted", "rejected", "overflows", "shortened", "cached",
            "replayed", "prompt_tokens", "completion_tokens", "tokens_guessed",
        )  # fmt: skip
        counts = {name: self.counts[name] for name in names}
        seconds, cost = round(self.counts["milliseconds"] / 1000, 1), round(self.cost, 6)
        return {**counts, "tokens": self.tokens, "seconds": seconds, "cost": cost, "spent": self.spent}


def guessed_tokens(n_bytes: int) -> int:
    """Return about how many tokens so many bytes of UTF-8 are, rather too many than too few."""
    return int(n_bytes / _BYTES_PER_TOKEN) + 1
