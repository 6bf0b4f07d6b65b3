"""Training of routing's models by SkillRouter's recipe, and what it changed on skills that it never saw."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.models.onnx_export import resolve
from tasks.models.with_torch.reranker import load_reranker
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.hard_negatives import Negative
from tasks.train.logistic import Choice, fit_choice
from tasks.train.material import (
    Encoders,
    Material,
    Progress,
    gather,
    gather_lists,
    list_rows,
    text_form,
    training_rows,
)
from tasks.train.options import TrainingOptions
from tasks.train.queries import PAIRS_FILE, PairedQueries, TrainingQuery
from tasks.train.routing_measures import measured, part_features
from tasks.train.trainers import Trained, TrainingSettings, train_bi_encoder, train_reranker

_CARD, _BASIS, _ENCODER = "training.json", "basis.json", "encoder.json"
_PENALTY = 1e-3  # of the squared weights of the router's parts


@dataclass(frozen=True, slots=True)
class RoutingTraining:
    """A training of routing's models.

    `encoder` is the name of the base, `encoders` opens one by its name. `pairs` are the queries at most, and
    `requests` a folder with pairs of request and skill, `PAIRS_FILE`; None: queries are made from bodies.
    `instruction` is what a causal reranker is told before each pair. `progress` shows how far it is.
    """

    options: TrainingOptions
    encoder: str
    encoders: Callable[[str], Encoders]
    out: Path
    progress: Progress
    pairs: int = 2500
    requests: Path | None = None
    reranker: str | None = None
    instruction: str = ""
    seed: int = 0
    device: str = "auto"

    def run(
        self, skills: list[Skill], categories: dict[str, str], asked: PairedQueries | None = None
    ) -> dict[str, Any]:
        """Train on skills in an order that does not change, and return the card.

        `categories` are by doc_id, of skills that have one; `asked` are the queries of `requests`.

        The folder `out`, which is there, gets `encoder/`, a sentence-transformers model; `pairs.jsonl`, each
        query with its negatives and where they were found; `encoder.json`, by which an encoder is not trained
        twice; with a reranker `reranker/`; and, last, `training.json`, the card. A run that was cut off goes
        on from its last checkpoint; one that is done is not done again.

        Returns:
            `out`, `encoder`, `base`, `material` (`Material.counts`), `training` (updates, seconds, tokens,
            tokens_per_second, first and last loss), `scorer` (weights of the listwise scorer of the router's
            parts), `reranker` (as `training`, or null), `methods` and `contests` on held-out skills, and
            `helps`: whether the router ranks them better with the trained encoder than with the base.

        Raises:
            WrongInput: There are too few skills, or the folder holds another training.
        """
        folder = Root(self.out)
        done = _require_same(folder, self._basis(skills), self.out)
        if done is not None:
            return done
        base = self.encoders(self.encoder)
        material = gather(
            skills, categories, base, self.options, self.progress,
            pairs=self.pairs, seed=self.seed, asked=asked,
        )  # fmt: skip
        _write_pairs(self.out / "pairs.jsonl", material)
        if (training := folder.read_json(_ENCODER)) is None:
            training = self._train_encoder(material, base)
            folder.write_json(_ENCODER, training)
        name = str(self.out / "encoder")
        found = {
            "out": str(self.out), "encoder": name, "base": self.encoder, "material": material.counts(),
            "training": training, **self._ranked(material, base, self.encoders(name)),
        }  # fmt: skip
        folder.write_json(_CARD, found)
        return found

    def _train_encoder(self, material: Material, base: Encoders) -> dict[str, Any]:
        options = self.options
        text = text_form(options.text, options.tokens, base.skills)
        rows = training_rows(material, text, options, np.random.default_rng([self.seed, 4]))
        if not rows:
            msg = f"no query has {options.drawn} negatives: give a larger corpus, or draw fewer"
            raise WrongInput(msg)
        how = TrainingSettings(
            options.batch, options.learning_rate, options.temperature, options.kept, options.tokens,
            seed=self.seed, device=self.device,
        )  # fmt: skip
        with self.progress("updates made to the encoder") as report:
            return _card(train_bi_encoder(self.encoder, rows, how, self.out / "encoder", report))

    def _ranked(self, material: Material, base: Encoders, trained: Encoders) -> dict[str, Any]:
        """Train what puts the router's candidates in order, and measure everything on held-out skills."""
        router = material.train.router(trained)
        queries, lists = gather_lists(material, router, self.options, self.seed, self.progress)
        weights = _part_weights(material, router, queries, lists.negatives)
        reranker, model = None, None
        if self.reranker is not None:
            text = text_form("flat", self.options.reranker_tokens, trained.skills)
            reranker = self._train_reranker(list_rows(material.skills, queries, lists.negatives, text))
            model = load_reranker(
                str(self.out / "reranker"), instruction=self.instruction,
                max_tokens=self.options.reranker_tokens, device=self.device,
            )  # fmt: skip
        return {
            "scorer": {"weights": weights, "false_negatives": dict(lists.removed)}, "reranker": reranker,
            **measured(material, base, trained, weights, model, self.options, self.progress),
        }  # fmt: skip

    def _train_reranker(self, rows: Sequence[Sequence[str]]) -> dict[str, Any]:
        # A reranker's scores are no cosines and have no temperature.
        how = TrainingSettings(
            self.options.reranker_batch, self.options.learning_rate, temperature=1.0,
            tokens=self.options.reranker_tokens, seed=self.seed, device=self.device,
        )  # fmt: skip
        with self.progress("updates made to the reranker") as report:
            trained = train_reranker(
                str(self.reranker), rows, how, self.out / "reranker", report,
                loss=self.options.reranker_loss, instruction=self.instruction,
            )  # fmt: skip
        return _card(trained)

    def _basis(self, skills: Sequence[Skill]) -> dict[str, Any]:
        """Return what decides the outcome."""
        return {
            "skills": _digest("".join(map(digest_of, skills)).encode()), "encoder": self.encoder,
            "weights": resolve(self.encoder)[1], "pairs": self.pairs, "reranker": self.reranker,
            "seed": self.seed,
            "requests": _digest((self.requests / PAIRS_FILE).read_bytes()) if self.requests else None,
            "instruction": self.instruction if self.reranker else None,
            # Trainings from before distillation was deleted are known by it.
            "settings": {**self.options.model_dump(), "distilled": False},
        }  # fmt: skip


