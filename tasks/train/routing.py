"""Training of routing's models by SkillRouter's recipe, and what it changed on skills that it never saw."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from storage.schemas import Qrel
from tasks.evaluate.routing.bench import RoutingMethod, measure_method, whole
from tasks.evaluate.routing.data import RoutingBench, RoutingQuery
from tasks.evaluate.routing.measures import contest, summarise_method
from tasks.models.onnx_export import resolve
from tasks.models.with_torch.reranker import PairScorer, load_reranker
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.hard_negatives import Negative
from tasks.train.logistic import Choice, Numbers, fit_choice
from tasks.train.material import (
    Encoders,
    Material,
    Progress,
    Rank,
    TextOf,
    gather,
    gather_lists,
    list_rows,
    text_form,
    training_rows,
)
from tasks.train.queries import PAIRS_FILE, PairedQueries, TrainingOptions, TrainingQuery
from tasks.train.trainers import Trained, TrainingSettings, train_bi_encoder, train_reranker

_CARD, _BASIS, _ENCODER = "training.json", "basis.json", "encoder.json"
_PENALTY = 1e-3  # of the squared weights of the router's parts
DECISIVE = "mrr@10"
DEFAULT, TRAINED = "default", "default, trained"  # the router with the base encoder and with the trained one
_UNFITTED = "named"  # the part of an exact name, which outweighs all others: no weight may touch it


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

        `categories` are by doc_id, of skills that have one; `asked` are the queries of `requests`. The folder
        `out`, which is there, gets `encoder/`, a sentence-transformers model; `pairs.jsonl`, each query with
        its negatives and where they were found; `encoder.json`, by which an encoder is not trained twice;
        with a reranker `reranker/`; and, last, `training.json`, the card. A run that was cut off goes on from
        its last checkpoint; one that is done is not done again.

        Returns:
            `out`, `encoder`, `base`, `material` (`Material.counts`), `training` (updates, seconds, tokens,
            tokens_per_second, first and last loss), `scorer` (weights of the listwise scorer of the router's
            parts), `reranker` (as `training`, or null), `methods` and `contests` on held-out skills, and
            `helps`: whether the router ranks them better with the trained encoder than with the base;
            `pooling`: how it makes a vector, `last` of which no index can be of.

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
        text = text_form(options.text, options.tokens, base.skills, options.limits)
        drawn = training_rows(material, text, options, np.random.default_rng([self.seed, 4]))
        rows = [(f"{options.query_prefix}{query}", *texts) for query, *texts in drawn]
        if not rows:
            raise WrongInput(f"no query has {options.drawn} negatives: give a larger corpus, or draw fewer")
        how = TrainingSettings(
            options.batch, options.learning_rate, options.temperature, options.kept, options.tokens,
            seed=self.seed, device=self.device, accumulation=options.accumulation,
            checkpointing=options.checkpointing, pooling=options.pooling,
        )  # fmt: skip
        with self.progress("updates made to the encoder") as report:
            return _card(train_bi_encoder(self.encoder, rows, how, self.out / "encoder", report))

    def _ranked(self, material: Material, base: Encoders, trained: Encoders) -> dict[str, Any]:
        """Train what puts the router's candidates in order, and measure everything on held-out skills."""
        router = material.train.router(trained)
        rank = first_stage(material.train.skills, router, trained, self.options)
        queries, lists = gather_lists(material, rank, self.options, self.seed, self.progress)
        weights = _part_weights(material, router, queries, lists.negatives)
        reranker, model = None, None
        if self.reranker is not None:
            limits = self.options.reranker_limits
            text = text_form("flat", self.options.reranker_tokens, trained.skills, limits)
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
            checkpointing=self.options.checkpointing, bf16=self.options.reranker_bf16,
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
            "settings": {**self.options.told(), "distilled": False},
        }  # fmt: skip


