"""Compares corpora for the command; apart from the benches, which load less."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tasks.evaluate.compare import compare
from tasks.evaluate.corpora import load_corpus


def compare_corpora(a: str, b: str) -> dict[str, Any]:
    """Compare two corpora by SkillFlow's measures of structure (section 4.3, figure 2).

    Documents without text, as exports hold them, are counted apart and take no part.

    Args:
        a: A root, a Parquet file or JSON lines.
        b: Another.

    Raises:
        WrongInput: One is none of these, or holds no document.
    """
    corpus_a, corpus_b = load_corpus(a), load_corpus(b)
    without_text = {"without_text_a": corpus_a.without_text, "without_text_b": corpus_b.without_text}
    return {**asdict(compare(corpus_a.measures, corpus_b.measures)), **without_text}
