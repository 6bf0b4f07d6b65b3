"""Trains the context model: `python -m tasks.parse.train.context_model TRAIN.jsonl`, about ten minutes.

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

from storage.schemas import NODE_TYPES
from tasks.models.train.graph import bare_graph
from tasks.parse.classify.cascade import UNSURE, together
from tasks.parse.classify.context_model import GRAPH, INPUTS, WEIGHTS, packed
from tasks.parse.classify.local import LocalModel
from tasks.parse.classify.protocol import FragmentInContext
from tasks.parse.train.labelled import Labelled, agreement, read_labelled
from tasks.parse.train.local_model import FOLDS, answers_of, fit_model, fit_temperature, folds_of
from tasks.parse.train.network import ContextNetwork, TrainingSet, Tuning, fit, material, material_of, predict
from tasks.parse.train.unlabelled import draw_unlabelled, hidden


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
    said = answers_of(first, TunedClassifier(teacher, lesson.tuning), lesson.unlabelled)
    read = material_of(hidden(said.fragments), said.targets, lesson.tuning)
    return fit(read, range(len(said.fragments)), replace(lesson.tuning, epochs=1))


@dataclass(frozen=True, slots=True)
class TunedClassifier:
    """A network as what tells types from fragments."""

    network: ContextNetwork
    tuning: Tuning

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`."""
        unknown = np.zeros((len(fragments), len(NODE_TYPES)))
        return predict(self.network, material_of(fragments, unknown, self.tuning), range(len(fragments)))


def held_out(lesson: Lesson, folds: int) -> dict[str, object]:
    """Return how well both looks together do on the first of five folds of documents, and the temperature."""
    rows, fold, first, second = lesson.rows, folds_of(lesson.rows), [], []
    chosen = [k for n in range(folds) for k in np.flatnonzero(fold == n).tolist()]
    for n in range(folds):
        known, asked = np.flatnonzero(fold != n).tolist(), np.flatnonzero(fold == n).tolist()
        model = fit_model([rows[k] for k in known])
        network = trained(lesson, known, model)
        if lesson.unlabelled:
            said = answers_of(model, TunedClassifier(network, lesson.tuning), lesson.unlabelled)
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
        "--out", type=Path, default=Path(__file__).parents[1], help="folder that holds `data`"
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
