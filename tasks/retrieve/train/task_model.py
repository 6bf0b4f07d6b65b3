"""Trains the task model: word labels by their likelihood, pairs of steps, and what steps seek among rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from tasks.models.adapted_encoder import INPUT, WIDTH
from tasks.models.protocols import Vectors
from tasks.models.train.graph import bare_graph
from tasks.retrieve.train.step_lessons import LessonBatch, StepLesson, batched, drawn_batches
from tasks.retrieve.train.step_network import StepNetwork

_CLIP = 1.0
_WARM = 0.1  # share of the steps over which the rate rises; then it falls to 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the network learns (AdamW): `hidden` tokens are masked; `pairs` and `sought` weigh losses.

    `seed` draws the first weights, `order` the order of the lessons and what is masked and dropped.
    """

    rank: int = 32
    epochs: int = 10
    batch: int = 16
    rate: float = 1e-3
    decay: float = 0.01
    dropout: float = 0.1
    hidden: float = 0.15
    pairs: float = 4.0
    sought: float = 0.5
    seed: int = 0
    order: int = 0


def train_network(given: Sequence[StepLesson], vectors: Vectors, recipe: Recipe) -> StepNetwork:
    """Return a network that learned from lessons; `vectors`, shape `(rows, 384)`, are those of the rows."""
    torch.manual_seed(recipe.seed)
    chance, network = np.random.default_rng(recipe.order), StepNetwork(recipe.rank, recipe.dropout)
    torch.manual_seed(recipe.order)
    learned = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=recipe.rate, weight_decay=recipe.decay)
    steps = recipe.epochs * math.ceil(len(given) / recipe.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (_WARM * steps), 1.0) * max(0.02, 1 - step / steps)
    )
    rows = torch.from_numpy(np.array(vectors, dtype=np.float32))
    network.train()
    for epoch in range(recipe.epochs):
        losses = []
        for some in drawn_batches(given, recipe.batch, chance):
            loss = _loss(network, batched(some, recipe.hidden), rows, recipe)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(learned, _CLIP)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        sys.stderr.write(f"epoch {epoch + 1} of {recipe.epochs}: loss {np.mean(losses):.3f}\n")
    return network.eval()


def train_average(
    given: Sequence[StepLesson], vectors: Vectors, recipe: Recipe, orders: int
) -> dict[str, npt.NDArray[np.float16]]:
    """Return the mean weights of networks that learned from the same first weights in different orders.

    After Wortsman et al., "Model soups", ICML 2022, section 2.
    """
    networks = (train_network(given, vectors, replace(recipe, order=order)) for order in range(orders))
    every = [network.arrays() for network in networks]
    return {
        name: np.mean([arrays[name].astype(np.float32) for arrays in every], axis=0).astype(np.float16)
        for name in every[0]
    }


def _loss(network: StepNetwork, batch: LessonBatch, rows: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    words = network.words(batch)
    loss = network.label_loss(words, batch)
    several = [(own, lesson) for own, lesson in zip(words, batch.lessons, strict=True) if lesson.pairs]
    if several:
        scores = torch.cat([network.pair_scores(own, lesson) for own, lesson in several])
        kinds = torch.tensor([kind for _, lesson in several for kind in lesson.pairs])
        loss = loss + recipe.pairs * functional.cross_entropy(scores, kinds)
    served = [
        (own, lesson, lesson.served)
        for own, lesson in zip(words, batch.lessons, strict=True)
        if lesson.served
    ]
    if served:
        sought = torch.cat([network.sought(own, lesson) for own, lesson, _ in served])
        right = torch.zeros(len(sought), len(rows), dtype=torch.bool)
        for place, serving in enumerate(serving for *_, of_steps in served for serving in of_steps):
            right[place, serving] = True
        scores = network.sharpness.exp() * (sought @ rows.T)
        missed = torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~right, -1e9), 1)
        loss = loss + recipe.sought * missed[right.any(1)].mean()
    return loss


class _Layers(torch.nn.Module):
    """The layers of the encoder on embedded tokens of one text."""

    def __init__(self, network: StepNetwork) -> None:
        super().__init__()
        self.bert = network.bert
        for layer in self.bert.encoder.layer:  # bare, so that each weight keeps its name
            for name, module in list(layer.named_modules()):
                if hasattr(module, "base"):
                    parent, _, own = name.rpartition(".")
                    setattr(layer.get_submodule(parent), own, module.base)

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.bert.embeddings.LayerNorm(embedded)
        for layer in self.bert.encoder.layer:
            found = layer(states, None)
            states = found[0] if isinstance(found, tuple) else found
        return states


def write_graph(file: Path) -> None:
    """Write the graph of `AdaptedEncoder`, without weights."""
    layers = _Layers(StepNetwork(1, 0.0)).eval()
    axes = {INPUT: {1: "tokens"}, "states": {1: "tokens"}}
    file.write_bytes(bare_graph(layers, (torch.zeros(1, 8, WIDTH),), [INPUT], "states", axes))
