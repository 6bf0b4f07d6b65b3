"""Fragments to learn from: labelled ones, how well answers agree with them, and unlabelled ones of a corpus.

Self-training with a noised student (Xie et al. 2020, arXiv:1911.04252): the teacher sees a fragment in its
context, the student often without the heading above it, so that it has to learn what the wording says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from storage.schemas import NODE_TYPES
from tasks.evaluate.measures.statistics import calibration, calibration_error
from tasks.parse.classify.protocol import FragmentInContext, read_fragments
from tasks.parse.document import in_context
from tasks.parse.segment.segment import segment
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.text.canonical import canonical

DOCUMENTS, EACH = 1600, 40

"""How many documents are drawn, and fragments out of each at most."""

QUOTA = {
    "step": 2600,
    "example": 1600,
    "param": 1700,
    "precondition": 2000,
    "error_handling": 1700,
    "concept": 2600,
}

"""Fragments of each type at most, by a first model's answers: rare types have as many as they can."""

_SHORTEST, _LONGEST = 400, 60_000  # characters of a document
_TELLING = 40  # characters of a fragment that two documents do not have by chance
# How often the student misses the last heading, all of them, and either neighbour.
_NO_HEADING, _NO_HEADINGS, _NO_NEIGHBOUR = 0.35, 0.15, 0.25


@dataclass(frozen=True, slots=True)
class Labelled:
    """A fragment with the type someone gave it; `doubted` where another might well differ."""

    fragment: FragmentInContext
    doc_id: str
    node_type: str
    doubted: bool


class Agreement(NamedTuple):
    """How well answers agree with labels, each in [0, 1].

    `f1` has a value for each of `NODE_TYPES`, `undoubted` is the accuracy on rows that nobody doubted,
    `calibration_error` the expected calibration error over ten bins of confidence.
    """

    accuracy: float
    macro_f1: float
    undoubted: float
    calibration_error: float
    f1: dict[str, float]


def read_labelled(path: Path) -> list[Labelled]:
    """Return labelled fragments: the lines of `read_fragments` with doc_id, node_type and confidence.

    Raises:
        WrongInput: As `read_fragments`, or a line without document or with an unknown type.
    """
    fragments = list(read_fragments(path))
    records = [record for _, record in read_lines(path, "{id, doc_id, node_type, ...}")]
    for fragment, record in zip(fragments, records, strict=True):
        if record.get("node_type") not in NODE_TYPES or "doc_id" not in record:
            known = ", ".join(NODE_TYPES)
            msg = f"{path}: {fragment.fragment_id} has no doc_id, or no node_type among {known}"
            raise WrongInput(msg)
    return [
        Labelled(
            fragment,
            record["doc_id"],
            record["node_type"],
            "low" in (record.get("confidence"), record.get("agreed_confidence")),
        )
        for fragment, record in zip(fragments, records, strict=True)
    ]


def agreement(rows: Sequence[Labelled], given: npt.NDArray[np.float64]) -> Agreement:
    """Return how well probabilities, shape `(len(rows), 6)`, agree; a type that nobody named scores 0."""
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    answers = given.argmax(axis=1)
    right = labels == answers
    sure = ~np.array([row.doubted for row in rows])
    pairs = Counter(zip(labels.tolist(), answers.tolist(), strict=True))
    named = Counter(labels.tolist()) + Counter(answers.tolist())
    f1 = {kind: 2 * pairs[k, k] / max(1, named[k]) for k, kind in enumerate(NODE_TYPES)}
    return Agreement(
        float(right.mean()),
        sum(f1.values()) / len(f1),
        float(right[sure].mean()) if sure.any() else 0.0,
        calibration_error(calibration(given.max(axis=1).tolist(), right.tolist())),
        f1,
    )


