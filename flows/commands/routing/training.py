"""Training: reads corpora and settings for the command `train routing`, and has the models trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.console import folder_at, progress
from flows.commands.routing.settings import SkillRouterSettings
from flows.settings import Settings, load
from storage.root import Root
from tasks.evaluate.corpus.read import read_categories
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.data import read_skills
from tasks.evaluate.routing.measures import require_measures
from tasks.models.cached_encoder import KeptEncoder, load_kept_encoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.with_torch.bi_encoder import Prefixed, TorchEncoder
from tasks.retrieve.routing.skill import Skill
from tasks.train.material import Encoders
from tasks.train.queries import PAIRS_FILE, TrainingOptions, asked_of, read_pairs
from tasks.train.routing import RoutingTraining
from tasks.train.trainers import require_training


class TrainingEnvironment(BaseSettings, TrainingOptions):
    """The options of training, as the environment sets them."""

    model_config = SettingsConfigDict(env_prefix="SKILLERY_TRAINING_", extra="ignore", frozen=True)


def train_routing(
    root: Root, settings: Settings, corpora: Sequence[Path], out: Path, *, pairs: int = 2500,
    requests: Path | None = None, reranker: str | None = None, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Train a bi-encoder on queries of corpora's skills, and return what `RoutingTraining.run` does.

    Raises `WrongInput` if a package is missing, a corpus cannot be read or is too small, or the folder holds
    another training.
    """
    options = load(TrainingEnvironment)
    require_measures()
    require_training()
    with progress("skills read") as report:
        frame = read_skills(corpora, report).sort("doc_id")

    def encoders(name: str) -> Encoders:
        if options.pooling == "last":  # which no export has
            model = TorchEncoder(name, max_tokens=options.tokens, device=settings.device)
            return Encoders(KeptEncoder(model, root), Remembering(Prefixed(model, options.query_prefix)))
        folder = exported_encoder(root.folder / "models", name)
        one = OnnxEncoder(folder, threads=settings.query_threads or 1)
        asking = Remembering(Prefixed(one, options.query_prefix))
        return Encoders(load_kept_encoder(root.uri, str(folder)), asking)

    training = RoutingTraining(
        options, settings.encoder, encoders, out, progress, pairs, requests, reranker,
        load(SkillRouterSettings).reranker_instruction, seed, settings.device,
    )  # fmt: skip
    skills = [Skill(*row) for row in frame.select(Skill._fields).iter_rows()]
    asked = asked_of(read_pairs(requests / PAIRS_FILE), skills) if requests else None
    folder_at(out)
    return training.run(skills, read_categories(corpora), asked)
