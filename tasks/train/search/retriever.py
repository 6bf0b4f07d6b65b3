"""Trains routing's retriever: `python -m tasks.train.search.retriever ENCODER REQUESTS CORPUS --work W`.

Arguments are those of `tasks.train.search.reranker`, which is trained after it. One fold is held out;
standard output tells how well it finds those requests alone. Seeds are fixed; half an hour on two cores.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from tasks.models.adapted_encoder import FIRST, LAST, WIDTH, base_tokenizer, token_vectors
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.retrieve.routing.learned_leg import FILE, HEAD, QUERY, BodyMap, Retriever, body_terms
from tasks.retrieve.routing.skill_tokens import SkillTokens
from tasks.train.networks import train
from tasks.train.search.adapted_network import AdaptedNetwork, mean_states, padded
from tasks.train.search.requests import FOREIGN, NEAR, Requests, Rows, arguments, found_once, rarity_of

_NOT = -1e4  # the logit of a skill that may serve as well
_PARTS = (0.5, 0.8)  # shares of a batch by length, which are encoded apart
_EVERY = 4  # rows, of which one tells the common direction of bodies


@dataclass(frozen=True, slots=True)
class RetrieverRecipe:
    """How it learns: by `batch` requests at a time, against each other's skills and one more for each.

    `temperature` divides cosines, `near` is the weight of requests that their skill does not serve, of which
    the share `drawn` is learned from, `map_rate` the rate of the map of bodies, and `share` that of the
    requests of other folds that are learned from.
    """

    rank: int = 32
    epochs: int = 4
    batch: int = 48
    temperature: float = 0.04
    rate: float = 5e-4
    map_rate: float = 2e-3
    decay: float = 0.01
    near: float = 0.5
    drawn: float = 0.34
    share: float = 1.0
    seed: int = 0


class TwoSides(AdaptedNetwork):
    """An adapted network for requests and the heads of skills, and a linear map of bodies."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, torch.Generator().manual_seed(seed))
        self.body = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.skip = torch.nn.Parameter(torch.tensor(0.3))

    def texts(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the unit vectors of texts, given as ids; shape `(texts, 384)`."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        ends = [0, *(int(len(order) * part) for part in _PARTS), len(order)]
        groups = [order[begin:end] for begin, end in itertools.pairwise(ends) if end > begin]
        found = []
        for group in groups:
            ids, inside = padded([[FIRST, *texts[place], LAST] for place in group])
            found.append(mean_states(self.states(ids, torch.zeros_like(ids), inside), inside))
        back = torch.tensor(np.argsort(np.concatenate(groups)))
        return functional.normalize(torch.cat(found), dim=1)[back]

    def skills(self, heads: Sequence[Sequence[int]], bodies: torch.Tensor) -> torch.Tensor:
        """Return the unit vectors of skills, shape `(skills, 384)`, as `Retriever` makes them."""
        added = self.skip * bodies + bodies @ self.body
        return functional.normalize(self.texts(heads) + added, dim=1)


class Group(NamedTuple):
    """A step's requests, near requests of their skills, and the skills, the requests' own first."""

    rows: Rows
    near: Rows
    skills: list[int]


class Teaching:
    """What a retriever learns from: requests and heads as ids, bodies as vectors."""

    def __init__(
        self, held: Requests, tokens: SkillTokens, bodies: Vectors, recipe: RetrieverRecipe, fold: int
    ) -> None:
        self._held, self._recipe, self._bodies = held, recipe, torch.tensor(bodies)
        found = base_tokenizer().encode_batch_fast(held.texts, add_special_tokens=False)
        self._asked = [one.ids[:QUERY] for one in found]
        self._heads = [tokens.of(row)[0][:HEAD].tolist() for row in range(len(tokens.bodies))]
        told = (held.folds != fold) & (held.kinds != FOREIGN)
        self._draw = np.random.default_rng(recipe.seed)
        served = self._draw.permutation(np.flatnonzero(told & (held.kinds != NEAR)))
        self._rows = served[: round(recipe.share * len(served))]
        self._near: dict[int, list[int]] = {}
        for row in np.flatnonzero(told & (held.kinds == NEAR)).tolist():
            self._near.setdefault(int(held.gold[row]), []).append(row)

    def batches(self) -> list[Group]:
        """Return an epoch's requests in groups, in random order."""
        size = min(self._recipe.batch, len(self._rows))
        rows = self._draw.permutation(self._rows)[: len(self._rows) // size * size]
        return [self._group(some) for some in np.split(rows, len(rows) // size)]

    def _group(self, rows: Rows) -> Group:
        gold, first, unsure = self._held.gold[rows].tolist(), self._held.first[rows], self._held.unsure
        more = [
            next((skill for skill in self._draw.permutation(some).tolist() if skill not in unsure[row]), own)
            for row, own, some in zip(rows.tolist(), gold, first, strict=True)
        ]
        near = [own for skill in gold if (own := self._near.get(skill))]
        drawn = [self._draw.choice(own) for own in near if self._draw.random() < self._recipe.drawn]
        return Group(rows, np.array(drawn, dtype=np.int64), list(dict.fromkeys([*gold, *more])))

    def loss(self, network: TwoSides, group: Group) -> torch.Tensor:
        """Return the loss of a step (InfoNCE, van den Oord et al., 2018); near requests move away."""
        place = {skill: at for at, skill in enumerate(group.skills)}
        both = np.concatenate([group.rows, group.near])
        gold = torch.tensor([place[skill] for skill in self._held.gold[both].tolist()])
        skills = network.skills([self._heads[s] for s in group.skills], self._bodies[group.skills])
        asked = network.texts([self._asked[row] for row in both])
        logits, size = asked @ skills.T / self._recipe.temperature, len(group.rows)
        apart = torch.zeros((size, len(place)), dtype=torch.bool)
        for at, row in enumerate(group.rows.tolist()):
            apart[at, [place[s] for s in self._held.unsure[row] if s in place]] = True
            apart[at, gold[at]] = False
        loss = functional.cross_entropy(logits[:size].masked_fill(apart, _NOT), gold[:size])
        if len(group.near):
            told = logits[size:].softmax(1)[torch.arange(len(group.near)), gold[size:]]
            loss = loss - self._recipe.near * torch.log1p(-told.clamp(max=0.99)).mean()
        return loss


def train_retriever(
    held: Requests, tokens: SkillTokens, recipe: RetrieverRecipe, fold: int
) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """Return what `Retriever` reads, learned from all requests but those of a fold."""
    rarity = rarity_of(tokens)
    summed = unit(body_terms(tokens, rarity.astype(np.float32)) @ token_vectors())
    mean = summed.mean(axis=0)
    common = np.linalg.svd((summed - mean)[::_EVERY], full_matrices=False)[2][0]
    zero = np.zeros(1, np.float32)  # of what is not asked for
    centred = BodyMap(zero, zero, zero, mean, common).centred(summed)
    network = TwoSides(recipe.rank, recipe.seed)
    teaching = Teaching(held, tokens, centred, recipe, fold)
    groups = [
        {"params": list(network.adapters.parameters()), "lr": recipe.rate},
        {"params": [network.body, network.skip], "lr": recipe.map_rate},
    ]
    train(
        network, groups, teaching.batches, functools.partial(teaching.loss, network),
        epochs=recipe.epochs, decay=recipe.decay,
    )  # fmt: skip
    learned = {name: getattr(network, name).detach().numpy() for name in ("body", "skip")}
    arrays = learned | {"rarity": rarity, "mean": mean, "common": common}
    return network.arrays() | {name: np.asarray(array, np.float16) for name, array in arrays.items()}


def report(held: Requests, rows: Rows, model: Retriever, tokens: SkillTokens) -> dict[str, list[float]]:
    """Return hit@1 and recall@10 by kind of what the retriever alone finds; of near requests hit@1 alone."""
    skills, ranks = model.skills(tokens), np.empty(len(rows))
    for place, row in enumerate(rows.tolist()):
        cosines, copies = skills @ model.requests([held.texts[row]])[0][0], list(held.copies[row])
        ranks[place] = 1 + (np.delete(cosines, copies) > cosines[copies].max()).sum()
    told = {}
    for kind in sorted(set(held.kinds[rows].tolist())):
        own = ranks[held.kinds[rows] == kind]
        told[kind] = [round(float((own <= k).mean()), 3) for k in ((1,) if kind == NEAR else (1, 10))]
    return told


def main() -> None:
    """Train, write the packaged weights, and tell how well the held-out fold does."""
    given = arguments(main.__doc__, FILE).parse_args()
    held, tokens, _ = found_once(given.work, given.requests, given.corpus, OnnxEncoder(given.encoder))
    arrays = train_retriever(held, tokens, RetrieverRecipe(share=given.share), given.fold)
    np.savez(given.out, **arrays)  # type: ignore[arg-type]
    rows = np.flatnonzero((held.folds == given.fold) & (held.kinds != FOREIGN))
    sys.stdout.write(json.dumps(report(held, rows, Retriever(arrays), tokens)) + "\n")


if __name__ == "__main__":
    main()
