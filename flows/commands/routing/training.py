"""Training of routing for the command: models on skills of corpora, or reading on a root's own requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.commands.console import folder_at, progress
from flows.commands.queries import open_index
from flows.commands.routing.settings import SkillRouterSettings
from flows.settings import Settings, load
from storage.errors import WrongInput
from storage.root import Root
from storage.usage import served_searches
from tasks.evaluate.corpus.read import read_categories
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.data import read_skills
from tasks.evaluate.routing.measures import require_measures
from tasks.models.adapted_encoder import is_base
from tasks.models.cached_encoder import KeptEncoder, load_kept_encoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.with_torch.bi_encoder import Prefixed, TorchEncoder
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.reranker import NONE, REACHES, packaged_pair_scorer
from tasks.retrieve.routing.search import Searcher
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.tuned import Tuned, package_digest, write_tuned
from tasks.train.material import Encoders
from tasks.train.queries import PAIRS_FILE, TrainingOptions, asked_of, read_pairs
from tasks.train.routing import RoutingTraining
from tasks.train.search.own_requests import (
    OwnRequest,
    Tuning,
    judged,
    own_requests,
    packaged_numbers,
    read_own,
)
from tasks.train.search.requests import NEAR, Requests
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


_LOGGED_DAYS = 90
_LOG = "no FILE is given, and the usage log holds nothing that served: it needs SKILLERY_QUERY_LOG=texts"


def train_on_requests(root: Root, settings: Settings, file: Path | None) -> dict[str, Any]:
    """Tune reading on requests and what served them; ship it into the root's state if it is better.

    Returns `requests`, `kept`, what was left out (see `own_requests`), `own` and `packaged` (figures before
    and after, of the requests that decide), `better`, `shipped`, `rerank`, `weight`. Before is what searches
    use now; of the package's requests it is the packaged numbers. Raises `WrongInput` if the file, or the
    log, holds too little; or nothing is read beside the query here.
    """
    asked = read_own(file) if file else [OwnRequest(*one, kept=True) for one in _logged(root)]
    rerank = settings.rerank
    with open_index(root, settings).version() as now:
        index, tokens = now.routing, now.routing.tokens
        if rerank == NONE or not is_base(now.encoder.card):
            msg = "nothing is read beside a query: set SKILLERY_RERANK=best or fast, and the default encoder"
            raise WrongInput(msg)
        if tokens is None:
            raise WrongInput("the index holds no tokens to read beside a query: `skillery run` makes them")
        router = Searcher(now.skills, index, now.encoder, packaged_fit(), NONE, now.threads).router
        own, left = own_requests(asked, index.doc_ids, router, index.sketches)
        model, reach = packaged_pair_scorer(now.threads), REACHES[rerank]

        def odds(held: Requests) -> npt.NDArray[np.float64]:
            read = [
                model.scores(text, [tokens.of(row) for row in rows[: reach.skills]], reach.tokens)
                for text, rows in zip(held.texts, held.first.tolist(), strict=True)
            ]
            return np.array(read, dtype=np.float64)

        used = packaged_numbers(rerank)
        if was := now.tuned:
            used = Tuning(was.weight, np.array(was.reading), was.least)
        found, told = judged(own, odds, rerank, reach, used)
    if told["better"]:
        ship(root, rerank, found, len(own.texts))
    served = int((own.kinds != NEAR).sum())
    counts = {"requests": len(own.texts), "kept": served, **left}
    return {**counts, **told, "shipped": told["better"], "rerank": rerank, "weight": found.weight}


def ship(root: Root, rerank: str, numbers: Tuning, requests: int) -> None:
    """Have searches of a root use numbers that so many requests taught."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    reading = tuple(numbers.reading.tolist())
    write_tuned(root, Tuned(rerank, numbers.weight, reading, numbers.least, requests, at, package_digest()))


def _logged(root: Root) -> list[tuple[str, str]]:
    if found := served_searches(root, datetime.now(UTC), _LOGGED_DAYS):
        return found
    raise WrongInput(_LOG)
