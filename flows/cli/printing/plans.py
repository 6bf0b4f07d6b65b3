"""The forms in which measures of plans are printed for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flows.commands.console import say, table

# Tables of few columns, because a terminal has 80.
_TABLES = (
    ("number of steps", {"da": "DA", "da±1": "DA±1", "stepf1": "StepF1"}),
    (
        "what serves them",
        {"catr@1": "CatR@1", "catr@10": "CatR@10", "srvr@1": "SrvR@1", "srvr@10": "SrvR@10"},
    ),
    ("whole plans", {"chain": "chain", "edgef1": "EdgeF1", "graph": "graph", "plan": "plan"}),
)
_CONTESTS = ("da", "catr@1", "srvr@1", "stepf1", "chain", "edgef1", "plan")
_GROUPED = ("da", "catr@1", "srvr@1", "stepf1", "plan")
_REWORDED = ("da", "srvr@1", "stepf1", "plan")


def print_plans(found: dict[str, Any]) -> None:
    """Print the measures of methods that plan, with 95 % intervals, and how they differ from the baseline."""
    rows = found["methods"]
    for title, measures in _TABLES:
        _measures(f"{title}, {found['queries']} requests, 95 % intervals", measures, rows)
    if "report" not in found:  # its files hold the rest
        compared = [row for row in rows if row["against"]]
        if compared:
            _contests(f"against {found['baseline']}; p of bootstrap and Wilcoxon, by Holm", compared)
        for group in ("difficulty", "tag"):
            _groups(group, rows)
    main = [row for row in rows if row["method"] in ("local-r1", "local-r0")] if "report" in found else rows
    _paraphrases([row for row in main if row["paraphrase"]])
    _confidence(found["without_gold"])
    for label in dict.fromkeys(one["label"] for one in found["transfer"]):
        _transfer(label, [one for one in found["transfer"] if one["label"] == label])
    for why in dict.fromkeys(found["skipped"].values()):
        say(f"not measured: {', '.join(name for name, said in found['skipped'].items() if said == why)}")
        say(f"  {why}")
    for file in found.get("report", ()):
        say(f"written: {file}")


def _measures(title: str, measures: Mapping[str, str], rows: Sequence[dict[str, Any]]) -> None:
    known = {key: name for key, name in measures.items() if any(key in row for row in rows)}
    if not known:
        return
    counted = "da" in known
    cells = [
        [
            row["method"],
            *([f"{row['steps']:.1f}"] if counted else []),
            *(_interval(row, key) for key in known),
            *([f"{row['median_ms']:.0f}"] if counted else []),
        ]
        for row in rows
    ]
    first, last = (["steps"], ["ms"]) if counted else ([], [])
    table(title, ["method", *first, *known.values(), *last], cells)


def _interval(row: Mapping[str, Any], measure: str) -> str:
    if measure not in row:
        return ""
    low, high = row["ci95"][measure]
    return f"{_share(row[measure])} {_share(low, 2)}-{_share(high, 2)}"


def _share(value: float | None, digits: int = 3) -> str:
    """Return a share without its zero before the point; of one, the digit alone."""
    if value is None:
        return ""
    said = f"{value:.{digits}f}"
    return "1" if float(said) == 1 else said.removeprefix("0")


def _p(value: float) -> str:
    return _share(value) if value >= 0.001 else "<.001"


def _signed(value: float, digits: int = 3) -> str:
    return ("-" if value < 0 else "+") + _share(abs(value), digits)


def _contests(title: str, rows: Sequence[dict[str, Any]]) -> None:
    cells = [
        [
            row["method"], measure, _signed(one["difference"]),
            f"{_signed(one['low'], 2)} {_signed(one['high'], 2)}", _p(one["p_adjusted"]),
            _p(one["wilcoxon"]["p_adjusted"]), f"{one['wins']}:{one['losses']}",
        ]
        for row in rows
        for measure, one in row["against"].items()
        if measure in _CONTESTS
    ]  # fmt: skip
    table(title, ["method", "measure", "differs", "95 %", "p", "Wilcoxon", "won:lost"], cells)


def _groups(name: str, rows: Sequence[dict[str, Any]]) -> None:
    cells = [
        [row["method"], group, part["queries"], *(_share(part.get(m)) for m in _GROUPED)]
        for row in rows
        for group, part in row[f"by_{name}"].items()
    ]
    if len({cell[1] for cell in cells}) > 1:
        table(f"by {name}", ["method", name, "n", *_GROUPED], cells)


def _paraphrases(rows: Iterable[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        said = row["paraphrase"]
        for form, part, agreed in (
            ("original", said["original"], None),
            ("paraphrase", said, said["agreement"]),
        ):
            shares = [_share(part.get(measure)) for measure in _REWORDED]
            cells.append([row["method"], form, part["queries"], *shares, _share(agreed)])
    if cells:
        table("paraphrases beside their originals", ["method", "words", "n", *_REWORDED, "agree"], cells)


def _confidence(found: Mapping[str, dict[str, Any]]) -> None:
    cells = [
        [
            name, one["steps"], _share(one["auroc_served"]),
            f"{_share(one['gaps']['with'])} {_share(one['gaps']['without'])}",
            f"{one['right']}:{one['wrong']}", _share(one["auroc_right"]),
        ]
        for name, one in found.items()
    ]  # fmt: skip
    if cells:
        columns = ["method", "steps", "AUROC served", "gaps", "right:wrong", "AUROC right"]
        table("confidence, with and without what serves a step; of right and wrong choices", columns, cells)


def _transfer(label: str, found: Sequence[dict[str, Any]]) -> None:
    cells = [
        [
            one["method"],
            _share(one["with"]["da"]),
            _share(one["without"]["da"]),
            _signed(one["da"]["difference"]),
        ]
        for one in found
        if one["da"]
    ]
    first = found[0]
    unknown = ", as far as is known: their servers are not"
    lost = unknown if first["unserved"] is None else f", {first['unserved']} lose all that serves a step"
    say(f"{label}: {first['rows']} rows", style="bold")
    say(f"{first['queries']} requests need some of them{lost}")
    if cells:
        table("the number of steps of these", ["method", "DA with", "DA without", "differs"], cells)
