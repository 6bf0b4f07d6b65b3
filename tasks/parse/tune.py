"""Trains the context model: `python -m tasks.parse.tune TRAIN.jsonl`; some ten minutes on two cores.

The upper layers of MiniLM and a head learn to tell node types; embeddings and lower layers stay, so that
what they make of the fragments is worked out once. Seeds are fixed; rounding differs between processors.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from storage.schemas import NODE_TYPES
from tasks.models.export import resolve
from tasks.parse.careful import UNSURE, together
from tasks.parse.context_model import BASE, GRAPH, INPUTS, WEIGHTS, packed, padded
from tasks.parse.context_window import Window, windows
from tasks.parse.labelled import Labelled, agreement, read_labelled
from tasks.parse.train import FOLDS, fit_model, fit_temperature, folds_of, label_weights

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


class Network(torch.nn.Module):
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
class Material:
    """Fragments with labels, their weights, and their states after the lower layers, in half precision."""

    windows: Sequence[Window]
    labels: torch.Tensor
    weights: torch.Tensor
    states: Sequence[torch.Tensor]

    def batch(self, at: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return states, mask and inside of some fragments, padded."""
        _, mask, inside = padded([self.windows[k] for k in at])
        states = torch.zeros(*mask.shape, self.states[0].shape[1])
        for row, k in enumerate(at):
            states[row, : len(self.states[k])] = self.states[k].float()
        return states, torch.from_numpy(mask), torch.from_numpy(inside)


def material(rows: Sequence[Labelled], tuning: Tuning) -> Material:
    """Read fragments with the layers that stay."""
    tokenizer = Tokenizer.from_file(str(Path(resolve(BASE)[0]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    read = windows([row.fragment for row in rows], tokenizer)
    network = Network(tuning).eval()
    states: list[torch.Tensor] = [torch.zeros(0)] * len(read)
    with torch.inference_mode():
        for at in _by_length(range(len(read)), read, 64):
            ids, mask, _ = map(torch.from_numpy, padded([read[k] for k in at]))
            for k, found in zip(at, network.lower(ids, mask), strict=True):
                states[k] = found[: len(read[k].ids)].half().clone()
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    return Material(read, torch.from_numpy(labels), torch.from_numpy(label_weights(rows, labels)), states)


def _by_length(at: Sequence[int], read: Sequence[Window], size: int) -> list[list[int]]:
    order = sorted(at, key=lambda k: len(read[k].ids))
    return [order[start : start + size] for start in range(0, len(order), size)]


def fit(given: Material, at: Sequence[int], tuning: Tuning) -> Network:
    """Return a network trained on some of the fragments."""
    torch.manual_seed(tuning.seed)
    chance, network = np.random.default_rng(tuning.seed), Network(tuning)
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
            losses.append(_step(network, given, some, optimizer, tuning))
            schedule.step()
        sys.stderr.write(f"epoch {epoch + 1} of {tuning.epochs}: loss {np.mean(losses):.3f}\n")
    return network.eval()


def _shuffled(given: Material, at: Sequence[int], size: int, chance: np.random.Generator) -> list[list[int]]:
    """Return batches of like length, drawn out of shuffled groups of ten batches."""
    drawn = chance.permutation(at).tolist()
    groups = [drawn[start : start + 10 * size] for start in range(0, len(drawn), 10 * size)]
    batches = [batch for group in groups for batch in _by_length(group, given.windows, size)]
    return [batches[k] for k in chance.permutation(len(batches))]


def _step(
    network: Network, given: Material, at: list[int], optimizer: torch.optim.Optimizer, tuning: Tuning
) -> float:
    logits = network.upper(*given.batch(at))
    losses = torch.nn.functional.cross_entropy(
        logits, given.labels[at], reduction="none", label_smoothing=tuning.smoothing
    )
    loss = (losses * given.weights[at]).mean()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
    optimizer.step()
    return float(loss.detach())


def predict(network: Network, given: Material, at: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the probabilities of some fragments, shape `(len(at), 6)`."""
    found: dict[int, npt.NDArray[np.float32]] = {}
    with torch.inference_mode():
        for some in _by_length(at, given.windows, 64):
            found.update(zip(some, torch.softmax(network.upper(*given.batch(some)), 1).numpy(), strict=True))
    return np.array([found[k] for k in at], dtype=np.float64)


def held_out(rows: Sequence[Labelled], given: Material, tuning: Tuning, folds: int) -> dict[str, object]:
    """Return how well both looks together do on the first of five folds of documents, and the temperature."""
    fold, first, second = folds_of(rows), [], []
    chosen = [k for n in range(folds) for k in np.flatnonzero(fold == n).tolist()]
    for n in range(folds):
        known, asked = np.flatnonzero(fold != n).tolist(), np.flatnonzero(fold == n).tolist()
        model = fit_model([rows[k] for k in known])
        first.append(model.probabilities([rows[k].fragment for k in asked]))
        second.append(predict(fit(given, known, tuning), given, asked))
    before, asked_rows = np.concatenate(first), [rows[k] for k in chosen]
    both = together(before, np.concatenate(second), temperature=1.0)
    unsure = np.flatnonzero(before.max(axis=1) < UNSURE).tolist()
    temperature = fit_temperature(both[unsure], [asked_rows[k] for k in unsure]) if unsure else 1.0
    after = before.copy()
    after[unsure] = together(before[unsure], np.concatenate(second)[unsure], temperature)
    return {
        "rows": len(chosen),
        "looked at twice": len(unsure) / len(chosen),
        "temperature": temperature,
        "first look": agreement(asked_rows, before)._asdict(),
        "both": agreement(asked_rows, after)._asdict(),
    }


def export(network: Network, folder: Path) -> None:
    """Write the graph without weights, and the weights that training changed, below the package's data."""
    ids = torch.full((2, 8), 5)
    axes = {name: {0: "windows", 1: "tokens"} for name in INPUTS} | {"logits": {0: "windows"}}
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        whole = Path(scratch) / "whole.onnx"
        # The newer exporter gives the weights names of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network, (ids, torch.ones_like(ids), torch.ones_like(ids)), str(whole), dynamo=False,
            input_names=list(INPUTS), output_names=["logits"], dynamic_axes=axes, opset_version=17,
            do_constant_folding=False,  # so that each weight keeps its name
        )  # fmt: skip
        bare = Path(scratch) / "bare.onnx"
        onnx.save(onnx.load(whole), bare, save_as_external_data=True, location="weights", size_threshold=0)
        (folder / GRAPH).write_bytes(bare.read_bytes())
    (folder / WEIGHTS).write_bytes(packed(network.tuned()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Cross-validate over some folds of documents, report on standard output, train on all rows and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="labelled fragments, JSON lines")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder that holds `data`")
    parser.add_argument("--folds", type=int, default=1, choices=range(FOLDS + 1), help="held out, of five")
    parser.add_argument("--epochs", type=int, default=Tuning().epochs)
    options = parser.parse_args(arguments)
    rows, tuning = read_labelled(options.train), Tuning(epochs=options.epochs)
    given = material(rows, tuning)
    if options.folds:
        sys.stdout.write(json.dumps(held_out(rows, given, tuning, options.folds), indent=2) + "\n")
    export(fit(given, range(len(rows)), tuning), options.out)


if __name__ == "__main__":
    main()
