"""Trains the context model: `python -m tasks.train.context_model TRAIN.jsonl`, about ten minutes.

The upper layers of MiniLM and a head learn to tell node types; embeddings and lower layers stay, so that
what they make of the fragments is worked out once. With `--corpus` what was learned is taught to a second
one on fragments that nobody labelled, and that goes on with the labels: 25 minutes. Seeds are fixed;
rounding differs between processors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from storage.schemas import NODE_TYPES
from tasks import parse
from tasks.models.onnx_export import resolve
from tasks.parse.classify.cascade import UNSURE, together
from tasks.parse.classify.context_model import BASE, GRAPH, INPUTS, WEIGHTS, Window, packed, padded, windows
from tasks.parse.classify.local import LocalModel
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train.fragments import Labelled, agreement, draw_unlabelled, hidden, read_labelled
from tasks.train.local_model import FOLDS, answers_of, fit_model, fit_temperature, label_weights
from tasks.train.networks import bare_graph, train
from tasks.train.splits import folds_of

_AWAY = -1e9


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the upper layers are trained, by `networks.train`."""

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
        self.tuning, self.frozen, self.dropout = tuning, tuning.frozen, torch.nn.Dropout(tuning.dropout)
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

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`."""
        unknown = np.zeros((len(fragments), len(NODE_TYPES)))
        return predict(self, material_of(fragments, unknown, self.tuning), range(len(fragments)))

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
    smooth = np.eye(len(NODE_TYPES))[labels] * (1 - tuning.smoothing) + tuning.smoothing / len(NODE_TYPES)
    found = material_of([row.fragment for row in rows], smooth, tuning)
    return replace(found, weights=torch.from_numpy(label_weights(rows, labels)))


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
        {"params": [*network.head.parameters()], "lr": tuning.head_rate},
    ]

    def loss(some: list[int]) -> torch.Tensor:
        said = torch.log_softmax(network.upper(*given.batch(some)), 1)
        return -((given.targets[some] * said).sum(1) * given.weights[some]).mean()

    train(
        network, groups, lambda: _shuffled(given, at, tuning.batch, chance), loss,
        epochs=tuning.epochs, decay=tuning.decay,
    )  # fmt: skip
    return network


def _shuffled(
    given: TrainingSet, at: Sequence[int], size: int, chance: np.random.Generator
) -> list[list[int]]:
    """Return batches of like length, drawn out of shuffled groups of ten batches."""
    drawn = chance.permutation(at).tolist()
    groups = [drawn[start : start + 10 * size] for start in range(0, len(drawn), 10 * size)]
    batches = [batch for group in groups for batch in _by_length(group, given.windows, size)]
    return [batches[k] for k in chance.permutation(len(batches))]


def predict(network: ContextNetwork, given: TrainingSet, at: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the probabilities of some fragments, shape `(len(at), 6)`."""
    found: dict[int, npt.NDArray[np.float32]] = {}
    with torch.inference_mode():
        for some in _by_length(at, given.windows, 64):
            found.update(zip(some, torch.softmax(network.upper(*given.batch(some)), 1).numpy(), strict=True))
    return np.array([found[k] for k in at], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned from."""

    rows: Sequence[Labelled]  # labelled fragments
    given: TrainingSet  # the same, read
    tuning: Tuning  # how
    # Fragments of other documents; none: labels alone teach.
    unlabelled: Sequence[FragmentInContext] = field(default_factory=tuple)


def trained(lesson: Lesson, known: Sequence[int], first: LocalModel) -> ContextNetwork:
    """Return a network that knows some of the rows; `first` is the local model of the same rows."""
    network = fit(lesson.given, known, lesson.tuning)
    if not lesson.unlabelled:
        return network
    gently = replace(lesson.tuning, rate=1e-4, head_rate=5e-4, epochs=2)
    student = taught(lesson, network, first)
    return fit(lesson.given, known, gently, start=student)


def taught(lesson: Lesson, teacher: ContextNetwork, first: LocalModel) -> ContextNetwork:
    """Return a network that learned what teacher and local model together say of unlabelled fragments."""
    said = answers_of(first, teacher, lesson.unlabelled)
    read = material_of(hidden(said.fragments), said.targets, lesson.tuning)
    return fit(read, range(len(said.fragments)), replace(lesson.tuning, epochs=1))


def held_out(lesson: Lesson, folds: int) -> dict[str, object]:
    """Return how well both looks together do on the first of five folds of documents, and the temperature."""
    rows, fold = lesson.rows, folds_of([row.doc_id for row in lesson.rows], FOLDS)
    first, second = [], []
    chosen = [k for n in range(folds) for k in np.flatnonzero(fold == n).tolist()]
    for n in range(folds):
        known, asked = np.flatnonzero(fold != n).tolist(), np.flatnonzero(fold == n).tolist()
        model = fit_model([rows[k] for k in known])
        network = trained(lesson, known, model)
        if lesson.unlabelled:
            said = answers_of(model, network, lesson.unlabelled)
            model = fit_model([rows[k] for k in known], answered=said)
        first.append(model.probabilities([rows[k].fragment for k in asked]))
        second.append(predict(network, lesson.given, asked))
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
        "second look alone": agreement(asked_rows, np.concatenate(second))._asdict(),
        "both": agreement(asked_rows, after)._asdict(),
    }


def export(network: ContextNetwork, folder: Path) -> None:
    """Write the graph without weights, and the weights that training changed, below the package's data."""
    ids = torch.full((2, 8), 5)
    axes = {name: {0: "windows", 1: "tokens"} for name in INPUTS} | {"logits": {0: "windows"}}
    example = (ids, torch.ones_like(ids), torch.ones_like(ids))
    (folder / GRAPH).write_bytes(bare_graph(network, example, INPUTS, "logits", axes))
    (folder / WEIGHTS).write_bytes(packed(network.tuned()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Cross-validate over some folds of documents, report on standard output, train on all rows and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="labelled fragments, JSON lines")
    parser.add_argument("--corpus", type=Path, help="Parquet of skills that nobody labelled")
    parser.add_argument("--without", type=Path, help="JSON lines with the doc_id of skills not to learn from")
    parser.add_argument(
        "--out", type=Path, default=Path(parse.__file__).parent, help="folder that holds `data`"
    )
    parser.add_argument("--folds", type=int, default=1, choices=range(FOLDS + 1), help="held out, of five")
    parser.add_argument("--epochs", type=int, default=Tuning().epochs)
    options = parser.parse_args(arguments)
    rows, tuning = read_labelled(options.train), Tuning(epochs=options.epochs)
    unlabelled = draw_unlabelled(options.corpus, rows, options.without) if options.corpus else []
    lesson = Lesson(rows, material(rows, tuning), tuning, unlabelled)
    if options.folds:
        sys.stdout.write(json.dumps(held_out(lesson, options.folds), indent=2) + "\n")
    export(trained(lesson, range(len(rows)), fit_model(rows)), options.out)


if __name__ == "__main__":
    main()
