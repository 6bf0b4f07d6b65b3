"""Trains routing's models for the command by SkillRouter's recipe, and measures what that changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flows.commands.console import folder_at, progress
from flows.commands.routing.settings import TrainingOptions, load_skillrouter, load_training
from flows.commands.train.data import Encoders, Material, described, gather, gather_lists
from flows.commands.train.measures import fitted_scorer, measured
from flows.settings import Settings
from storage.errors import WrongInput
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.corpus.read import read_categories
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.data import read_skills
from tasks.evaluate.routing.measures import require_measures
from tasks.models.cached_encoder import load_kept_encoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder, resolve
from tasks.models.with_torch.reranker import load_reranker
from tasks.models.with_torch.training import Trained, require_training, train_bi_encoder, train_reranker
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.train.paired import PAIRS_FILE, asked_of, read_pairs
from tasks.retrieve.train.rows import list_rows, text_form, training_rows

_CARD, _BASIS, _ENCODER = "training.json", "basis.json", "encoder.json"


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the command: corpora, where models go, queries at most, a reranker, the seed.

    `requests` is a folder with pairs of request and skill, `PAIRS_FILE`; None: queries are made from bodies.
    """

    corpora: Sequence[Path]
    out: Path
    pairs: int = 2500
    reranker: str | None = None
    seed: int = 0
    requests: Path | None = None


def train_routing(root: Root, settings: Settings, wishes: Wishes) -> dict[str, Any]:
    """Train a bi-encoder on queries of a corpus' skills, and measure it on skills it never saw.

    The folder gets `encoder/`, a sentence-transformers model that `SKILLERY_ENCODER` can name; `pairs.jsonl`,
    each query with its negatives and where they were found; `encoder.json`, by which an encoder is not
    trained twice; with a reranker `reranker/`; and, last,
    `training.json`, which is what is returned. A run that was cut off goes on from its last checkpoint; one
    that is done is not done again.

    Returns:
        `out`, `encoder`, `base`, `material` (counts of skills, queries, negatives by source and false ones by
        layer), `training` (updates, seconds, tokens, tokens_per_second, first and last loss), `scorer`
        (weights of the listwise scorer of the router's parts), `reranker` (as `training`, or null), `methods`
        and `contests` on held-out skills, and `helps`: whether the router ranks them better with the trained
        encoder than with the base.

    Raises:
        WrongInput: A package is missing, a corpus cannot be read or is too small, or the folder holds another
            training.
    """
    options = load_training()
    require_measures()
    require_training()
    with progress("skills read") as report:
        frame = read_skills(wishes.corpora, report).sort("doc_id")
    skills = [Skill(*row) for row in frame.select(Skill._fields).iter_rows()]
    asked = None
    if wishes.requests is not None:
        asked = asked_of(read_pairs(wishes.requests / PAIRS_FILE), skills)
    folder = folder_at(wishes.out)
    basis = _basis(skills, settings, options, wishes)
    done = _require_same(folder, basis, wishes.out)
    if done is not None:
        return done
    base = _encoders(root, settings, settings.encoder)
    categories = read_categories(wishes.corpora)
    material = gather(skills, categories, base, options, pairs=wishes.pairs, seed=wishes.seed, asked=asked)
    _write_pairs(wishes.out / "pairs.jsonl", material)
    if (training := folder.read_json(_ENCODER)) is None:
        training = _train(material, base, settings, options, wishes)
        folder.write_json(_ENCODER, training)
    name = str(wishes.out / "encoder")
    found = {
        "out": str(wishes.out), "encoder": name, "base": settings.encoder,
        "material": described(material), "training": training,
        **_ranked(material, base, _encoders(root, settings, name), settings.device, options, wishes),
    }  # fmt: skip
    folder.write_json(_CARD, found)
    return found


