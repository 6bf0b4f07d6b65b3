"""Search: ranks the skills of a published version for a task, and filters them."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import WrongInput
from storage.lance.served import Licences
from storage.lance.tables import TableAt
from tasks.crawl.source.identity import shown_spec
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.routing.coarse import EXACT_ROWS, Coarse, best_rows, coarse_by_name
from tasks.retrieve.routing.fit import DECIDING, FitModel
from tasks.retrieve.routing.learned_leg import LearnedLeg, packaged_retriever
from tasks.retrieve.routing.reranker import NONE, REACHES, Reach, SkillReader, packaged_pair_scorer
from tasks.retrieve.routing.router import Ranked, Router
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.store import RoutingIndex

_FETCH = 100  # candidates of each leg
PROVENANCE = ("kind", "source", "url", "commit", "content_hash", "licence", "risks", "stale")

"""The columns that say whose a text is, and what was found in it."""

_UNKNOWN = "unknown"  # what stands for a licence where none is known
_NO_RISK = "none"  # what stands for the code of a risk where none was found

_MASKS = 16  # of rows that filters allow, which are kept
_NAMED = 1000  # rows that are asked for by their ids; of more, all are read, which takes less


def rank_dense(skills: TableAt, vector: Vectors, fetch_k: int = _FETCH) -> list[str]:
    """Return the ids of at most `fetch_k` skills whose name and description are nearest, best first.

    `vector` is the query's unit vector; nearness is the cosine.
    """
    # Ties by id, because LanceDB orders them differently from build to build.
    rows = skills.nearest(vector, fetch_k, ["doc_id"]).sort_by(
        [("_distance", "ascending"), ("doc_id", "ascending")]
    )
    return [str(d) for d in rows.column("doc_id").to_pylist()]


def rank_lexical(
    index: RoutingIndex, query: str, fetch_k: int = _FETCH, allowed: npt.NDArray[np.bool_] | None = None
) -> list[str]:
    """Return the ids of at most `fetch_k` skills that share words with a query by BM25F, best first.

    `allowed`, shape `(rows,)`, marks the rows that may be found; None: all.
    """
    scores = index.lexical.scores(query)
    rows = np.flatnonzero(scores if allowed is None else scores * allowed)
    return [index.doc_ids[row] for row in best_rows(rows, scores, fetch_k, index.doc_ids)]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a search; an empty tuple filters nothing.

    A licence is an SPDX identifier in any letter case, or `unknown`. A source is a source spec, or the part
    before its colon. A risk is the code of a finding, with or without its `risk.`, or `none`, which is for
    skills without findings. `without` holds the ids, in lower case, of skills that must not be found.
    What its author keeps to his project is found by its risk alone, `offer.internal`; what only a person may
    start, `offer.person-only`, is so if it is no `person` who asks.
    """

    kinds: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    person: bool = False

    def kept_back(self) -> list[str]:
        """Return the codes of the risks whose rows are not found."""
        codes = ["offer.internal", *([] if self.person else ["offer.person-only"])]
        return [code for code in codes if code not in self.risks]


class RowFacts(NamedTuple):
    """What is held in memory of a row: its id, name, category, and the tokens of its body."""

    doc_id: str
    name: str
    category: str | None
    n_tokens: int


class SkillRanker(Protocol):
    """Ranks skills for a query otherwise than by default."""

    def __call__(
        self, searcher: Searcher, query: str, k: int, allowed: npt.NDArray[np.bool_], /
    ) -> list[Ranked]:
        """Return the `k` best of the rows allowed, best first."""


