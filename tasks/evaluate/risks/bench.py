"""The bench of risks: hostile skills and harmless ones, read as a source is, each scanned and timed alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import binomtest

from storage.errors import WrongInput
from storage.schemas import Finding, RawDocument
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.local.parquet_file import ParquetSource
from tasks.evaluate.measures.runs import grouped, latency, long_table
from tasks.evaluate.measures.tables import Block, Table, columns, interval

MEASURES = ("warned", "blocked", "seconds")
Row = dict[str, Any]
Scan = Callable[[RawDocument], Sequence[Finding]]


class LabelledSkill(NamedTuple):
    """A skill of a bench; of a hostile one its class, and the place of what is hostile in it."""

    id: str
    documents: Sequence[RawDocument]
    hostile: bool = False
    kind: str | None = None
    place: str | None = None


def read_bench(folder: Path, into: Path) -> Iterator[LabelledSkill]:
    """Yield the skills of a bench, copied into an empty folder and read there, as `dir:` reads a folder.

    The bench has a line `{id, class, malicious, place}` for each skill in `labels.jsonl`, its folder in
    `malicious/` or `benign/`, and may have `links.json`: the symbolic links to make, by path, with targets.

    Raises:
        WrongInput: A file of the bench is missing or is not of this form.
    """
    try:
        shutil.copytree(folder, into, dirs_exist_ok=True, symlinks=True)
        named = into / "links.json"
        for path, target in (json.loads(named.read_text("utf-8")) if named.is_file() else {}).items():
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, into / path)
        for line in (into / "labels.jsonl").read_text("utf-8").splitlines():
            label = json.loads(line)
            at = into / ("malicious" if label["malicious"] else "benign") / label["id"]
            read = [one for one in DirectorySource(str(at)).read() if isinstance(one, RawDocument)]
            yield LabelledSkill(label["id"], read, label["malicious"], label["class"], label["place"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = "labels.jsonl with lines {id, class, malicious, place}, malicious/ID, benign/ID"
        msg = f"{folder} is no bench of risks ({type(error).__name__}: {error}); it needs {said}"
        raise WrongInput(msg) from error


def read_sample(file: Path, count: int) -> Iterator[LabelledSkill]:
    """Yield skills of a Parquet file that nobody labelled, `count` drawn by the seed 42, or all."""
    found = [one for one in ParquetSource(str(file)).read() if isinstance(one, RawDocument)]
    drawn = random.Random(42).sample(found, min(count, len(found)))  # noqa: S311
    return (LabelledSkill(one.doc_id, [one]) for one in drawn)


def scan_skills(skills: Iterator[LabelledSkill], scan: Scan, refused: Collection[str]) -> list[Row]:
    """Return a row a skill: what was found in it, whether that warns and blocks, and CPU seconds.

    `refused` are the severities and groups of risks that `install` refuses.
    """
    rows, classes = [], set(refused)
    for skill in skills:
        start = time.process_time()
        found = [one for raw in skill.documents for one in scan(raw)]
        seconds = time.process_time() - start
        rows.append({
            "query_id": skill.id, "class": skill.kind, "place": skill.place, "hostile": skill.hostile,
            "files": any(raw.contents for raw in skill.documents),
            "warned": any(one.severity != "info" for one in found),
            "blocked": any({one.severity, one.code.split(".")[1]} & classes for one in found),
            "seconds": seconds,
            "risks": [f"{one.severity} {one.code}: {one.message}" for one in found if one.severity != "info"],
        })  # fmt: skip
    return rows


def _share(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the shares warned and blocked, with exact 95 % intervals (Clopper and Pearson 1934)."""
    found: dict[str, Any] = {"skills": len(rows), "ci95": {}}
    for measure in ("warned", "blocked"):
        hits = sum(row[measure] for row in rows)
        low, high = binomtest(hits, len(rows)).proportion_ci(0.95) if rows else (0.0, 1.0)
        found |= {measure: hits / max(len(rows), 1), f"{measure}_skills": hits}
        found["ci95"][measure] = [float(low), float(high)]
    return found


def summarise_risks(rows: Sequence[Row], drawn: Sequence[Row]) -> dict[str, Any]:
    """Return shares of hostile skills, by class and by place, of harmless ones, and of those drawn; times."""
    hostile, benign = ([row for row in rows if row["hostile"] is it] for it in (True, False))
    others = [row for row in hostile if row["place"] != "SKILL.md"]
    milliseconds = [1000 * row["seconds"] for row in (*rows, *drawn)]
    rules = Counter(risk.split(": ")[0] for row in drawn for risk in row["risks"])
    return {
        "hostile": _share(hostile), "other_files": _share(others),
        **{
            f"by_{key}": {name: _share(own) for name, own in sorted(grouped(hostile, _of(key)).items())}
            for key in ("class", "place")
        },
        "benign": _share(benign), "benign_with_files": _share([row for row in benign if row["files"]]),
        "corpus": _share(drawn) | {"by_rule": dict(rules.most_common())},
        "seconds": sum(row["seconds"] for row in (*rows, *drawn)), **latency(milliseconds),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "missed": [row["query_id"] for row in hostile if not row["warned"]],
        "alerts": [
            {"id": row["query_id"], "risks": row["risks"]} for row in (*benign, *drawn) if row["warned"]
        ],
    }  # fmt: skip


def _of(key: str) -> Callable[[Mapping[str, Any]], str | None]:
    return lambda row: row[key]


def run_table(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the long table of rows of `scan_skills`."""
    frame = pl.DataFrame(rows, infer_schema_length=None).drop("risks")
    return long_table("risks", frame.with_columns(method=pl.lit("rules")), MEASURES)


_TIMES = {"median": "median_ms", "95 %": "p95_ms", "99 %": "p99_ms"}
_SHARES = columns(
    "skills",
    {
        name: f"{{{name}_skills}} {{{name}:.3f}} " + interval(name, ".3f")
        for name in ("warned", "blocked")
    },
)  # fmt: skip


def terminal_blocks(found: Mapping[str, Any]) -> list[Block]:
    """Return what a person sees: shares with 95 % intervals, times, what was missed and what was alarmed."""
    whole = {
        "hostile": "hostile", "of them beside SKILL.md": "other_files", "benign": "benign",
        "of them with files": "benign_with_files", "drawn from the corpus": "corpus",
    }  # fmt: skip
    named = [{"of": name, **found[key]} for name, key in whole.items() if found[key]["skills"]]
    blocks: list[Block] = [Table("", columns("of", _SHARES), named)]
    for key in ("by_class", "by_place"):
        rows = [{"of": name, **own} for name, own in found[key].items()]
        blocks.append(Table(f"hostile {key.replace('_', ' ')}", columns("of", _SHARES), rows))
    times = ", ".join(f"{name} {found[key]:.1f} ms" for name, key in _TIMES.items())
    blocks += [
        f"{found['seconds']:.1f} s of CPU; a skill: {times}",
        f"missed: {', '.join(found['missed']) or 'none'}",
    ]
    alerts = [f"alarmed: {one['id']}: {'; '.join(one['risks'])}" for one in found["alerts"]]
    return blocks + alerts + [f"written: {file}" for file in found.get("report", ())]