def _ranked(
    material: Material,
    base: Encoders,
    trained: Encoders,
    device: str,
    options: TrainingOptions,
    wishes: Wishes,
) -> dict[str, Any]:
    """Train what puts the router's candidates in order, and measure everything on held-out skills."""
    router = material.train.router(trained)
    queries, lists = gather_lists(material, router, options, wishes.seed)
    scorer = fitted_scorer(material, router, queries, lists.negatives)
    reranker, model = None, None
    if wishes.reranker is not None:
        text = text_form("flat", options.reranker_tokens, trained.skills)
        rows = list_rows(material.skills, queries, lists.negatives, text)
        target, how = wishes.out / "reranker", options.reranker_training(wishes.seed, device)
        told, loss = load_skillrouter().reranker_instruction, options.reranker_loss
        with progress("updates made to the reranker") as report:
            trained_as = train_reranker(
                wishes.reranker, rows, how, target, report, loss=loss, instruction=told
            )
        reranker = _card(trained_as)
        model = load_reranker(
            str(target), instruction=told, max_tokens=options.reranker_tokens, device=device
        )
    return {
        "scorer": {"weights": scorer, "false_negatives": dict(lists.removed)}, "reranker": reranker,
        **measured(material, base, trained, scorer, model, options),
    }  # fmt: skip


def _train(
    material: Material, base: Encoders, settings: Settings, options: TrainingOptions, wishes: Wishes
) -> dict[str, Any]:
    text = text_form(options.text, options.tokens, base.skills)
    rows = training_rows(
        material.skills, material.queries, material.mined.negatives, text,
        drawn=options.drawn, epochs=options.epochs, draw=np.random.default_rng([wishes.seed, 4]),
    )  # fmt: skip
    if not rows:
        msg = f"no query has {options.drawn} negatives: give a larger corpus, or draw fewer"
        raise WrongInput(msg)
    texts, target = [row.texts for row in rows], wishes.out / "encoder"
    with progress("updates made to the encoder") as report:
        how = options.encoder_training(wishes.seed, settings.device)
        return _card(train_bi_encoder(settings.encoder, texts, how, target, report))


def _card(trained: Trained) -> dict[str, Any]:
    losses = [loss for _, loss in trained.losses]
    tenth = max(len(losses) // 10, 1)
    return {
        "updates": trained.steps, "seconds": round(trained.seconds, 1), "tokens": trained.tokens,
        "tokens_per_second": round(trained.tokens / trained.seconds),
        "first_loss": float(np.mean(losses[:tenth])), "last_loss": float(np.mean(losses[-tenth:])),
    }  # fmt: skip


def _encoders(root: Root, settings: Settings, name: str) -> Encoders:
    folder = exported_encoder(root.folder / "models", name)
    asking = Remembering(OnnxEncoder(folder, threads=settings.query_threads or 1))
    return Encoders(load_kept_encoder(root.uri, str(folder)), asking)


def _basis(
    skills: Sequence[Skill], settings: Settings, options: TrainingOptions, wishes: Wishes
) -> dict[str, Any]:
    """Return what decides the outcome."""
    texts = hashlib.sha256("".join(map(digest_of, skills)).encode()).hexdigest()
    return {
        "skills": texts, "encoder": settings.encoder, "weights": resolve(settings.encoder)[1],
        "pairs": wishes.pairs, "reranker": wishes.reranker, "seed": wishes.seed,
        "requests": None if wishes.requests is None else _digest(wishes.requests / PAIRS_FILE),
        "instruction": load_skillrouter().reranker_instruction if wishes.reranker else None,
        # Trainings from before distillation was deleted are known by it.
        "settings": {**options.model_dump(), "distilled": False},
    }  # fmt: skip


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _require_same(folder: Root, basis: dict[str, Any], out: Path) -> dict[str, Any] | None:
    """Return what a finished training of this basis came to; None: it is not done."""
    known = folder.read_json(_BASIS)
    if known is None:
        if any(out.iterdir()):
            msg = f"--out {out} holds other files: give a folder that is empty or not there yet"
            raise WrongInput(msg)
        folder.write_json(_BASIS, basis)
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