def _part_weights(
    material: Material,
    router: Router,
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
) -> dict[str, float]:
    """Return the weight of each part of the router's score, fitted by the listwise loss over lists."""
    place = {row: at for at, row in enumerate(material.train.rows.tolist())}
    choices = []
    for query, candidates in zip(queries, lists, strict=True):
        rows = [place[query.row], *(place[candidate.row] for candidate in candidates)]
        choices.append(Choice(part_features(router, query.text)[1][rows], np.arange(len(rows)) == 0))
    names = part_features(router, queries[0].text)[0]
    return dict(zip(names, map(float, fit_choice(choices, _PENALTY, scaled=False)), strict=True))


def _card(trained: Trained) -> dict[str, Any]:
    losses = [loss for _, loss in trained.losses]
    tenth = max(len(losses) // 10, 1)
    return {
        "updates": trained.steps, "seconds": round(trained.seconds, 1), "tokens": trained.tokens,
        "tokens_per_second": round(trained.tokens / trained.seconds),
        "first_loss": float(np.mean(losses[:tenth])), "last_loss": float(np.mean(losses[-tenth:])),
    }  # fmt: skip


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _require_same(folder: Root, basis: Mapping[str, Any], out: Path) -> dict[str, Any] | None:
    """Return what a finished training of this basis came to; None: it is not done."""
    known = folder.read_json(_BASIS)
    if known is None:
        if any(out.iterdir()):
            msg = f"--out {out} holds other files: give a folder that is empty or not there yet"
            raise WrongInput(msg)
        folder.write_json(_BASIS, dict(basis))
        return None
    if known != basis:
        other = next(key for key in {**basis, **known} if basis.get(key) != known.get(key))
        msg = f"--out {out} holds a training with another {other}: give another folder, or delete this one"
        raise WrongInput(msg)
    return folder.read_json(_CARD)


def _write_pairs(path: Path, material: Material) -> None:
    ids = [skill.doc_id for skill in material.skills]
    write_lines(
        path,
        (
            {
                "query_id": query.query_id,
                "text": query.text,
                "negatives": [{"doc_id": ids[n.row], "source": n.source} for n in negatives],
            }
            for query, negatives in zip(material.queries, material.mined.negatives, strict=True)
        ),
    )