class Searcher:
    """Ranks the skills of one published version, by its routing index and the encoder of its vectors.

    Args:
        skills: The version's table, of which bodies alone are read.
        fit: Tells how likely a skill serves, if it was fitted on vectors of this encoder.
        rerank: How far skills are read beside the query, of `RERANKS`; an index from before has no tokens of
            them, and none is read.
        threads: That read the first skills at a time; None: one a core.
        reach: How far, where it is not that of `REACHES`.
        exact_rows: Of more rows a coarse scan tells which ones are compared by whole vectors.
    """

    def __init__(
        self, skills: TableAt, index: RoutingIndex, encoder: Encoder, fit: FitModel | None = None,
        rerank: str = NONE, threads: int | None = None, reach: Reach | None = None,
        exact_rows: int = EXACT_ROWS,
    ) -> None:  # fmt: skip
        self._skills, self._ids, self._rows = skills, index.doc_ids, index.rows
        self._masks: dict[Filters, tuple[Licences, npt.NDArray[np.bool_]]] = {}
        names = self._rows["name"].to_list()
        tokens, reader, learned = index.tokens, None, None
        coarse = dict[str, Coarse]()
        if len(index.doc_ids) > exact_rows:
            coarse = index.coarse or coarse_by_name(index.vectors, index.learned)
        if index.learned is not None:
            model = partial(packaged_retriever, 1)  # beside it the encoder works
            learned = LearnedLeg(index.learned, model, index.foretold, coarse.get("learned"))
        if rerank != NONE and tokens is not None:
            reader = SkillReader(partial(packaged_pair_scorer, threads), tokens.of, reach or REACHES[rerank])
        self.router = Router(
            index.doc_ids, names, index.lexical, index.sketches, index.vectors, encoder, fit=fit,
            reader=reader, learned=learned, coarse=coarse.get("vectors"),
        )  # fmt: skip

    def search(
        self, query: str, *, k: int, filters: Filters, licences: Licences, ranker: SkillRanker | None = None
    ) -> list[tuple[dict[str, Any], Ranked]]:
        """Return the rows of the `k` best skills, best first, with scores; denied licences take no rank.

        `ranker` takes the place of the default. Raises `WrongInput` if no skill has a kind, licence, source
        or risk that is asked for.
        """
        allowed = self.allowed(filters, licences)
        if ranker is None:
            ranked = self.router.rank(query, k, allowed=allowed)
        else:
            ranked = ranker(self, query, k, allowed)
        rows = self._fetched([r.doc_id for r in ranked])
        return list(zip(rows, ranked, strict=True))

    def row_of(self, doc_id: str) -> dict[str, Any]:
        """Return the row of an id, as it is written."""
        return self._fetched([doc_id])[0]

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at some places of the index, in that order."""
        return self._fetched(self.ids(places))

    def skills(self, places: Sequence[int]) -> list[Skill]:
        """Return the skills at some places of the index, in that order, with their bodies."""
        wanted = self.ids(places)
        columns = ["doc_id", "name", "description", "text", "body_start"]
        few = {"doc_id": wanted} if len(wanted) <= _NAMED else {}
        found = {row["doc_id"]: row for row in self._skills.rows(columns, **few).to_pylist()}
        return [
            Skill(doc_id, row["name"], row["description"], row["text"][row["body_start"] :])
            for doc_id in wanted
            for row in [found[doc_id]]
        ]

    def places_of(self, ids: Sequence[str]) -> list[int]:
        """Return the places of rows by their ids, as they are written."""
        return [self._place[doc_id] for doc_id in ids]

    @functools.cached_property
    def _place(self) -> dict[str, int]:
        return {doc_id: place for place, doc_id in enumerate(self._ids)}

    def places(self) -> dict[str, int]:
        """Return the places of rows in the index by their ids in lower case."""
        return {doc_id.lower(): place for place, doc_id in enumerate(self._ids)}

    def facts(self, places: Sequence[int]) -> list[RowFacts]:
        """Return what is held in memory of the rows at some places, in that order."""
        return [self._facts[place] for place in places]

    @functools.cached_property
    def _facts(self) -> list[RowFacts]:
        held = self._rows.select("doc_id", "name", "category", "n_tokens")
        return [RowFacts(*row) for row in held.iter_rows()]

    @functools.cached_property
    def _risks(self) -> pl.DataFrame:
        """The codes of risks by `place`; a row without findings has one code, `none`."""
        codes = self._rows.select("risks").with_row_index("place").explode("risks", empty_as_null=True)
        return codes.with_columns(pl.col("risks").fill_null(_NO_RISK))

    @functools.cached_property
    def _sources(self) -> pl.Series:
        column = self._rows["source"]
        return column.replace({spec: shown_spec(spec) for spec in column.unique()})

    @functools.cached_property
    def _offers(self) -> pl.DataFrame:
        return self._risks.filter(pl.col("risks").str.starts_with("offer."))

    def _with_risks(self, wanted: Sequence[str]) -> pl.Series:
        """Return for each row whether it has one of the codes wanted, or none where that is wanted."""
        codes = self._risks["risks"]
        hits = _any_of("risk", wanted, [codes, codes.str.strip_prefix("risk.")])
        mask = np.zeros(len(self._ids), dtype=np.bool_)
        mask[self._risks["place"].filter(hits).to_numpy()] = True
        return pl.Series(mask)

    def _fetched(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        # A row at a time: waking Polars' threads to gather ten rows costs milliseconds.
        return [self._rows.row(place, named=True) for place in self.places_of(ids)]

    def tokens(self, rows: npt.NDArray[np.bool_]) -> int:
        """Return how many tokens the bodies of the rows marked have in all."""
        return int(self._rows["n_tokens"].filter(pl.Series(rows)).sum())

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the ids of rows."""
        return [self._ids[row] for row in rows]

    def values(self, licences: Licences) -> dict[str, dict[str, int]]:
        """Return how many rows have each value that filters take, by filter, the most frequent first.

        Rows of a denied licence do not count; one without a licence is `unknown`, one without risks `none`.
        """
        shown = self.allowed(Filters(person=True), licences)
        rows, risks = self._rows.filter(shown), self._risks.filter(shown[self._risks["place"].to_numpy()])
        columns = {
            "kind": rows["kind"], "licence": rows["licence"].fill_null(_UNKNOWN),
            "source": self._sources.filter(shown), "risk": risks["risks"],
        }  # fmt: skip
        counts = {name: Counter(column.to_list()) for name, column in columns.items()}
        return {name: dict(sorted(c.items(), key=lambda v: (-v[1], v[0]))) for name, c in counts.items()}

    def allowed(self, filters: Filters, licences: Licences) -> npt.NDArray[np.bool_]:
        """Return which rows may be found, shape `(rows,)`: none of a denied licence, all that is asked for.

        The masks of the last filters are kept, since most questions have the same; nobody may change one.
        Raises `WrongInput` if no skill has a kind, licence, source or risk that is asked for.
        """
        known = self._masks.get(filters)
        if known is None or known[0] != licences:
            known = licences, self._allowed(filters, licences)
            if len(self._masks) >= _MASKS:
                self._masks.clear()
            self._masks[filters] = known
        return known[1]

    def _allowed(self, filters: Filters, licences: Licences) -> npt.NDArray[np.bool_]:
        classes = {licence: licences.class_of(licence) for licence in self._rows["licence"].unique()}
        shown = [licence for licence, found in classes.items() if found != "deny"]
        mask = self._rows["licence"].is_in(shown, nulls_equal=True)
        mask &= _any_of("kind", filters.kinds, [self._rows["kind"]])
        named = self._rows["licence"].fill_null(_UNKNOWN).str.to_lowercase()
        mask &= _any_of("licence", [licence.lower() for licence in filters.licences], [named])
        mask &= _any_of("source", filters.sources, [self._sources, self._sources.str.split(":").list.first()])
        if filters.risks:
            mask &= self._with_risks(filters.risks)
        back = self._offers["place"].filter(self._offers["risks"].is_in(filters.kept_back()))
        if len(back):
            mask &= ~pl.int_range(len(mask), eager=True).is_in(back.implode())
        if filters.without:
            mask &= ~self._rows["doc_id"].str.to_lowercase().is_in(list(filters.without))
        found = mask.to_numpy()
        found.flags.writeable = False
        return found