def draw_fragments(
    corpus: Path, *, without: Collection[str] = (), unlike: Collection[str] = (), seed: int = 0
) -> list[FragmentInContext]:
    """Return fragments of `DOCUMENTS` documents of a corpus, at most `EACH` of one, in context.

    Args:
        corpus: A Parquet file with doc_id or id, and content (a whole SKILL.md) or body.
        without: Ids of documents that are not to be drawn, by what stands behind their last slash.
        unlike: Texts of fragments; a document that has one of those of 40 characters or more is a copy under
            another name, and is not drawn either.
        seed: Decides which are drawn.

    Raises:
        WrongInput: The file cannot be read, has other columns, or no document that may be drawn.
    """
    frame, chance = _read(corpus), np.random.default_rng(seed)
    left = {_last(doc_id) for doc_id in without}
    telling = {text.strip() for text in unlike if len(text.strip()) >= _TELLING}
    found: list[FragmentInContext] = []
    drawn = 0
    for row in chance.permutation(frame.height).tolist():
        doc_id, text = frame.row(row)
        body = canonical(parse_frontmatter(text).body)[0]
        if _last(doc_id) in left or not _SHORTEST <= len(body) <= _LONGEST:
            continue
        fragments = in_context(doc_id, segment(body).fragments)
        if not telling.isdisjoint(fragment.text.strip() for fragment in fragments):
            continue
        at = np.sort(chance.permutation(len(fragments))[:EACH])
        found += [fragments[k] for k in at.tolist()]
        drawn += 1
        if drawn == DOCUMENTS:
            break
    if not found:
        msg = f"{corpus}: no document of {_SHORTEST} to {_LONGEST} characters but those to be left out"
        raise WrongInput(msg)
    return found


def draw_unlabelled(
    corpus: Path, rows: Sequence[Labelled], without: Path | None = None
) -> list[FragmentInContext]:
    """Return fragments of documents that share nothing with labelled rows, nor with those that a file names.

    Args:
        corpus: As `draw_fragments` takes it.
        rows: Labelled fragments.
        without: JSON lines `{doc_id, ...}`, with the `text` of a fragment where they are fragments.

    Raises:
        WrongInput: As `draw_fragments`, or the file of lines cannot be used.
    """
    known = {row.doc_id for row in rows}
    texts = {row.fragment.text for row in rows}
    if without is not None:
        for at, record in read_lines(without, "{doc_id, ...}"):
            known.add(text_field(record, "doc_id", at))
            texts.add(str(record.get("text", "")))
    return draw_fragments(corpus, without=known, unlike=texts)


def draw_by_type(given: npt.NDArray[np.float64], *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return which rows of probabilities, shape `(n, 6)`, are drawn by `QUOTA`, in a random order."""
    chance, best = np.random.default_rng(seed), given.argmax(axis=1)
    drawn = [chance.permutation(np.flatnonzero(best == k))[: QUOTA[t]] for k, t in enumerate(NODE_TYPES)]
    return chance.permutation(np.concatenate(drawn))


def hidden(fragments: Sequence[FragmentInContext], *, seed: int = 0) -> list[FragmentInContext]:
    """Return fragments of which some miss headings or neighbours."""
    chance = np.random.default_rng(seed)
    found: list[FragmentInContext] = []
    for fragment in fragments:
        heading, before, after = chance.random(3)
        path: tuple[str, ...] = fragment.heading_path
        if heading < _NO_HEADING:
            path = path[:-1]
        elif heading < _NO_HEADING + _NO_HEADINGS:
            path = ()
        found.append(
            replace(
                fragment,
                heading_path=path,
                previous=None if before < _NO_NEIGHBOUR else fragment.previous,
                next=None if after < _NO_NEIGHBOUR else fragment.next,
            )
        )
    return found


def _read(corpus: Path) -> pl.DataFrame:
    try:
        columns = pl.read_parquet_schema(corpus)
        key = next(name for name in ("doc_id", "id") if name in columns)
        text = next(name for name in ("content", "body") if name in columns)
        return pl.scan_parquet(corpus).select(pl.col(key, text).cast(pl.String)).drop_nulls().collect()
    except (OSError, StopIteration, pl.exceptions.PolarsError) as error:
        msg = f"{corpus}: give a Parquet file with doc_id or id, and content or body"
        raise WrongInput(msg) from error


def _last(doc_id: str) -> str:
    return doc_id.rsplit("/", 1)[-1].casefold()
