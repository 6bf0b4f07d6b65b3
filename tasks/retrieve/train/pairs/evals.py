"""Requests in `evals/evals.json` of a bundle, which authors write to test their skill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tasks.retrieve.train.pairs.pieces import Piece

FILE = "evals/evals.json"
_PROMPTS = ("prompt", "query", "question", "input")
_LISTS = ("evals", "cases", "tests")


def eval_pieces(content: bytes) -> Iterator[Piece]:
    """Yield the prompts of a file of evals: a list, or an object with a list `evals`, `cases` or `tests`.

    An eval that must not trigger the skill (`should_trigger` is false) is passed over, as is what is no eval.
    """
    try:
        held: Any = json.loads(content)
    except ValueError:  # not JSON, or not UTF-8
        return
    if isinstance(held, dict):
        held = next((held[key] for key in _LISTS if key in held), [])
    for one in held if isinstance(held, list) else []:
        if isinstance(one, dict) and one.get("should_trigger", True) is not False:
            prompt = next((one[key] for key in _PROMPTS if isinstance(one.get(key), str)), None)
            if prompt:
                yield Piece("evals", prompt, "body", 0, 0)
