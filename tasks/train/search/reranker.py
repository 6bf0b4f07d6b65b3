"""Trains routing's reranker: `python -m tasks.train.search.reranker ENCODER REQUESTS CORPUS`.

ENCODER is the folder of the exported default encoder, REQUESTS a file as `tasks.train.search.requests` reads
it, CORPUS the skills (a Parquet file). One fold is held out; standard output tells how well it does there. It
goes on where it was stopped, from `--work`. Seeds are fixed; three quarters of an hour on two cores.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tasks.models.adapted_encoder import WIDTH, base_tokenizer
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.reranker import FILE, QUERY, REACHES, PairScorer, Reach, pair_of
from tasks.retrieve.routing.skill_tokens import SkillTokens
from tasks.train.search.adapted_network import AdaptedNetwork, Halves, mean_states, padded
from tasks.train.search.requests import (
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


@dataclass(frozen=True, slots=True)
class RerankerRecipe:
    """How it learns: a list is a request's skill and `others`; `lists` of them are a step.

    In the first `easy` steps the others are any skills: of hard ones alone nothing is learned for long.
    `brief` is the share of steps with the tokens of `fast`, `near` the weight of a request that its skill
    does not serve, and `share` that of the requests of other folds that are learned from.
    """

    rank: int = 32
    epochs: int = 1
    lists: int = 4
    others: int = 5
    easy: int = 200
    rate: float = 5e-4
    decay: float = 0.01
    brief: float = 0.2
    near: float = 0.5
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


class Lists:
    """Draws the lists of a training: a request, its skill, and others that were found and do not serve."""

    def __init__(
        self, held: Requests, tokens: SkillTokens, rarity: npt.NDArray[np.float16], recipe: RerankerRecipe
    ) -> None:
        self._held, self._tokens, self._recipe = held, tokens, recipe
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

    def drawn(self, batch: Batch, step: int) -> tuple[list[tuple[list[int], int]], list[int]]:
        """Return the pairs of a batch, each with the place of its second text, and where each list begins."""
        draw = np.random.default_rng([self._recipe.seed, 1, step])
        reach = REACHES["fast" if draw.random() < self._recipe.brief else "best"]
        pairs: list[tuple[list[int], int]] = []
        starts = []
        for row in batch:
            starts.append(len(pairs))
            others = self._others(row, draw, easy=step < self._recipe.easy)
            for skill in [int(self._held.gold[row]), *others]:
                head, body = self._tokens.of(skill)
                pairs.append(pair_of(self.asked[row], (head, body), reach.tokens, self._rarity))
        return pairs, starts

    def _others(self, row: int, draw: np.random.Generator, *, easy: bool) -> list[int]:
        if self._held.kinds[row] == NEAR:  # of others it is not known whether they serve it
            return []
        unsure, others = self._held.unsure[row], self._recipe.others
        drawn = draw.integers(len(self._tokens.bodies), size=_FOUND)
        first = drawn if easy else self._held.first[row, :_FOUND]
        found = [skill for skill in first.tolist() if skill not in unsure]
        hard = draw.permutation(found[:_HARD]).tolist()[: others - 2]
        return list(dict.fromkeys([*hard, *draw.permutation(found).tolist()]))[:others]


def list_loss(
    scores: torch.Tensor, starts: Sequence[int], near: Sequence[bool], weight: float
) -> torch.Tensor:
    """Return the mean loss of lists: the likelihood of the first of each, or, of near ones, of none.

    `none` has score 0, so that scores are log odds (listwise softmax, Cao et al., ICML 2007).
    """
    losses = []
    for start, end, none in zip(starts, [*starts[1:], len(scores)], near, strict=True):
        told = torch.cat([scores[start:end], scores.new_zeros(1)]).log_softmax(0)
        losses.append(-weight * told[-1] if none else -told[0])
    return torch.stack(losses).mean()


def train_pairs(held: Requests, lists: Lists, recipe: RerankerRecipe, fold: int, work: Path) -> PairNetwork:
    """Return a network that learned from all requests but those of a fold; it goes on from a checkpoint."""
    network, checkpoint = PairNetwork(recipe.rank, recipe.seed), work / "reranker.pt"
    rows = np.flatnonzero(held.folds != fold)
    rows = np.random.default_rng(recipe.seed).permutation(rows)[: round(recipe.share * len(rows))]
    batches = [batch for epoch in range(recipe.epochs) for batch in lists.batches(rows, epoch)]
    optimizer = torch.optim.AdamW(network.parameters(), recipe.rate, (0.9, 0.98), weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / (0.05 * len(batches)), 1.0) * max(0.01, 1 - s / len(batches))
    )
    parts: dict[str, Any] = {"network": network, "optimizer": optimizer, "schedule": schedule}
    done = 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, weights_only=True)
        done = kept.pop("step")
        for name, state in kept.items():
            parts[name].load_state_dict(state)
    begun, losses = time.monotonic(), []
    for step in range(done, len(batches)):
        pairs, starts = lists.drawn(batches[step], step)
        near = [held.kinds[row] == NEAR for row in batches[step]]
        loss = list_loss(network(pairs), starts, near, recipe.near)
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
    for kind in sorted(set(held.kinds[rows].tolist())):
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
    """Train, write the packaged weights, and tell how well the held-out fold does."""
    parser = arguments(main.__doc__, FILE)
    parser.add_argument("--epochs", type=int, default=RerankerRecipe().epochs)
    given = parser.parse_args()
    encoder = OnnxEncoder(given.encoder)
    held, tokens, heads = found_once(given.work, given.requests, given.corpus, encoder)
    rarity, recipe = rarity_of(tokens), RerankerRecipe(epochs=given.epochs, share=given.share)
    network = train_pairs(held, Lists(held, tokens, rarity, recipe), recipe, given.fold, given.work)
    arrays = network.arrays() | {"rarity": rarity}
    np.savez(given.out, **arrays)  # type: ignore[arg-type]
    model = PairScorer(arrays)
    own = np.flatnonzero(held.folds == given.fold)
    asked = found_by_search(held, own, given.corpus, tokens, heads, encoder)
    rows = np.arange(len(own))
    for name, reach in REACHES.items():
        odds = read_odds(asked, rows, model, tokens, reach)
        for weight in sorted({0.0, 0.2, 0.8, reach.weight}):
            told = report(asked, rows, odds, reach._replace(weight=weight))
            sys.stdout.write(json.dumps({"rerank": name, "weight": weight, **told}) + "\n")


if __name__ == "__main__":
    main()