def require_min_fit(min_fit: float | None) -> None:
    """Raise `WrongInput` if a least fit is neither None nor in [0, 1]."""
    if min_fit is not None and not 0 <= min_fit <= 1:
        raise WrongInput(f"the least fit is {min_fit:g}: give a probability from 0 to 1")


def fitting(
    ranked: list[tuple[dict[str, Any], Ranked]], model: FitModel | None, min_fit: float | None
) -> tuple[list[tuple[dict[str, Any], Ranked]], bool | None]:
    """Return the results whose fit suffices, all if none does, and whether none does; None: it is not known.

    The first `DECIDING` results decide whether none does. Without `min_fit`, in [0, 1], all results are
    returned, and the least fit of the model decides. Raises `WrongInput` if `min_fit` is out of its range, or
    no fit is known.
    """
    require_min_fit(min_fit)
    if model is None:
        if min_fit is not None:
            msg = "no least fit can be asked for: fit is known with the default encoder and method alone"
            raise WrongInput(msg)
        return ranked, None
    least = model.least if min_fit is None else min_fit
    suffices = [found.fit is not None and found.fit >= least for _, found in ranked]
    nothing = not any(suffices[:DECIDING])
    if nothing or min_fit is None:
        return ranked, nothing
    return list(itertools.compress(ranked, suffices)), nothing


def provenance(row: dict[str, Any], failed: set[str]) -> dict[str, Any]:
    """Return the provenance of a row with `licence_class`; stale if its source's last reading failed."""
    return {
        **{column: row[column] for column in (*PROVENANCE, "licence_class")},
        "source": shown_spec(row["source"]),
        "stale": row["stale"] or row["source"] in failed,
    }


def _any_of(name: str, wanted: Sequence[str], columns: Sequence[pl.Series]) -> pl.Series:
    """Return for each row whether one of the columns holds a wanted value; all rows if nothing is wanted."""
    for value in wanted:
        if not any((column == value).any() for column in columns):
            found = ", ".join(str(v) for v in columns[0].unique().sort().head(20))
            raise WrongInput(f"{name} {value!r}: nothing served has it; there are {found}")
    mask = pl.repeat(value=not wanted, n=len(columns[0]), dtype=pl.Boolean, eager=True)
    for column in columns:
        mask |= column.is_in(list(wanted))
    return mask
