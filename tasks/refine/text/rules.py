"""Rules that lie in data files of the package, in YAML."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

# The parser in C takes a tenth of the time, for which the first document of each process waits.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def rules_text(name: str) -> str:
    """Return the text of a packaged file of rules; `name` is its name in `data/`."""
    return files("tasks.refine").joinpath("data", name).read_text("utf-8")


def parse_rules(text: str) -> dict[str, Any]:
    """Parse rules from YAML."""
    rules: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 (both loaders are safe)
    return rules


def rules_data(name: str) -> dict[str, Any]:
    """Return the rules of a packaged file."""
    return parse_rules(rules_text(name))
