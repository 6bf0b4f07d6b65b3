"""Trains routing's retriever: `python -m tasks.train.retriever ENCODER REQUESTS CORPUS --work W`.

Arguments are those of `tasks.train.reranker`, which is trained after it. One fold is held out; standard
output tells how well it finds those requests alone. Seeds are fixed; ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from tasks.models.adapted_encoder import FIRST, LAST, WIDTH, base_tokenizer, word_vectors
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.learned_leg import (
    FILE,
    QUERY,
    RequestEncoder,
    SkillMap,
    body_terms,
    skill_map,
    unit,
)
from tasks.retrieve.routing.skill_tokens import SkillTokens
from tasks.train.adapted_network import AdaptedNetwork, mean_states, padded
from tasks.train.networks import train
from tasks.train.requests import FOREIGN, NEAR, Requests, Rows, found_once, rarity_of

_NOT = -1e4  # the logit of a skill that may serve as well
_NEAR_SHARE = 1 / 3  # of requests that have near ones, with which one is learned
_EVERY = 4  # rows, of which one tells the common direction
_PARTS = (0.5, 0.8)  # shares of a batch by length, which are encoded apart


@dataclass(frozen=True, slots=True)
class RetrieverRecipe:
    """How it learns: by `batch` requests at a time, each against all skills, at a temperature.

    `near` is the weight of a request that its skill does not serve, `map_rate` the rate of the maps of
    skills, and `share` that of the requests of other folds that are learned from.
    """

    rank: int = 32
    epochs: int = 2
    batch: int = 96
    temperature: float = 0.05
    rate: float = 4e-4
    map_rate: float = 7e-4
    decay: float = 0.01
    near: float = 0.5
    share: float = 1.0
    seed: int = 0


class TwoSides(AdaptedNetwork):
    """An adapted network for requests, and linear maps for skills."""

    def __init__(self, recipe: RetrieverRecipe) -> None:
        super().__init__(recipe.rank, torch.Generator().manual_seed(recipe.seed))
        self.head = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.body = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.skip = torch.nn.Parameter(torch.tensor(0.4))

    def requests(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the unit vectors of requests, given as ids; shape `(texts, 384)`."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        ends = [0, *(int(len(order) * part) for part in _PARTS), len(order)]
        groups = [order[begin:end] for begin, end in itertools.pairwise(ends) if end > begin]
        found = []
        for group in groups:
            ids, inside = padded([[FIRST, *texts[place], LAST] for place in group])
            found.append(mean_states(self.states(ids, torch.zeros_like(ids), inside), inside))
        back = torch.tensor(np.argsort(np.concatenate(groups)))
        return functional.normalize(torch.cat(found), dim=1)[back]

    def skills(self, heads: torch.Tensor, bodies: torch.Tensor) -> torch.Tensor:
        """Return the unit vectors of skills, shape `(rows, 384)`, as `SkillMap` makes them."""
        return functional.normalize(
            heads + heads @ self.head + self.skip * bodies + bodies @ self.body, dim=1
        )


class Teaching:
    """What a retriever learns from: requests as ids, skills as vectors of their heads and bodies."""

    def __init__(
        self, held: Requests, heads: Vectors, bodies: Vectors,
        recipe: RetrieverRecipe, fold: int,
    ) -> None:  # fmt: skip
        self._held, self._recipe = held, recipe
        self.heads, self.bodies = torch.tensor(heads), torch.tensor(bodies)
        found = base_tokenizer().encode_batch_fast(held.texts, add_special_tokens=False)
        self.asked = [one.ids[:QUERY] for one in found]
        told = (held.folds != fold) & (held.kinds != FOREIGN)
        self._draw = np.random.default_rng(recipe.seed)
        served = self._draw.permutation(np.flatnonzero(told & (held.kinds != NEAR)))
        self._rows = served[: round(recipe.share * len(served))]
        self._near: dict[int, list[int]] = {}
        for row in np.flatnonzero(told & (held.kinds == NEAR)).tolist():
            self._near.setdefault(int(held.gold[row]), []).append(row)

    def batches(self) -> list[tuple[Rows, Rows]]:
        """Return an epoch's requests in batches, each with near requests of a third of their skills."""
        rows, size = self._draw.permutation(self._rows), min(self._recipe.batch, len(self._rows))
        whole = np.split(rows[: len(rows) // size * size], len(rows) // size)
        return [(some, self._near_of(some)) for some in whole]

    def _near_of(self, rows: Rows) -> Rows:
        found = [near for row in rows if (near := self._near.get(int(self._held.gold[row])))]
        drawn = [self._draw.choice(near) for near in found if self._draw.random() < _NEAR_SHARE]
        return np.array(drawn, dtype=np.int64)

    def loss(self, network: TwoSides, batch: tuple[Rows, Rows]) -> torch.Tensor:
        """Return the mean loss of a batch (InfoNCE over all skills, van den Oord et al., 2018)."""
        rows, near = batch
        both = np.concatenate([rows, near])
        gold = torch.tensor(self._held.gold[both])
        skills = network.skills(self.heads, self.bodies)
        logits = network.requests([self.asked[row] for row in both]) @ skills.T / self._recipe.temperature
        apart = torch.zeros((len(rows), logits.shape[1]), dtype=torch.bool)
        for place, row in enumerate(rows.tolist()):
            apart[place, torch.tensor(sorted(self._held.unsure[row]))] = True
            apart[place, gold[place]] = False
        loss = functional.cross_entropy(logits[: len(rows)].masked_fill(apart, _NOT), gold[: len(rows)])
        if len(near):
            told = logits[len(rows) :].softmax(1)[torch.arange(len(near)), gold[len(rows) :]]
            loss -= self._recipe.near * torch.log1p(-told.clamp(max=0.99)).sum() / len(rows)
        return loss


def train_retriever(
    held: Requests, heads: Vectors, tokens: SkillTokens, recipe: RetrieverRecipe, fold: int
) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """Return what `RequestEncoder` and `SkillMap` read, learned from all requests but those of a fold."""
    zeros, rarity = np.zeros((WIDTH, WIDTH), np.float32), rarity_of(tokens)
    summed = unit(body_terms(tokens, rarity.astype(np.float32)) @ word_vectors())
    mean = summed.mean(axis=0)
    common = np.linalg.svd((summed - mean)[::_EVERY], full_matrices=False)[2][0]
    plain = SkillMap(zeros, zeros, zeros, zeros, mean, common)  # which only centres
    network = TwoSides(recipe)
    teaching = Teaching(held, heads, plain.centred(summed), recipe, fold)
    maps = [network.head, network.body, network.skip]
    groups = [
        {"params": list(network.adapters.parameters()), "lr": recipe.rate},
        {"params": maps, "lr": recipe.map_rate},
    ]
    train(
        network, groups, teaching.batches, functools.partial(teaching.loss, network),
        epochs=recipe.epochs, decay=recipe.decay,
    )  # fmt: skip
    learned = {name: getattr(network, name).detach().numpy() for name in ("head", "body", "skip")}
    arrays = learned | {"rarity": rarity, "mean": mean, "common": common}
    return network.arrays() | {name: np.asarray(array, np.float16) for name, array in arrays.items()}


def report(held: Requests, rows: Rows, skills: Vectors, encoder: RequestEncoder) -> dict[str, list[float]]:
    """Return hit@1 and recall@10 by kind of what the retriever alone finds; of near requests hit@1 alone."""
    ranks = np.empty(len(rows))
    for place, row in enumerate(rows.tolist()):
        cosines, copies = skills @ encoder.encode(held.texts[row])[0], list(held.copies[row])
        others = np.delete(cosines, copies)
        ranks[place] = 1 + (others > cosines[copies].max()).sum()
    told = {}
    for kind in sorted(set(held.kinds[rows].tolist())):
        own = ranks[held.kinds[rows] == kind]
        told[kind] = [round(float((own <= k).mean()), 3) for k in ((1,) if kind == NEAR else (1, 10))]
    return told


def main() -> None:
    """Train, write the packaged weights, and tell how well the held-out fold does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name in ("encoder", "requests", "corpus"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--work", type=Path, required=True, help="Folder of what was found.")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--fold", type=int, default=0, help="The fold that is held out.")
    parser.add_argument("--share", type=float, default=1.0, help="Of the requests to learn from.")
    given = parser.parse_args()
    held, tokens, heads = found_once(given.work, given.requests, given.corpus, OnnxEncoder(given.encoder))
    arrays = train_retriever(held, heads, tokens, RetrieverRecipe(share=given.share), given.fold)
    np.savez(given.out, **arrays)  # type: ignore[arg-type]
    rows = np.flatnonzero((held.folds == given.fold) & (held.kinds != FOREIGN))
    found = skill_map(given.out).vectors(heads, tokens)
    sys.stdout.write(json.dumps(report(held, rows, found, RequestEncoder(arrays))) + "\n")


if __name__ == "__main__":
    main()
