"""What each layer of the search for risks adds: the rules on texts alone, files, code, classes.

Run by hand: `python -m tests.benchmarks.risk_ablation BENCH [PARQUET]`; a layer counts with those before it.
"""
# ruff: noqa: T201

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from storage.schemas import Finding, RawDocument
from tasks.evaluate.risks.bench import read_bench, read_sample, scan_skills, summarise_risks
from tasks.refine.document import refine_bundles
from tasks.refine.risks.rules import risk_rules

# The rules on texts of 27 November 2026, before files were read as what they are.
FIRST = """
override.ignore-previous override.role-token override.fake-system override.persona
override.safety-off override.agent-block hidden.tag-characters hidden.bidi
hidden.zero-width-run hidden.zero-width hidden.variation-selectors hidden.comment-orders
hidden.from-user hidden.style credential.secret-path credential.read-secret
credential.key-store credential.key-store-entry credential.seed-phrase
credential.environment-dump exfiltration.sink exfiltration.tunnel exfiltration.chat-hook
exfiltration.fixed-chat-hook exfiltration.raw-address exfiltration.dns exfiltration.send-secret
exfiltration.read-send remote.pipe-to-shell remote.shell-substitution remote.download-then-run
remote.run-fetched remote.powershell remote.download-run remote.reverse-shell
remote.instructions obfuscation.encoded-blob obfuscation.escapes obfuscation.decode-run
obfuscation.char-codes permission.skip-flags permission.skip-mode permission.all-tools
permission.any-command permission.sudo permission.lowered-guard permission.no-questions
permission.foothold discovery.inflated discovery.keyword-list discovery.repeated-word
"""


def _is_first(found: Finding) -> bool:
    # What stands in an archive was not read then.
    return _is_old(found) and "!" not in found.message.partition(", line ")[0]


def _by(found: Finding) -> str:
    rule = risk_rules().by_id.get(found.code.removeprefix("risk."))
    return rule.by if rule else ""


def _is_old(found: Finding) -> bool:
    return found.code.removeprefix("risk.") in FIRST.split()


LAYERS: dict[str, Callable[[Finding], bool]] = {
    "rules of 27 November": _is_first,
    "and files": lambda found: _is_old(found) or _by(found) == "files",
    "and code": lambda found: _is_old(found) or _by(found) in {"files", "code"},
    "and classes": lambda _: True,
}


def _found_in(raw: RawDocument) -> list[Finding]:
    (bundle,) = refine_bundles([raw])
    return [*bundle.text_risks, *bundle.risks]


def main() -> None:
    """Print a line a layer: hostile skills warned of and blocked, beside SKILL.md too, and false alarms."""
    drawn = [*read_sample(Path(sys.argv[2]), 6_000)] if len(sys.argv) > 2 else []
    with tempfile.TemporaryDirectory() as folder:
        bench = [*read_bench(Path(sys.argv[1]), Path(folder))]
    found = {id(raw): _found_in(raw) for skill in (*bench, *drawn) for raw in skill.documents}
    print(f"{'':24}{'warned':>8}{'blocked':>9}{'in files':>10}{'benign':>8}{'with files':>12}{'corpus':>8}")
    for name, counts in LAYERS.items():
        rows = [
            scan_skills(iter(some), lambda raw, counts=counts: [*filter(counts, found[id(raw)])], ["error"])
            for some in (bench, drawn)
        ]
        told = summarise_risks(*rows)
        hits = [
            told["hostile"]["warned_skills"], told["hostile"]["blocked_skills"],
            told["other_files"]["warned_skills"], told["benign"]["warned_skills"],
            told["benign_with_files"]["warned_skills"], told["corpus"]["warned_skills"],
        ]  # fmt: skip
        print(f"{name:24}" + "".join(f"{n:>{w}}" for n, w in zip(hits, (8, 9, 10, 8, 12, 8), strict=True)))


if __name__ == "__main__":
    main()
