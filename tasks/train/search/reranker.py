"""Trains routing's reranker: `python -m tasks.train.search.reranker ENCODER REQUESTS CORPUS --work W`.

ENCODER is the folder of the exported default encoder, REQUESTS a file as `tasks.train.search.requests` reads
it, CORPUS the skills (a Parquet file). One fold is held out; standard output tells how well it does there. It
goes on where it was stopped, from `--work`. Seeds are fixed; two hours on two cores.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tasks.models.adapted_encoder import WIDTH, base_tokenizer
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.fit import FILE as FIT
from tasks.retrieve.routing.reranker import FILE, QUERY, REACHES, PairScorer, Reach, pair_of
from tasks.retrieve.routing.skill_tokens import SkillTokens
from tasks.train.search.adapted_network import AdaptedNetwork, Halves, mean_states, padded
from tasks.train.search.own_requests import HELD, keep_held_out
from tasks.train.search.reading_fit import fit_reading, read_results, reading_report
from tasks.train.search.requests import (
    FOREIGN,
    NEAR,
    Requests,
    Rows,
    arguments,
    found_by_search,
    found_once,
    rarity_of,
)

_HARD = 12  # first skills found, of which most others of a list are drawn
_FOUND = 30  # first skills found, of which the rest is drawn
_SPARED = 50  # steps between two checkpoints
Batch = list[int]
# Of a list the first skill serves, or none does, or it is known of the first alone that it does not.
Goal = Literal["first", "none", "apart"]


@dataclass(frozen=True, slots=True)
class RerankerRecipe:
    """How it learns: a list is a request's skill and `others`; `lists` of them are a step.

    In the first `easy` steps the others are any skills: of hard ones alone nothing is learned for long.
    `brief` is the share of steps with the tokens of `fast`, in the first epoch and later; `near` is the
    weight of a request that its skill does not serve; `share` of other folds' requests are learned from. The
    first epoch teaches to compare what words and plain vectors find. Each later one, whose rate is `fall`
    times that before, compares what `search` finds, and teaches that nothing may serve: of the share `absent`
    of its lists the skill is left out, and foreign requests are among them.
    """

    rank: int = 32
    epochs: int = 2
    lists: int = 4
    others: int = 5
    easy: int = 200
    rate: float = 5e-4
    decay: float = 0.01
    brief: tuple[float, float] = (0.2, 0.5)
    near: float = 0.5
    fall: float = 0.6
    absent: float = 0.2
    share: float = 1.0
    seed: int = 0


class PairNetwork(AdaptedNetwork):
    """An adapted network with a linear layer over the first state and the mean state: scores of pairs."""

    def __init__(self, rank: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        super().__init__(rank, draw)
        self.head = torch.nn.Linear(2 * WIDTH, 1)
        torch.nn.init.normal_(self.head.weight, std=0.02, generator=draw)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, pairs: Sequence[tuple[list[int], int]]) -> torch.Tensor:
        """Return the scores of pairs, each with the place of its second text; shape `(pairs,)`."""
        ids, inside = padded([ids for ids, _ in pairs])
        second = torch.arange(ids.shape[1]) >= torch.tensor([[place] for _, place in pairs])
        states = self.states(ids, second.long(), inside)
        scores: torch.Tensor = self.head(torch.cat([states[:, 0], mean_states(states, inside)], 1))[:, 0]
        return scores

    def arrays(self) -> Halves:
        """Return what `PairScorer` reads, in half precision, but for `rarity`."""
        head = {"head.w": self.head.weight[0], "head.b": self.head.bias[0]}
        return super().arrays() | {name: v.detach().numpy().astype(np.float16) for name, v in head.items()}


class Drawn(NamedTuple):
    """The pairs of lists, each with the place of its second text, and each list's first pair and goal."""

    pairs: list[tuple[list[int], int]]
    starts: list[int]
    goals: list[Goal]


