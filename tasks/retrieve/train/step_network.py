"""The step network: MiniLM with low-rank adapters and three heads, as the task model has them, in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from transformers import AutoModel

from tasks.models.adapted_encoder import BASE, MATRICES, SCALE, WIDTH
from tasks.models.onnx_export import resolve
from tasks.retrieve.compose.chain import BEGIN, INSIDE, LABELS, OUT
from tasks.retrieve.compose.task_model import APART
from tasks.retrieve.train.step_lessons import LessonBatch, StepLesson

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
