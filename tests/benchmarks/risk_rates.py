"""Share of a corpus's documents that each risk rule and each kind of secret hits, beside base rates.

Run by hand: `python tests/benchmarks/risk_rates.py PARQUET [LIMIT]`; PARQUET has a column `content`. The base
rates are shares of two aggregators' copies (61,452 and 9,671 documents) hit by one plain pattern each.
"""
# ruff: noqa: T201

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.models.redact import redact
from tasks.refine.risks.rules import GROUPS, risk_rules
from tasks.refine.risks.scan import scan_all

# Per cent of documents; the rules that come nearest to what was counted.
BASE_RATES = {
    "permission.skip-flags": (0.84, 1.01),
    "credential.secret-path": (0.71, 0.61),
    "remote.pipe-to-shell": (0.54, 0.83),
    "hidden.from-user": (0.13, 0.08),
    "remote.powershell": (0.11, 0.23),
    "exfiltration.sink": (0.06, 0.05),
    "hidden.zero-width": (0.02, 0.10),
    "override.ignore-previous": (0.02, 0.18),
    "hidden.tag-characters": (0.003, 0.0),
    "hidden.bidi": (0.0, 0.01),
}
SECRETS_BASE_RATE = (0.03, 0.13)


def _print_rules(found: Counter[tuple[str, str]], documents: int) -> None:
    print(f"{'rule':34}{'error':>7}{'warning':>9}{'info':>7}{'% of documents':>16}   base rates, %")
    for rule in risk_rules().rules:
        counts = [found[f"risk.{rule.id}", severity] for severity in ("error", "warning", "info")]
        base = " / ".join(map(str, BASE_RATES.get(rule.id, ())))
        print(f"{rule.id:34}{counts[0]:7}{counts[1]:9}{counts[2]:7}{sum(counts) / documents:16.3%}   {base}")


def _print_groups(hit: Counter[tuple[str, str]], documents: int) -> None:
    print(f"\n{'group':34}{'any severity':>14}{'warning or error':>18}")
    for group in GROUPS:
        print(f"{group:34}{hit[group, 'any'] / documents:14.2%}{hit[group, 'grave'] / documents:18.2%}")


def main() -> None:
    """Print rates by rule and group, secrets by kind, and the time both scans took."""
    texts = pl.read_parquet(sys.argv[1], columns=["content"])["content"].to_list()
    texts = texts[: int(sys.argv[2])] if len(sys.argv) > 2 else texts
    rules: Counter[tuple[str, str]] = Counter()
    groups: Counter[tuple[str, str]] = Counter()
    secrets: Counter[str] = Counter()
    risky = with_secrets = 0
    start = time.process_time()
    for found in (found for at in range(0, len(texts), 500) for found in scan_all(texts[at : at + 500])):
        rules.update((f.code, f.severity) for f in found)
        groups.update({(f.code.split(".")[1], "any") for f in found})
        groups.update({(f.code.split(".")[1], "grave") for f in found if f.severity != "info"})
        risky += any(f.severity != "info" for f in found)
    scanned = time.process_time()
    for text in texts:
        kinds = Counter(f.code for f in redact(text)[1])
        secrets.update(kinds)
        with_secrets += bool(kinds)
    redacted = time.process_time()
    print(f"{len(texts):,} documents: {scanned - start:.1f} s scanning, {redacted - scanned:.1f} s redacting")
    _print_rules(rules, len(texts))
    _print_groups(groups, len(texts))
    print(f"\nsome warning or error: {risky / len(texts):.2%} of documents")
    base = " / ".join(map(str, SECRETS_BASE_RATE))
    print(f"live-looking keys: {with_secrets} documents, {with_secrets / len(texts):.3%} (base, %: {base})")
    for kind, n in secrets.most_common():
        print(f"  {kind:40}{n:5}")


if __name__ == "__main__":
    main()
