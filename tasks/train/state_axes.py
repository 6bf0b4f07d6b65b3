"""Finds the axes of token states: `python -m tasks.train.state_axes --corpus CORPUS --encoder FOLDER`.

They are the principal axes of what sets the states of one skill apart from their mean, over many skills: what
all of a skill's tokens share does not tell its nodes from one another. No labels are needed. Six minutes on
one core, nearly all of it encoding. Tables are made anew for other axes, and all nodes encoded again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import WrongInput
from tasks.evaluate.corpus.read import corpus_texts
from tasks.evaluate.measures.evidence import read_documents
from tasks.evaluate.paging.bench import body_of
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.models.token_states import FILE, GROUP, STATE_MODEL, unit
from tasks.parse.segment.segment import Fragment, segment

SKILLS = 300
DIMENSIONS = 192  # even: two share a byte
_CHARACTERS = 2_500, 16_000  # few words, or one skill that outweighs the others
_NODES, _SECTIONS = 20, 4  # at least: of less there is little to choose
_TELLING = 40  # characters of a fragment that two documents do not have by chance


def draw(corpus: Path, without: Collection[str]) -> Iterator[Sequence[Fragment]]:
    """Yield the fragments of skills of middling size with several sections, in a random order.

    None shares a longer fragment with `without` (bodies) or with one before it: that would be a copy. A
    corpus that cannot be read raises `WrongInput`.
    """
    known = {text for body in without for text in _telling(segment(body).fragments)}
    texts = list(corpus_texts(str(corpus)).values())
    for row in np.random.default_rng(0).permutation(len(texts)).tolist():
        body = body_of(texts[row])
        if _CHARACTERS[0] <= len(body) <= _CHARACTERS[1]:
            fragments = segment(body).fragments
            telling = _telling(fragments)
            sections = {fragment.heading_path for fragment in fragments}
            if len(sections) >= _SECTIONS and len(fragments) >= _NODES and known.isdisjoint(telling):
                yield fragments
            known |= telling


def _telling(fragments: Sequence[Fragment]) -> set[str]:
    return {text for fragment in fragments if len(text := fragment.text.strip()) >= _TELLING}


def group_states(fragments: Sequence[Fragment], encoder: OnnxEncoder) -> Vectors:
    """Return the states of all fragments' tokens in groups, unit vectors of shape `(states, 384)`."""
    found = []
    for text in (fragment.text for fragment in fragments):
        tokens = encoder.encode_parts(text, encoder.offsets(text))[1:]
        found.append(
            unit(np.add.reduceat(tokens, np.arange(0, len(tokens), GROUP))) if len(tokens) else tokens
        )
    return np.concatenate(found)


def axes(skills: Iterable[Vectors], dimensions: int = DIMENSIONS) -> tuple[Vectors, float]:
    """Return the principal axes of states less their skill's mean, and the share of variance that they hold.

    `skills` holds the states of each skill, shape `(states, d)`. The axes are orthonormal columns, shape
    `(d, dimensions)`, the one of most variance first.
    """
    scatter: Any = sum(
        np.cov(states.astype(np.float64), rowvar=False, bias=True) * len(states) for states in skills
    )
    variance, found = np.linalg.eigh(scatter)
    share = float(variance[::-1][:dimensions].sum() / variance.sum())
    return np.ascontiguousarray(found[:, ::-1][:, :dimensions], dtype=np.float32), share


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw skills, encode them, find the axes and write them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="Parquet of skills")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the exported encoder")
    parser.add_argument("--without", type=Path, help="JSON lines {doc_id, content}: skills not to learn from")
    parser.add_argument("--skills", type=int, default=SKILLS, help="how many are read")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args(arguments)
    encoder = OnnxEncoder(given.encoder, threads=1)
    without = [] if given.without is None else [body_of(t) for t in read_documents(given.without).values()]
    if encoder.card["name"] != STATE_MODEL:
        msg = f"{given.encoder} holds {encoder.card['name']}: states are kept of {STATE_MODEL} alone"
        raise WrongInput(msg)
    drawn = list(islice(draw(given.corpus, without), given.skills))
    if not drawn:
        raise WrongInput(f"{given.corpus}: no skill of middling size in {_SECTIONS} sections or more")
    found, share = axes(group_states(fragments, encoder) for fragments in drawn)
    sys.stdout.write(f"{len(drawn)} skills: {DIMENSIONS} dimensions hold {share:.1%} of the variance\n")
    np.save(given.out, found.astype(np.float16))


if __name__ == "__main__":
    main()
