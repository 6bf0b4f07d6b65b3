"""Fitted weights of small models: of feedback, ranking and confidence; `data/steps-1.md` is their card."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "fitted-1.json"


@functools.lru_cache(maxsize=1)
def fitted(file: Path = FILE) -> Mapping[str, Mapping[str, float]]:
    """Return the packaged weights by model and by feature."""
    held: Mapping[str, Mapping[str, float]] = json.loads(file.read_text("utf-8"))
    return held
