"""BM25 over one text a skill, scored for all skills at once: the lexical leg of the baselines."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.errors import WrongInput

Scores = npt.NDArray[np.float64]

_WORD = re.compile(r"\w+")


class Bm25:
    """BM25 as Lucene has it, by the package bm25s; words as they stand, in lower case.

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.

    Args:
        texts: One a skill, at least one.
        k1: How fast further occurrences of a word stop counting.
        b: How much long texts are marked down, in [0, 1].

    Raises:
        WrongInput: bm25s is not installed.
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        library = _library()
        self._ids: dict[str, int] = {}
        numbered = [[self._ids.setdefault(w, len(self._ids)) for w in _words(text)] for text in texts]
        self._index = library.BM25(method="lucene", k1=k1, b=b, backend="numpy", csc_backend="numpy")
        self._index.index(library.tokenization.Tokenized(numbered, self._ids), show_progress=False)
        self._count = len(texts)

    def scores(self, query: str) -> Scores:
        """Return every text's score for a query, shape `(len(texts),)`; a word of the query counts once."""
        known = sorted({i for word in _words(query) if (i := self._ids.get(word)) is not None})
        if not known:
            return np.zeros(self._count)
        return np.asarray(self._index.get_scores_from_ids(known), dtype=np.float64)


def require_bm25() -> None:
    """Let pass where the library of the lexical baselines is installed; raises `WrongInput` otherwise."""
    _library()


def _library() -> Any:  # noqa: ANN401 (an optional package, loaded where a baseline is asked for)
    try:
        return importlib.import_module("bm25s")
    except ModuleNotFoundError as error:
        msg = "the lexical baselines need the package bm25s: pip install 'skillery[evaluate]'"
        raise WrongInput(msg) from error


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
