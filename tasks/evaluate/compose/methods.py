"""Methods that plan a request: by the command's own plan with other settings, and by plain baselines.

A method is a line of `METHODS`: `composed(...)` asks `compose` with other options, `with_found(...)` ranks
candidates of its steps in another way, `given(...)` is told the steps.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import linear_sum_assignment

from storage.errors import WrongInput
from storage.lance.served import require_licences
from tasks.evaluate.compose.measures import Edges, Planned, PlannedStep
from tasks.evaluate.compose.requests import CategorySet, KnownRequest
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.compose.candidates import StepReranker
from tasks.retrieve.compose.compatibility import io_of, most_compatible
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.compose.dependencies import ORDER
from tasks.retrieve.compose.drafts import Draft, DraftStep, words_of
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.ranking import Matcher
from tasks.retrieve.compose.rounds import Decomposer
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import Filters
from tasks.retrieve.served_index import ServedIndex

_ASLANT = 0.2  # taken off a cosine between opposite ends: what is done first is mostly told first


@dataclass(frozen=True, slots=True)
class ToldSteps:
    """A decomposer that is told the steps, in an order in which they can be done."""

    texts: tuple[str, ...]
    encoder: Encoder
    name: str = "told"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the steps that were told, each where the local decomposer finds one that is most like it."""
        del hints
        found = LocalDecomposer(exactly=len(self.texts)).decompose(task, None, matcher).steps
        whole = DraftStep(task, ((0, max(len(task), 1)),))
        places = [*found, *[whole] * (len(self.texts) - len(found))]
        own, others = linear_sum_assignment(self._alike([step.text for step in places]), maximize=True)
        spans = {int(a): places[int(b)].spans for a, b in zip(own, others, strict=True)}
        steps = (DraftStep(text, spans[k], words_of(task, spans[k])) for k, text in enumerate(self.texts))
        return Draft(tuple(steps), in_order=True)

    def _alike(self, others: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return how alike told texts and others are, shape `(told, others)`."""
        vectors = self.encoder.encode([*self.texts, *others]).astype(np.float64)
        own, found = vectors[: len(self.texts)], vectors[len(self.texts) :]
        return np.asarray(own @ found.T - _ASLANT * np.abs(np.subtract.outer(_places(own), _places(found))))


def _places(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (np.arange(len(rows)) + 0.5) / max(len(rows), 1)


@dataclass(frozen=True, slots=True)
class Ablated:
    """The local decomposer, whose drafts are changed."""

    change: Callable[[Draft], Draft]
    name: str = "local"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the changed draft of a task, as `Decomposer` says."""
        return self.change(LocalDecomposer().decompose(task, hints, matcher))


def without_references(draft: Draft) -> Draft:
    """Return a draft whose steps say "it" where the task does."""
    return replace(draft, steps=tuple(replace(step, text=step.words) for step in draft.steps))


def with_own_work(draft: Draft) -> Draft:
    """Return a draft in which what the agent does by itself is a step too."""
    own = [part for part in draft.left_out if part.reason == "own-work"]
    steps = [*draft.steps, *(DraftStep(part.text, (part.span,)) for part in own)]
    rest = tuple(part for part in draft.left_out if part not in own)
    return replace(draft, steps=tuple(sorted(steps, key=lambda step: step.spans)), left_out=rest)


CANDIDATES = 10
DEFAULT, VANILLA = "local-r1", "local-r0"
PAPERS, PAPERS_VANILLA = "paper", "paper-r0"  # of SkillWeaver, by a language model


@dataclass(frozen=True, slots=True)
class Asking:
    """What a method is asked with: the index, the categories that count, and what must not be found."""

    index: ServedIndex
    categories: CategorySet = field(default_factory=CategorySet)
    filters: Filters = field(default_factory=Filters)

    def without(self, ids: Iterable[str]) -> Asking:
        """Return the same without rows, whose ids are in lower case."""
        return replace(self, filters=replace(self.filters, without=frozenset(ids)))

    @property
    def encoder(self) -> Encoder:
        """The index's encoder."""
        with self.index.version() as now:
            return now.encoder

    def search(self, text: str, k: int) -> list[tuple[dict[str, Any], Ranked]]:
        """Return what `search` finds for a text."""
        with self.index.version() as now:
            licences = require_licences(now.root)
            return now.searcher().search(text, k=k, filters=self.filters, licences=licences)

    def step(
        self, rows: Sequence[Mapping[str, Any]], text: str, sure: float = 0.0, *, gap: bool = False
    ) -> PlannedStep:
        """Return the step of a text whose candidates are some rows, best first."""
        ids = tuple(row["doc_id"].lower() for row in rows)
        return PlannedStep(ids, tuple(self.categories.of(row["category"]) for row in rows), text, sure, gap)


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan as it is measured, its tokens (of the chosen, of all that is served), and what rounds did.

    `jaccards` has one value for each round after the first.
    """

    plan: Planned
    tokens: tuple[int, int] | None = None
    jaccards: tuple[float, ...] = ()


PlanMethod = Callable[[Asking, KnownRequest], MadePlan]
Texts = Callable[[KnownRequest], Sequence[str]]
Find = Callable[[Asking, Sequence[str]], list[PlannedStep]]
# Names, of steps' texts and their candidates, the place of the candidate that each step takes.
Choice = Callable[[Sequence[str], Sequence[Sequence[Mapping[str, Any]]]], Sequence[int]]
Cutter = Callable[[Asking, KnownRequest], Decomposer]


def composed(
    cutter: Cutter | None = None,
    *,
    chain: bool = False,
    reranker: StepReranker | None = None,
    **options: Any,  # noqa: ANN401
) -> PlanMethod:
    """Return the command's plan with other options of `ComposeOptions`; `chain`: each step after the last."""

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        chosen = ComposeOptions(k=CANDIDATES, explain=True, filters=asking.filters, **options)
        decomposer = cutter(asking, request) if cutter else None
        made = compose(asking.index, request.query, chosen, decomposer, reranker)
        told = made["steps"]
        if isinstance(decomposer, ToldSteps):  # measured in the order in which it was told
            told = sorted(told, key=lambda step: decomposer.texts.index(step["text"]))
        steps = tuple(
            asking.step(step["candidates"], step["text"], step["confidence"], gap=step["gap"])
            for step in told
        )
        place = {step["step"]: number for number, step in enumerate(told)}
        edges = frozenset((place[e["from"]], place[e["to"]]) for e in made["edges"])
        jaccards = tuple(r["jaccard"] for r in made["trace"] if r["jaccard"] is not None)
        tokens = (made["tokens"]["chosen"], made["tokens"]["all"])
        planned = Planned(steps, chained(len(steps)) if chain else edges)
        return MadePlan(planned, tokens, jaccards)

    return plan


def with_found(method: PlanMethod, find: Find) -> PlanMethod:
    """Return a method's steps and dependencies with candidates that are found in another way."""

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        made = method(asking, request)
        found = find(asking, [step.text for step in made.plan.steps])
        return MadePlan(replace(made.plan, steps=tuple(found)), None, made.jaccards)

    return plan


def given(texts: Texts, find: Find) -> PlanMethod:
    """Return a method that is told the steps' texts, each step done after the one before."""

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        found = find(asking, texts(request))
        return MadePlan(Planned(tuple(found), chained(len(found))))

    return plan


def searched(asking: Asking, texts: Sequence[str]) -> list[PlannedStep]:
    """Return what `search` finds for each text."""
    found = [asking.search(text, CANDIDATES) for text in texts]
    return [
        asking.step([row for row, _ in rows], text, rows[0][1].score if rows else 0.0)
        for text, rows in zip(texts, found, strict=True)
    ]


BODY = 2_000  # characters of the body that are encoded with name and description
_TOLD = ["doc_id", "name", "description", "category"]  # of a candidate
_COLUMNS = ["doc_id", "kind", "name", "description", "text", "body_start", "category", "licence", "vector"]
_AT_ONCE = 256  # texts encoded in one call, so that Ctrl-C is heard between two
NO_BODIES = "a method with bodies needs skills; all that is served are servers"


def nearest(*, body: bool, choose: Choice | None = None) -> Find:
    """Return SkillWeaver's retriever (4.2): the cosine to name and description, or with `body` to the text.

    Of each step's candidates the one that `choose` names comes first. It raises `WrongInput` if bodies are
    wanted and no row has one.
    """

    def find(asking: Asking, texts: Sequence[str]) -> list[PlannedStep]:
        if not texts:
            return []
        rows, vectors = _row_vectors(asking.index, body=body)
        cosines = asking.encoder.encode(texts) @ vectors.T
        cosines[:, rows["doc_id"].is_in(list(asking.filters.without)).to_numpy()] = -np.inf
        found = []
        for scores in cosines:
            best = np.argsort(-scores, kind="stable")[:CANDIDATES]
            kept = best[np.isfinite(scores[best])]
            cosine = pl.Series("cosine", scores[kept])
            found.append(rows[kept.tolist()].select(_TOLD).with_columns(cosine).to_dicts())
        for some, place in zip(found, choose(texts, found) if choose else (), strict=False):
            if place:
                some.insert(0, some.pop(place))
        return [
            asking.step(some, text, some[0]["cosine"] if some else 0.0)
            for text, some in zip(texts, found, strict=True)
        ]

    return find


def depending(method: PlanMethod) -> PlanMethod:
    """Return a method's steps with dependencies by SkillWeaver's rules (4.3): markers, inputs and outputs.

    A step with a marker of order needs the one before; each needs those that give a type that it takes. Text,
    which all take and give, is none.
    """

    def plan(asking: Asking, request: KnownRequest) -> MadePlan:
        made = method(asking, request)
        texts = [step.text for step in made.plan.steps]
        told = [io_of(text) for text in texts]
        edges = {(k - 1, k) for k, text in enumerate(texts) if k and ORDER.search(text)}
        edges |= {
            (a, b)
            for b, later in enumerate(told)
            for a, first in enumerate(told[:b])
            if (first.gives & later.takes) - {"text"}
        }
        return replace(made, plan=replace(made.plan, edges=frozenset(edges)))

    return plan


@functools.lru_cache(maxsize=2)
def _row_vectors(index: ServedIndex, *, body: bool) -> tuple[pl.DataFrame, Vectors]:
    """Return the rows whose licence is not denied, by id in lower case, and the vectors of an index."""
    with index.version() as now:
        licences, held = require_licences(now.root), now.skills.frame(_COLUMNS)
        shown = [name for name in held["licence"].unique() if licences.class_of(name) != "deny"]
        rows = held.filter(pl.col("licence").is_in(shown, nulls_equal=True))
        rows = rows.with_columns(pl.col("doc_id").str.to_lowercase()).sort("doc_id")
        if not body:
            return rows, np.asarray(rows["vector"].to_numpy(), dtype=np.float32)
        if not (rows["kind"] == "skill").any():
            raise WrongInput(NO_BODIES)
        texts = [
            f"{name}\n{description}\n{text[start : start + BODY]}"
            for name, description, text, start in rows.select(*_COLUMNS[2:6]).iter_rows()
        ]
        parts = [now.encoder.encode(texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]
    return rows, np.concatenate(parts)


def _told(asking: Asking, request: KnownRequest) -> Decomposer:
    return ToldSteps(descriptions_of(request), asking.encoder)


def _counted(_asking: Asking, request: KnownRequest) -> Decomposer:
    return LocalDecomposer(exactly=len(request.needed.steps))


def descriptions_of(request: KnownRequest) -> tuple[str, ...]:
    """Return the steps' descriptions; raises `WrongInput` if the request has none."""
    if request.descriptions is None:
        msg = f"query {request.query_id!r} has no `description` of its steps, which a gold method is told"
        raise WrongInput(msg)
    return request.descriptions


_CUTS = (
    re.compile(r"(?<=[.!?])\s+|[;:]\s+"),
    re.compile(
        r",\s+(?:and\s+)?(?:(?:then|next|finally)\s+)?|(?<!\s)\s+and\s+(?:(?:then|afterwards|finally)\s+)?"
    ),
)


def at_commas(request: KnownRequest) -> list[str]:
    """Return a request cut at sentences, commas and `and`, without pieces of one word."""
    pieces = [piece for sentence in _CUTS[0].split(request.query) for piece in _CUTS[1].split(sentence)]
    return [piece for piece in pieces if len(piece.split()) > 1]


def whole_request(request: KnownRequest) -> list[str]:
    """Return the request as its one step."""
    return [request.query]


def chained(steps: int) -> Edges:
    """Return the edges of steps each of which is done after the one before."""
    return frozenset(pairwise(range(steps)))


_DENSE, _BODY = nearest(body=False), nearest(body=True)
HINTS = (5, 10, 15, 25)  # of SkillWeaver's table 9; 15 is the default
ALPHAS = (0.0, 0.3, 0.5, 0.7, 1.0)  # of equation 4; the paper's is 0.5
# Methods by name; an ablation is one more line.
METHODS: dict[str, PlanMethod] = {
    **{f"local-r{rounds}": composed(rounds=rounds) for rounds in (1, 0, 2, 3)},
    "whole": given(whole_request, searched),
    "commas": given(at_commas, searched),
    "gold-steps": composed(_told, rounds=0),
    "gold-count": composed(_counted),
    "gold-count-r0": composed(_counted, rounds=0),
    "gold-search": given(descriptions_of, searched),
    "chain": composed(chain=True),
    "no-references": composed(lambda _asking, _request: Ablated(without_references)),
    "own-work": composed(lambda _asking, _request: Ablated(with_own_work)),
    "no-context": composed(context=False),
    "gold-no-context": composed(_told, rounds=0, context=False),
    **{f"alpha-{alpha:g}": composed(alpha=alpha) for alpha in ALPHAS},
    **{f"gold-alpha-{alpha:g}": composed(_told, rounds=0, alpha=alpha) for alpha in ALPHAS},
    **{f"hints-{hints}": composed(hints=hints) for hints in HINTS if hints != 15},
    "whole-dense": given(whole_request, _DENSE),
    "commas-dense": given(at_commas, _DENSE),
    "local-dense": with_found(composed(), _DENSE),
    "gold-dense": given(descriptions_of, _DENSE),
    "local-compose": depending(with_found(composed(), nearest(body=False, choose=most_compatible))),
    "commas-body": given(at_commas, _BODY),
    "local-body": with_found(composed(), _BODY),
    "gold-body": given(descriptions_of, _BODY),
}
# Names of methods that ask a language model, which `llm_methods` returns; `METHODS` has none of them.
NEED_ENDPOINT = (
    *(f"llm-r{rounds}" for rounds in range(4)), *(f"llm-hints-{hints}" for hints in HINTS if hints != 15),
    "hybrid", "paper", *(f"paper-r{rounds}" for rounds in (0, 2, 3)),
    *(f"paper-hints-{hints}" for hints in HINTS if hints != 15),
    "llm-gold-count", "paper-gold-count", "paper-rerank", "paper-compose", "llm-rerank", "llm-direct",
    "react", "react-one",
)  # fmt: skip
NEED_DESCRIPTIONS = frozenset(name for name in METHODS if name.startswith("gold-") and "count" not in name)
NEED_BODIES = frozenset(name for name in METHODS if name.endswith("-body"))


def unusable(index: ServedIndex, requests: Iterable[KnownRequest]) -> dict[str, str]:
    """Return the methods that cannot be measured here, with why."""
    bare = next((request.query_id for request in requests if request.descriptions is None), None)
    why = f"query {bare!r} has no `description` of its steps"
    with index.version() as now:
        skills = now.skills.count(kind=["skill"])
    found = {} if bare is None else {name: why for name in METHODS if name in NEED_DESCRIPTIONS}
    return found | ({} if skills else {name: NO_BODIES for name in METHODS if name in NEED_BODIES})


def require_methods(names: Sequence[str], methods: Iterable[str] = METHODS) -> None:
    """Raise `WrongInput` if a method is not known, or asks a language model and none is at hand."""
    known = list(methods)
    if asking := [name for name in names if name in NEED_ENDPOINT and name not in known]:
        raise WrongInput(f"--method {asking[0]}: no endpoint: it asks a language model")
    if unknown := [name for name in names if name not in known]:
        raise WrongInput(f"--method {unknown[0]!r} is not known: choose one of {', '.join(known)}")