def _part_weights(
    material: Material, router: Router, queries: Sequence[TrainingQuery], lists: Sequence[Sequence[Negative]]
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
            raise WrongInput(f"--out {out} holds other files: give a folder that is empty or not there yet")
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


def part_features(router: Router, task: str) -> tuple[list[str], Numbers]:
    """Return the names of the router's parts and their values for a task, shape `(skills, parts)`."""
    parts = {name: part for name, part in router.parts(task).items() if name != _UNFITTED}
    return list(parts), np.stack([np.asarray(part, dtype=np.float64) for part in parts.values()], axis=1)


def measured(
    material: Material, base: Encoders, trained: Encoders, weights: Mapping[str, float],
    reranker: PairScorer | None, options: TrainingOptions, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Return `methods`, `contests` with the default router task by task, and `helps`, on held-out skills.

    `weights` are those of the router's parts. A query's one relevant skill is that which it was made from.
    """
    tasks = [RoutingQuery(query.query_id, query.text) for query in material.asked]
    bench = RoutingBench(tasks, [Qrel(query.query_id, query.query_id, 1) for query in material.asked])
    methods = _methods(material, base, trained, np.array(list(weights.values())), reranker, options)
    steps, total = count(1), len(methods) * len(bench.tasks)
    with progress("held-out queries answered") as report:
        frames = [
            measure_method(bench, name, method, lambda: report(next(steps), total))
            for name, method in methods.items()
        ]
    contests = contest(pl.concat(frames), DEFAULT)
    return {
        "methods": [summarise_method(frame) for frame in frames], "contests": contests,
        "helps": helps(contests, TRAINED), "pooling": options.pooling,
    }  # fmt: skip


def helps(contests: Sequence[Mapping[str, Any]], method: str) -> bool:
    """Tell whether a method beats the baseline in MRR@10: its whole 95 % interval lies above 0."""
    (found,) = (c for c in contests if c["method"] == method and c["measure"] == DECISIVE)
    return float(found["low"]) > 0


def _methods(
    material: Material, base: Encoders, trained: Encoders, weights: Numbers, reranker: PairScorer | None,
    options: TrainingOptions,
) -> dict[str, RoutingMethod]:  # fmt: skip
    side = material.held_out
    plain, better = side.router(base), side.router(trained)
    methods = {
        DEFAULT: whole(routed(plain)), TRAINED: whole(routed(better)),
        "dense": whole(dense(side.skills, base, options)),
        "dense, trained": whole(dense(side.skills, trained, options)),
        "scorer, trained": whole(
            by_score(side.skills, lambda task: part_features(better, task)[1] @ weights)
        ),
    }  # fmt: skip
    if reranker is not None:
        flat = text_form("flat", options.reranker_tokens, trained.skills, options.reranker_limits)
        first = first_stage(side.skills, better, trained, options)
        methods["reranked, trained"] = reranked(side.skills, first, reranker, flat, options.candidates)
    return methods


def first_stage(skills: Sequence[Skill], router: Router, trained: Encoders, options: TrainingOptions) -> Rank:
    """Return what ranks the skills that a reranker puts in order."""
    return dense(skills, trained, options) if options.lists_from == "encoder" else routed(router)


def routed(router: Router) -> Rank:
    """Return the default router's ranking, near-identical skills not folded."""
    return lambda task, k: [found.doc_id for found in router.rank(task, k, fold=False)]


def dense(skills: Sequence[Skill], encoders: Encoders, options: TrainingOptions) -> Rank:
    """Return the ranking by the cosine of what an encoder reads of a skill to a task."""
    text = text_form(options.text, options.tokens, encoders.skills, options.limits)
    vectors = encoders.skills.encode([text(skill) for skill in skills])
    return by_score(skills, lambda task: vectors @ encoders.tasks.encode([task])[0])


def by_score(skills: Sequence[Skill], scores: Callable[[str], Any]) -> Rank:
    """Return the ranking of skills by a task's scores, shape `(skills,)`, equal ones by position."""

    def rank(task: str, k: int) -> list[str]:
        return [skills[i].doc_id for i in np.argsort(-scores(task), kind="stable")[:k].tolist()]

    return rank


def reranked(
    skills: Sequence[Skill], first: Rank, scorer: PairScorer, text: TextOf, candidates: int
) -> RoutingMethod:
    """Return the method by which a scorer puts the first candidates in order, and no others."""
    by_id = {skill.doc_id: skill for skill in skills}

    def rank(task: str, k: int) -> list[str]:
        found = list(first(task, max(k, candidates)))
        scores = scorer.score(task, [text(by_id[doc_id]) for doc_id in found[:candidates]])
        order = np.argsort(-scores, kind="stable").tolist()
        return [*(found[i] for i in order), *found[candidates:]][:k]

    return whole(rank)
