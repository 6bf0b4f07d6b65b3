"""The findings' stable codes, as data: severities are written nowhere else."""

from __future__ import annotations

from typing import NamedTuple

from storage.schemas import Finding, Severity
from tasks.refine.text.rules import rules_data


class Meaning(NamedTuple):
    """The severity of a code, and what the code says in one line."""

    severity: Severity
    text: str


CODES = {code: Meaning(*meaning) for code, meaning in rules_data("findings.yaml").items()}


def finding(code: str, message: str = "") -> Finding:
    """Return a finding with its code's severity; the message defaults to the code's meaning.

    Raises:
        KeyError: The code is not in `data/findings.yaml`.
    """
    meaning = CODES[code]
    return Finding(code, meaning.severity, message or meaning.text)
