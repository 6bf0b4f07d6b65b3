"""A root's own requests for the command: reads them, tunes by them, keeps what is better."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flows.commands.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from storage.usage import served_searches
from tasks.models.adapted_encoder import is_base
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.reranker import NONE, REACHES, packaged_pair_scorer
from tasks.retrieve.routing.search import Searcher
from tasks.retrieve.routing.tuned import Tuned, package_digest, write_tuned
from tasks.train.search.own_requests import (
    OwnRequest,
    Tuning,
    judged,
    own_requests,
    packaged_numbers,
    read_own,
)
from tasks.train.search.requests import NEAR, Requests

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
