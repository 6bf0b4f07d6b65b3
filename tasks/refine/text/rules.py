"""Rules that lie in data files of the package, in YAML; among them the findings' stable codes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from storage.schemas import Finding, Severity

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


class Meaning(NamedTuple):
    """The severity of a code, and what the code says in one line."""

    severity: Severity
    text: str


CODES = {code: Meaning(*meaning) for code, meaning in rules_data("findings.yaml").items()}


def finding(code: str, message: str = "") -> Finding:
    """Return a finding with its code's severity; the message defaults to the code's meaning."""
    meaning = CODES[code]
    return Finding(code, meaning.severity, message or meaning.text)