class Lists:
    """Draws the lists of a training: a request, its skill, and others that were found and do not serve."""

    def __init__(
        self, held: Requests, later: Rows, tokens: SkillTokens, rarity: npt.NDArray[np.float16],
        recipe: RerankerRecipe,
    ) -> None:  # fmt: skip
        self._held, self._tokens, self._recipe = held, tokens, recipe
        self._first = {False: held.first, True: later}
        self._rarity = rarity.astype(np.float32)
        found = base_tokenizer().encode_batch_fast(held.texts, add_special_tokens=False)
        self.asked = [one.ids[:QUERY] for one in found]

    def batches(self, rows: npt.NDArray[np.int64], epoch: int) -> list[Batch]:
        """Return an epoch's requests in batches of about one length, in random order."""
        draw = np.random.default_rng([self._recipe.seed, epoch])
        order, size = draw.permutation(rows).tolist(), self._recipe.lists
        found = []
        for start in range(0, len(order), 16 * size):
            alike = sorted(order[start : start + 16 * size], key=lambda row: len(self.asked[row]))
            found += [alike[at : at + size] for at in range(0, len(alike) - size + 1, size)]
        return [found[place] for place in draw.permutation(len(found)).tolist()]

    def drawn(self, batch: Batch, step: int, *, late: bool = False) -> Drawn:
        """Return the lists of a batch; `late` says that it is not of the first epoch."""
        draw = np.random.default_rng([self._recipe.seed, 1, step])
        reach = REACHES["fast" if draw.random() < self._recipe.brief[late] else "best"]
        found = Drawn([], [], [])
        for row in batch:
            goal = self._goal(row, draw, late=late)
            # Of others it is not known whether they serve a near request, so that only they come before.
            alone = goal == "apart" and not late
            first = None if step < self._recipe.easy else self._first[late][row, :_FOUND]
            others = [] if alone else self._others(row, draw, first)
            own = [] if goal == "none" else [int(self._held.gold[row])]
            found.starts.append(len(found.pairs))
            found.goals.append(goal)
            for skill in [*own, *others]:
                head, body = self._tokens.of(skill)
                found.pairs.append(pair_of(self.asked[row], (head, body), reach.tokens, self._rarity))
        return found

    def _goal(self, row: int, draw: np.random.Generator, *, late: bool) -> Goal:
        if self._held.kinds[row] == NEAR:
            return "apart"
        absent = late and draw.random() < self._recipe.absent
        return "none" if absent or self._held.kinds[row] == FOREIGN else "first"

    def _others(self, row: int, draw: np.random.Generator, first: Rows | None) -> list[int]:
        unsure, others = self._held.unsure[row], self._recipe.others
        drawn = draw.integers(len(self._tokens.bodies), size=_FOUND)
        found = [skill for skill in (drawn if first is None else first).tolist() if skill not in unsure]
        hard = draw.permutation(found[:_HARD]).tolist()[: others - 2]
        return list(dict.fromkeys([*hard, *draw.permutation(found).tolist()]))[:others]


def list_loss(
    scores: torch.Tensor, starts: Sequence[int], goals: Sequence[Goal], weight: float
) -> torch.Tensor:
    """Return the mean loss of lists by their goals; `weight` is that of `apart`.

    `none` has score 0, so that scores are log odds (listwise softmax, Cao et al., ICML 2007).
    """
    losses = []
    for start, end, goal in zip(starts, [*starts[1:], len(scores)], goals, strict=True):
        told = torch.cat([scores[start:end], scores.new_zeros(1)]).log_softmax(0)
        of_goal = {"first": told[0], "none": told[-1], "apart": weight * told[1:].logsumexp(0)}
        losses.append(-of_goal[goal])
    return torch.stack(losses).mean()


def train_pairs(held: Requests, lists: Lists, recipe: RerankerRecipe, fold: int, work: Path) -> PairNetwork:
    """Return a network that learned from all requests but those of a fold; it goes on from a checkpoint."""
    network, checkpoint = PairNetwork(recipe.rank, recipe.seed), work / "reranker.pt"
    rows = np.flatnonzero((held.folds != fold) & (held.kinds != FOREIGN))
    rows = np.random.default_rng(recipe.seed).permutation(rows)[: round(recipe.share * len(rows))]
    foreign = np.flatnonzero((held.folds != fold) & (held.kinds == FOREIGN))
    epochs = [
        lists.batches(np.concatenate([rows, foreign]) if epoch else rows, epoch)
        for epoch in range(recipe.epochs)
    ]
    batches = list(itertools.chain.from_iterable(epochs))
    optimizer = torch.optim.AdamW(network.parameters(), recipe.rate, (0.9, 0.98), weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rates_of([*map(len, epochs)], recipe.fall))
    parts: dict[str, Any] = {"network": network, "optimizer": optimizer, "schedule": schedule}
    done = 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, weights_only=True)
        done = kept.pop("step")
        for name, state in kept.items():
            parts[name].load_state_dict(state)
    begun, losses = time.monotonic(), []
    for step in range(done, len(batches)):
        pairs, starts, goals = lists.drawn(batches[step], step, late=step >= len(epochs[0]))
        loss = list_loss(network(pairs), starts, goals, recipe.near)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (step + 1) % _SPARED == 0 or step + 1 == len(batches):
            torch.save(
                {name: part.state_dict() for name, part in parts.items()} | {"step": step + 1}, checkpoint
            )
            left = (time.monotonic() - begun) / (step + 1 - done) * (len(batches) - step - 1) / 60
            told = f"step {step + 1} of {len(batches)}: loss {np.mean(losses[-4 * _SPARED :]):.3f}"
            sys.stderr.write(f"{told}, {left:.0f} minutes left\n")
    return network


