"""Requests written by reading one skill each: what routing learns from, in folds, and what it finds first.

A line is `{query_id, kind, text, doc_id, alone}`: `kind` is `short`, `task`, `oblique` (by symptom or goal),
or `near` (the skill does not serve it, though it seems to); `alone` says how many skills of a large
marketplace would serve: `one`, `few` or `many`. Foreign requests, small talk that no skill serves, are added.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import logit

from storage.jsonl import read_lines
from tasks.evaluate.routing.data import read_skills
from tasks.models.adapted_encoder import base_tokenizer
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import lexical_of
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.learned_leg import LearnedLeg, packaged_retriever
from tasks.retrieve.routing.postings import Sketches, postings_of
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import SkillTokens, skill_tokens_of

_HELD = ("kinds", "gold", "folds", "first", "scores", "fits")
_FINEST = (1e-9, 1 - 1e-9)  # probabilities whose log odds are told
FOLDS, FIRST = 5, 50  # parts of which one is held out; skills kept of what the router finds
NEAR, FOREIGN = "near", "foreign"
_FOREIGN_FILE = Path(__file__).parent / "data" / "foreign_requests.txt"
_ALIKE = 0.5  # of bins of the sketches: such a skill is a copy, or an older version
_SERVES = {"one": 2.0, "few": 0.8, "many": 0.6}  # from this cosine of heads on, a skill may serve as well
_EMPTY = np.iinfo(np.uint32).max
Rows = npt.NDArray[np.int64]


class Requests(NamedTuple):
    """Requests by row: text, kind, row of the skill, fold, and the first skills that the legs find.

    `first`, shape `(n, 50)`, are rows, best first, `scores` their scores, and `fits` their fit by the legs,
    as log odds. `copies` are the rows that are as good as a request's skill, itself among them, and `unsure`
    those of which it is not known that they do not serve, copies among them. A foreign request has no skill:
    its row is -1.
    """

    texts: list[str]
    kinds: npt.NDArray[np.str_]
    gold: Rows
    folds: Rows
    first: Rows
    scores: npt.NDArray[np.float64]
    fits: npt.NDArray[np.float64]
    copies: list[frozenset[int]]
    unsure: list[frozenset[int]]


def read_requests(
    requests: Path, corpus: Path, encoder: OnnxEncoder
) -> tuple[Requests, SkillTokens, Vectors]:
    """Return the requests of a file whose skill is in a corpus; a quarter of an hour.

    Returned with them are the tokens of the corpus' skills, and the vectors of their heads. `first` is what
    words and plain vectors find.
    """
    skills = [Skill(*row) for row in read_skills([corpus]).iter_rows()]
    place = {skill.doc_id: row for row, skill in enumerate(skills)}
    lines = pl.DataFrame([line for _, line in read_lines(requests, "{kind, text, doc_id, alone}")]).filter(
        pl.col("doc_id").is_in(list(place))
    )
    gold = np.array([place[d] for d in lines["doc_id"]], dtype=np.int64)
    vectors = encoder.encode([skill.head for skill in skills])
    router, sketches = _router(skills, vectors, encoder)
    of = {row: copies_of(row, sketches) for row in set(gold.tolist())}
    copies = [of[row] for row in gold.tolist()]
    unsure = [
        of[row] | frozenset(np.flatnonzero(vectors @ vectors[row] >= _SERVES[alone]).tolist())
        for row, alone in zip(gold.tolist(), lines["alone"], strict=True)
    ]
    folds = _folds(gold, of, [skill.doc_id.split("--")[0].lower() for skill in skills])
    foreign = _FOREIGN_FILE.read_text("utf-8").splitlines()
    texts, none = [*lines["text"], *foreign], [frozenset[int]()] * len(foreign)
    kinds = np.array([*lines["kind"], *[FOREIGN] * len(foreign)])
    gold = np.concatenate([gold, np.full(len(foreign), -1)])
    folds = np.concatenate([folds, [*map(_fold_of, foreign)]])
    first = first_of(router, texts, place)
    found = Requests(texts, kinds, gold, folds, *first, copies + none, unsure + none)
    return found, skill_tokens_of(skills), vectors


def _router(
    skills: Sequence[Skill], vectors: Vectors, encoder: OnnxEncoder, learned: LearnedLeg | None = None
) -> tuple[Router, Sketches]:
    postings = postings_of(skills)
    ids, names, lexical = [s.doc_id for s in skills], [s.name for s in skills], lexical_of(postings)
    router = Router(
        ids, names, lexical, postings.sketches, vectors, encoder, fit=packaged_fit(), learned=learned
    )
    return router, postings.sketches


def found_by_search(
    work: Path, held: Requests, corpus: Path, tokens: SkillTokens, heads: Vectors, encoder: OnnxEncoder
) -> Requests:
    """Return the requests with what `search` finds first, before anything is read; kept in a folder.

    It takes a quarter of an hour, once.
    """
    file = work / "searched.npz"
    if not file.exists():
        skills = [Skill(*row) for row in read_skills([corpus]).iter_rows()]
        learned = LearnedLeg(packaged_retriever(None).skills(tokens), partial(packaged_retriever, None))
        router, _ = _router(skills, heads, encoder, learned)
        first, scores, fits = first_of(
            router, held.texts, {one.doc_id: row for row, one in enumerate(skills)}
        )
        keep_requests(file, held._replace(first=first, scores=scores, fits=fits))
    return kept_requests(file)


def rarity_of(tokens: SkillTokens) -> npt.NDArray[np.float16]:
    """Return how rare each token is among skills: the inverse document frequency, by id."""
    counts = np.zeros(base_tokenizer().get_vocab_size(), dtype=np.int64)
    for row in range(len(tokens.bodies)):
        counts[np.unique(np.concatenate(tokens.of(row)))] += 1
    return np.log((len(tokens.bodies) + 1) / (counts + 1)).astype(np.float16)


def arguments(description: str | None, out: Path) -> argparse.ArgumentParser:
    """Return what the programs that learn from requests are given; `out` is where weights go by default."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("encoder", "requests", "corpus"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--work", type=Path, required=True, help="Folder of what was found and is kept.")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--fold", type=int, default=0, help="The fold that is held out.")
    parser.add_argument("--share", type=float, default=1.0, help="Of the requests to learn from.")
    return parser


