"""Trains the task model, MiniLM with low-rank adapters: labels of words, pairs of steps, what steps seek."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from transformers import AutoModel

from tasks.models.adapted_encoder import BASE, INPUT, MATRICES, SCALE, WIDTH
from tasks.models.onnx_export import resolve
from tasks.models.protocols import Vectors
from tasks.retrieve.compose.chain import BEGIN, INSIDE, LABELS, OUT
from tasks.retrieve.compose.task_model import APART
from tasks.train.compose.requests import LessonBatch, StepLesson, batched, drawn_batches
from tasks.train.networks import bare_graph, train

_NEVER = -1e4
_HIDDEN = 64


class Adapter(torch.nn.Module):
    """An affine map that stays as it is, and what is learned to be added to it (LoRA, equation 3)."""

    def __init__(self, base: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.a = torch.nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return mapped rows."""
        mapped: torch.Tensor = self.base(rows) + SCALE * (rows @ self.a.T) @ self.b.T
        return mapped


class StepNetwork(torch.nn.Module):
    """Labels words, tells what pairs of steps are, and what steps seek."""

    def __init__(self, rank: int, dropout: float) -> None:
        super().__init__()
        folder = resolve(BASE)[0]
        self.bert = AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)
        self.bert.requires_grad_(requires_grad=False)
        self.adapters: dict[str, Adapter] = {}
        for number, layer in enumerate(self.bert.encoder.layer):
            for name in MATRICES:
                adapter = Adapter(layer.get_submodule(name), rank)
                parent, _, own = name.rpartition(".")
                setattr(layer.get_submodule(parent), own, adapter)
                self.adapters[f"{number}.{name}"] = adapter
        self.dropout = torch.nn.Dropout(dropout)
        self.label = torch.nn.Linear(WIDTH, LABELS)
        self.moves = torch.nn.Parameter(torch.zeros(LABELS, LABELS))
        self.pair1 = torch.nn.Linear(3 * WIDTH + APART + 1, _HIDDEN)
        self.pair2 = torch.nn.Linear(_HIDDEN, 3)
        self.query = torch.nn.Linear(WIDTH, WIDTH)
        torch.nn.init.eye_(self.query.weight)
        torch.nn.init.zeros_(self.query.bias)
        self.sharpness = torch.nn.Parameter(torch.tensor(math.log(20.0)))

    def words(self, batch: LessonBatch) -> torch.Tensor:
        """Return the states of words, shape `(lessons, words, 384)`."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = self.bert(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
        places = batch.places[:, :, None].expand(-1, -1, WIDTH)
        found: torch.Tensor = states.float().gather(1, places)
        return found

    def label_loss(self, words: torch.Tensor, batch: LessonBatch) -> torch.Tensor:
        """Return the mean negative log-likelihood of the labels (`chain`, equation 1)."""
        scores = self.label(self.dropout(words))
        moves, inside, labels = self.moves, batch.inside, batch.labels
        # A fourth state is "left out before any step": nothing continues a step before one has begun.
        onward = torch.full((4, 4), _NEVER)
        onward = onward.index_put((torch.tensor(3), torch.tensor([BEGIN, 3])), moves[OUT, [BEGIN, OUT]])
        onward = torch.cat([functional.pad(moves, (0, 1), value=_NEVER), onward[3:]])
        of_states = scores[:, :, [BEGIN, INSIDE, OUT, OUT]]
        total = of_states[:, 0] + torch.tensor([0.0, _NEVER, _NEVER, 0.0])
        for t in range(1, scores.shape[1]):
            reached = torch.logsumexp(total[:, :, None] + onward, dim=1) + of_states[:, t]
            total = torch.where(inside[:, t, None], reached, total)
        right = (scores.gather(2, labels[:, :, None])[:, :, 0] * inside).sum(1)
        right = right + (moves[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(1)
        loss: torch.Tensor = (torch.logsumexp(total, dim=1) - right).mean()
        return loss

    def pair_scores(self, words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
        """Return the scores of what each pair of steps is, shape `(pairs, 3)`."""
        own, n, rows = _pooled(words, lesson), len(lesson.own), []
        for i in range(n):
            for j in range(i + 1, n):
                apart = torch.zeros(APART + 1)
                apart[min(j - i, APART) - 1], apart[APART] = 1, float(j == n - 1)
                rows.append(torch.cat([own[i], own[j], own[i] * own[j], apart]))
        found: torch.Tensor = self.pair2(
            self.dropout(functional.gelu(self.pair1(self.dropout(torch.stack(rows))), approximate="tanh"))
        )
        return found

    def sought(self, words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
        """Return what each step seeks, unit vectors of shape `(steps, 384)`."""
        return functional.normalize(self.query(_pooled(words, lesson)), dim=1)

    def arrays(self) -> dict[str, npt.NDArray[np.float16]]:
        """Return what the task model reads, in half precision."""
        held: dict[str, Any] = {
            "label.w": self.label.weight, "label.b": self.label.bias, "moves": self.moves,
            "pair.w1": self.pair1.weight, "pair.b1": self.pair1.bias,
            "pair.w2": self.pair2.weight, "pair.b2": self.pair2.bias,
            "query.w": self.query.weight, "query.b": self.query.bias,
        }  # fmt: skip
        for name, adapter in self.adapters.items():
            held |= {f"{name}.a": adapter.a, f"{name}.b": adapter.b}
        return {name: value.detach().numpy().astype(np.float16) for name, value in held.items()}


def _pooled(words: torch.Tensor, lesson: StepLesson) -> torch.Tensor:
    return torch.stack([words[own].mean(0) for own in lesson.own])


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the network learns: `hidden` tokens are masked; `pairs` and `sought` weigh losses.

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
    rows = torch.from_numpy(np.array(vectors, dtype=np.float32))
    train(
        network, [{"params": learned, "lr": recipe.rate}],
        lambda: list(drawn_batches(given, recipe.batch, chance)),
        lambda some: _loss(network, batched(some, recipe.hidden), rows, recipe),
        epochs=recipe.epochs, decay=recipe.decay,
    )  # fmt: skip
    return network


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