def rates_of(steps: Sequence[int], fall: float) -> Callable[[int], float]:
    """Return the share of the rate at each step: each epoch, of so many steps, rises and falls for itself.

    So one epoch more goes on from the checkpoint of those before.
    """
    shares = [
        fall**epoch * min((step + 1) / (0.05 * count), 1.0) * max(0.01, 1 - step / count)
        for epoch, count in enumerate(steps)
        for step in range(count)
    ]
    return lambda step: shares[min(step, len(shares) - 1)]


def read_odds(
    held: Requests, rows: Rows, model: PairScorer, tokens: SkillTokens, reach: Reach
) -> npt.NDArray[np.float64]:
    """Return the log odds of the first skills of requests, shape `(rows, skills)`."""
    skills = held.first[rows, : reach.skills].tolist()
    texts = [held.texts[row] for row in rows.tolist()]
    found = [
        model.scores(text, [tokens.of(skill) for skill in some], reach.tokens)
        for text, some in zip(texts, skills, strict=True)
    ]
    return np.array(found, dtype=np.float64)


def report(held: Requests, rows: Rows, odds: npt.NDArray[np.float64], reach: Reach) -> dict[str, list[float]]:
    """Return hit@1, MRR@10 and recall@10 by kind, and how often the skill of a near request is first."""
    total = held.scores[rows].copy()
    total[:, : odds.shape[1]] += 1000 + reach.part(odds)
    ranks, told = _ranks(held, rows, total), {}
    for kind in sorted(set(held.kinds[rows].tolist()) - {FOREIGN}):
        own = ranks[held.kinds[rows] == kind]
        found = [(own == 1).mean(), np.where(own <= 10, 1 / own, 0).mean(), (own <= 10).mean()]
        told[kind] = [round(float(value), 3) for value in (found[:1] if kind == NEAR else found)]
    return told


def _ranks(held: Requests, rows: Rows, total: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rank of each request's skill or its best copy; infinite where none was found."""
    found = []
    for row, scores in zip(rows.tolist(), total, strict=True):
        order = held.first[row][np.argsort(-scores, kind="stable")].tolist()
        places = [place for place, skill in enumerate(order) if skill in held.copies[row]]
        found.append(places[0] + 1 if places else np.inf)
    return np.array(found)


def main() -> None:
    """Train, write the packaged weights and the fit of what is read, and tell how well the fold does."""
    parser = arguments(main.__doc__, FILE)
    parser.add_argument("--fit", type=Path, default=FIT, help="Where the fit of what is read is put.")
    parser.add_argument("--epochs", type=int, default=RerankerRecipe().epochs)
    given = parser.parse_args()
    encoder = OnnxEncoder(given.encoder)
    held, tokens, heads = found_once(given.work, given.requests, given.corpus, encoder)
    rarity, recipe = rarity_of(tokens), RerankerRecipe(epochs=given.epochs, share=given.share)
    searched = found_by_search(given.work, held, given.corpus, tokens, heads, encoder)
    lists = Lists(held, searched.first, tokens, rarity, recipe)
    arrays = train_pairs(held, lists, recipe, given.fold, given.work).arrays() | {"rarity": rarity}
    np.savez(given.out, **arrays)  # type: ignore[arg-type]
    rows, model = np.flatnonzero(held.folds == given.fold), PairScorer(arrays)
    fitted = json.loads(given.fit.read_text("utf-8")) | {"reading": {}}
    every: dict[str, npt.NDArray[np.float64]] = {}
    for name, reach in REACHES.items():
        odds = every[name] = read_odds(searched, rows, model, tokens, reach)
        results = read_results(searched, rows, odds, reach)
        weights, least = fit_reading(results)
        fitted["reading"][name] = {"weights": [round(float(w), 4) for w in weights], "least": round(least, 4)}
        sys.stdout.write(json.dumps({"rerank": name, "fit": reading_report(results)}) + "\n")
        for weight in sorted({0.0, 0.2, 0.8, reach.weight}):
            told = report(searched, rows, odds, reach._replace(weight=weight))
            sys.stdout.write(json.dumps({"rerank": name, "weight": weight, **told}) + "\n")
    keep_held_out(given.fit.with_name(HELD.name), searched, rows, every)
    given.fit.write_text(json.dumps(fitted, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