def found_once(
    work: Path, requests: Path, corpus: Path, encoder: OnnxEncoder
) -> tuple[Requests, SkillTokens, Vectors]:
    """Return what `read_requests` returns, kept in a folder once it is found."""
    work.mkdir(parents=True, exist_ok=True)
    file, skills = work / "requests.npz", work / "skills.npz"
    if not file.exists() or not skills.exists():
        held, made, heads = read_requests(requests, corpus, encoder)
        np.savez(skills, ids=made.ids, starts=made.starts, bodies=made.bodies, heads=heads)
        keep_requests(file, held)
    with np.load(skills, allow_pickle=False) as found:
        tokens = SkillTokens(found["ids"], found["starts"], found["bodies"])
        return kept_requests(file), tokens, found["heads"]


def first_of(
    router: Router, texts: Sequence[str], place: dict[str, int]
) -> tuple[Rows, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return rows, scores and fits of the first skills that a router finds for each text."""
    most = min(FIRST, len(place))
    first, (scores, fits) = np.zeros((len(texts), most), np.int64), np.zeros((2, len(texts), most))
    for row, text in enumerate(texts):
        found = router.rank(text, most, fold=False)
        first[row], scores[row] = [place[one.doc_id] for one in found], [one.score for one in found]
        fits[row] = logit(np.clip([one.fit or 0.0 for one in found], *_FINEST))
        if row % 500 == 0:
            sys.stderr.write(f"asked {row} of {len(texts)} requests\n")
    return first, scores, fits


def copies_of(row: int, sketches: Sketches) -> frozenset[int]:
    """Return the rows whose terms are about those of a row, itself among them."""
    own = sketches[row]
    filled = (own != _EMPTY) | (sketches != _EMPTY)
    same = ((own == sketches) & filled).sum(axis=1) / np.maximum(filled.sum(axis=1), 1)
    return frozenset({row, *np.flatnonzero(same >= _ALIKE).tolist()})


def _folds(gold: Rows, copies: dict[int, frozenset[int]], owners: Sequence[str]) -> Rows:
    """Return each request's fold; owners whose skills are copies of each other share it."""
    number = {owner: k for k, owner in enumerate(sorted(set(owners)))}
    pairs = [(row, other) for row, others in copies.items() for other in others if other in copies]
    a, b = (np.array([number[owners[pair[side]]] for pair in pairs]) for side in (0, 1))
    joined = coo_array((np.ones(len(a)), (a, b)), (len(number), len(number)))
    of = connected_components(joined, directed=False)[1]
    names = sorted(number, key=number.__getitem__)
    least = {cluster: names[k] for k, cluster in reversed(list(enumerate(of.tolist())))}
    told = [least[of[number[owners[row]]]] for row in gold.tolist()]
    return np.array([*map(_fold_of, told)], dtype=np.int64)


def _fold_of(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % FOLDS


def keep_requests(file: Path, held: Requests, more: Mapping[str, Any] | None = None) -> None:
    """Write requests with what was found for them, and more arrays by name."""
    found = {name: getattr(held, name) for name in _HELD}
    for name in ("copies", "unsure"):
        rows = [sorted(one) for one in getattr(held, name)]
        found[name] = np.array([row for one in rows for row in one], dtype=np.int64)
        found[f"{name}_ends"] = np.cumsum([len(one) for one in rows])
    np.savez_compressed(file, texts=np.array(held.texts), **found, **(more or {}))


def kept_requests(file: Path) -> Requests:
    """Return what `keep_requests` wrote."""
    with np.load(file, allow_pickle=False) as held:
        sets = (_sets(held[name], held[f"{name}_ends"]) for name in ("copies", "unsure"))
        rows = (held[name] for name in _HELD)
        return Requests(held["texts"].tolist(), *rows, *map(list, sets))


def _sets(rows: Rows, ends: Rows) -> Iterator[frozenset[int]]:
    yield from (frozenset(part.tolist()) for part in np.split(rows, ends[:-1]))
