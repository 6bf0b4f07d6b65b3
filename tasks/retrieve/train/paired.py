"""Reads pairs of request and skill as queries, to train with and to validate on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from storage.errors import WrongInput
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.train.queries import TrainingQuery, words_of

PAIRS_FILE = "pairs.parquet"
PAIRS = pl.Schema({
    "query": pl.String, "doc_id": pl.String, "skill": pl.String, "repo": pl.String, "cut_field": pl.String,
    "cut_start": pl.Int64, "cut_end": pl.Int64, "split": pl.String,
})  # fmt: skip

"""A request and the skill that serves it.

`skill` is the digest of the skill's texts (`digest_of`), `repo` its repository, the cut the half-open span of
its `description` or `body` that says the request (empty if none does), and `split` `train` or `validation`.
"""


class PairedQueries(NamedTuple):
    """Authors' requests as queries: those to train with, and those to validate on.

    `shared` counts requests of two skills, which have no one right answer and are neither.
    """

    train: list[TrainingQuery]
    validation: list[TrainingQuery]
    shared: int = 0


def read_pairs(path: Path) -> pl.DataFrame:
    """Return the pairs of a Parquet file, by `PAIRS`; further columns are left out.

    Raises:
        WrongInput: The file cannot be read, or holds something else.
    """
    try:
        return pl.read_parquet(path).select(PAIRS.names()).cast(PAIRS)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = str(error).splitlines()[0]
        msg = f"{path} cannot be read as pairs ({why}): it needs the columns {', '.join(PAIRS.names())}"
        raise WrongInput(msg) from error


def asked_of(pairs: pl.DataFrame, skills: Sequence[Skill]) -> PairedQueries:
    """Return the requests of pairs, each once.

    Raises:
        WrongInput: A skill that the pairs name is not among these, or has another text, or a side has no
            request.
    """
    rows = {skill.doc_id: row for row, skill in enumerate(skills)}
    # A request has a pair for each text of its skill; it is one query.
    requests = pairs.unique(["query", "doc_id"], keep="first", maintain_order=True)
    _require_same_texts(requests, rows, skills)
    keys = requests["query"].map_elements(lambda query: " ".join(words_of(query)), return_dtype=pl.String)
    own = requests.filter(keys.is_unique())
    sides = own.partition_by("split", as_dict=True)
    train, validation = (
        list(_queries(sides.get((side,), own[:0]).iter_rows(named=True), rows, skills))
        for side in ("train", "validation")
    )
    if not train or not validation:
        lacks = "validate on" if train else "train with"
        msg = f"the pairs hold no request to {lacks}: make them of skills of more repositories"
        raise WrongInput(msg)
    return PairedQueries(train, validation, requests.height - own.height)


def _require_same_texts(requests: pl.DataFrame, rows: dict[str, int], skills: Sequence[Skill]) -> None:
    for doc_id, digest in requests.select("doc_id", "skill").unique(maintain_order=True).iter_rows():
        row = rows.get(doc_id)
        if row is None or digest_of(skills[row]) != digest:
            lacks = "no --corpus holds" if row is None else "has another text now"
            msg = f"the pairs name the skill {doc_id!r}, which {lacks}: make the pairs of these corpora"
            raise WrongInput(msg)


def _queries(
    pairs: Iterable[dict[str, Any]], rows: dict[str, int], skills: Sequence[Skill]
) -> Iterable[TrainingQuery]:
    for pair in pairs:
        row = rows[pair["doc_id"]]
        skill = skills[row]
        text = skill.body if pair["cut_field"] == "body" else skill.description
        passage = text[pair["cut_start"] : pair["cut_end"]]
        yield TrainingQuery(pair["doc_id"], pair["query"], row, (passage,) if passage else ())
