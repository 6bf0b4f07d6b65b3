"""The network of the context model, and how it learns; `tasks.parse.train.context_model` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from storage.schemas import NODE_TYPES
from tasks.models.onnx_export import resolve
from tasks.parse.classify.context_model import BASE, Window, padded, windows
from tasks.parse.classify.protocol import FragmentInContext
from tasks.parse.train.labelled import Labelled
from tasks.parse.train.local_model import label_weights

_AWAY = -1e9
_CLIP = 1.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the upper layers are trained: AdamW, a warm-up over a tenth of the steps, then linear to 0."""

    frozen: int = 3
    epochs: int = 3
    batch: int = 32
    rate: float = 2e-4
    head_rate: float = 1e-3
    decay: float = 0.01
    smoothing: float = 0.05
    dropout: float = 0.1
    seed: int = 0


class ContextNetwork(torch.nn.Module):
    """MiniLM and a head on the mean state of the fragment's tokens beside that of the whole window."""

    def __init__(self, tuning: Tuning) -> None:
        super().__init__()
        folder = resolve(BASE)[0]
        self.bert = AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)
        self.head = torch.nn.Linear(2 * self.bert.config.hidden_size, len(NODE_TYPES))
        self.frozen, self.dropout = tuning.frozen, torch.nn.Dropout(tuning.dropout)
        lower = self.bert.encoder.layer[: tuning.frozen]
        for parameter in (*self.bert.embeddings.parameters(), *lower.parameters()):
            parameter.requires_grad = False

    def lower(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the states after the layers that stay as they are."""
        return self._through(self.bert.embeddings(input_ids=ids), mask, 0, self.frozen)

    def upper(self, states: torch.Tensor, mask: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Return logits from these states."""
        states = self._through(states, mask, self.frozen, len(self.bert.encoder.layer))
        own = inside[:, :, None].to(states.dtype)
        mean = (states * own).sum(1) / own.sum(1).clamp(min=1)
        logits: torch.Tensor = self.head(self.dropout(torch.cat([mean, states[:, 0]], dim=1)))
        return logits

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Return logits, shape `(windows, 6)`, from `padded` windows."""
        return self.upper(self.lower(ids, mask), mask, inside)

    def _through(self, states: torch.Tensor, mask: torch.Tensor, first: int, end: int) -> torch.Tensor:
        away = (1 - mask[:, None, None, :].to(states.dtype)) * _AWAY
        for layer in self.bert.encoder.layer[first:end]:
            found = layer(states, away)
            states = found[0] if isinstance(found, tuple) else found
        return states

    def tuned(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the weights that training changed, by their names."""
        return {n: p.detach().numpy() for n, p in self.named_parameters() if p.requires_grad}


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Fragments with what they are to be called, and their states after the lower layers, in half precision.

    Args:
        windows: The fragments, `n` of them.
        states: Of each, shape `(tokens, dimension)`.
        targets: Probabilities of the types, shape `(n, 6)`.
        weights: What each counts.
    """

    windows: Sequence[Window]
    states: Sequence[torch.Tensor]
    targets: torch.Tensor
    weights: torch.Tensor

    def batch(self, at: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return states, mask and inside of some fragments, padded."""
        _, mask, inside = padded([self.windows[k] for k in at])
        states = torch.zeros(*mask.shape, self.states[0].shape[1])
        for row, k in enumerate(at):
            states[row, : len(self.states[k])] = self.states[k].float()
        return states, torch.from_numpy(mask), torch.from_numpy(inside)


def material(rows: Sequence[Labelled], tuning: Tuning) -> TrainingSet:
    """Read labelled fragments with the layers that stay; labels are smoothed."""
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    read, states = _states([row.fragment for row in rows], tuning)
    targets = torch.nn.functional.one_hot(torch.from_numpy(labels), len(NODE_TYPES)).float()
    smooth = targets * (1 - tuning.smoothing) + tuning.smoothing / len(NODE_TYPES)
    return TrainingSet(read, states, smooth, torch.from_numpy(label_weights(rows, labels)))


def material_of(
    fragments: Sequence[FragmentInContext], targets: npt.NDArray[np.float64], tuning: Tuning
) -> TrainingSet:
    """Read fragments with the layers that stay; `targets` are probabilities, shape `(n, 6)`."""
    read, states = _states(fragments, tuning)
    return TrainingSet(read, states, torch.from_numpy(targets).float(), torch.ones(len(read)))


def _states(
    fragments: Sequence[FragmentInContext], tuning: Tuning
) -> tuple[Sequence[Window], Sequence[torch.Tensor]]:
    tokenizer = Tokenizer.from_file(str(Path(resolve(BASE)[0]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    read = windows(fragments, tokenizer)
    network = ContextNetwork(tuning).eval()
    states: list[torch.Tensor] = [torch.zeros(0)] * len(read)
    with torch.inference_mode():
        for at in _by_length(range(len(read)), read, 64):
            ids, mask, _ = map(torch.from_numpy, padded([read[k] for k in at]))
            for k, found in zip(at, network.lower(ids, mask), strict=True):
                states[k] = found[: len(read[k].ids)].half().clone()
    return read, states


def _by_length(at: Sequence[int], read: Sequence[Window], size: int) -> list[list[int]]:
    order = sorted(at, key=lambda k: len(read[k].ids))
    return [order[start : start + size] for start in range(0, len(order), size)]


def fit(
    given: TrainingSet, at: Sequence[int], tuning: Tuning, start: ContextNetwork | None = None
) -> ContextNetwork:
    """Return a network trained on some of the fragments, from a copy of `start` on if there is one."""
    torch.manual_seed(tuning.seed)
    chance, network = np.random.default_rng(tuning.seed), ContextNetwork(tuning)
    if start is not None:
        network.load_state_dict(start.state_dict())
    body = [p for n, p in network.named_parameters() if p.requires_grad and not n.startswith("head")]
    groups = [
        {"params": body, "lr": tuning.rate},
        {"params": network.head.parameters(), "lr": tuning.head_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=tuning.decay)
    steps = tuning.epochs * -(-len(at) // tuning.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 10 * (step + 1) / steps) * max(0.0, (steps - step) / steps)
    )
    network.train()
    for epoch in range(tuning.epochs):
        losses = []
        for some in _shuffled(given, at, tuning.batch, chance):
            losses.append(_step(network, given, some, optimizer))
            schedule.step()
        sys.stderr.write(f"epoch {epoch + 1} of {tuning.epochs}: loss {np.mean(losses):.3f}\n")
    return network.eval()


def _shuffled(
    given: TrainingSet, at: Sequence[int], size: int, chance: np.random.Generator
) -> list[list[int]]:
    """Return batches of like length, drawn out of shuffled groups of ten batches."""
    drawn = chance.permutation(at).tolist()
    groups = [drawn[start : start + 10 * size] for start in range(0, len(drawn), 10 * size)]
    batches = [batch for group in groups for batch in _by_length(group, given.windows, size)]
    return [batches[k] for k in chance.permutation(len(batches))]


def _step(
    network: ContextNetwork, given: TrainingSet, at: list[int], optimizer: torch.optim.Optimizer
) -> float:
    said = torch.log_softmax(network.upper(*given.batch(at)), 1)
    loss = -((given.targets[at] * said).sum(1) * given.weights[at]).mean()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
    optimizer.step()
    return float(loss.detach())


def predict(network: ContextNetwork, given: TrainingSet, at: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the probabilities of some fragments, shape `(len(at), 6)`."""
    found: dict[int, npt.NDArray[np.float32]] = {}
    with torch.inference_mode():
        for some in _by_length(at, given.windows, 64):
            found.update(zip(some, torch.softmax(network.upper(*given.batch(some)), 1).numpy(), strict=True))
    return np.array([found[k] for k in at], dtype=np.float64)
