"""Rules that lie in data files of the package, in YAML."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

# The parser in C takes a tenth of the time, which every first document of a night waits for.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def rules_text(name: str) -> str:
    """Return a packaged file of rules as it is written, for digests; `name` is as in `data/`."""
    return files("tasks.refine").joinpath("data", name).read_text("utf-8")


def parse_rules(text: str) -> dict[str, Any]:
    """Return what a text of rules holds."""
    rules: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 (both loaders are safe)
    return rules


def rules_data(name: str) -> dict[str, Any]:
    """Return what a packaged file of rules holds."""
    return parse_rules(rules_text(name))
