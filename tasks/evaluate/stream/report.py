"""The report on a stream: SGDR's tables as Markdown, the paper's figures beside ours, and its figure 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.evaluate.measures.tables import table
from tasks.evaluate.stream.decisions import MEASURES
from tasks.evaluate.stream.variants import ALPHAS, RELEVANCE_WEIGHTS
from tasks.induce.skills.actions import GRANULARITIES

# Success rates in % on Shopping, Reddit and Map, and over all five domains, where a sentence states them.
_PAPER_ALPHA = {0.5: "34.6 / 35.9 / 32.3"}
_NOT_STATED = "not stated"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
NOTE = (
    "Ours is the share of steps at which one of five skills offered does exactly what was done next"
    " (usable@5), on recorded runs; the paper's figures (SGDR, arXiv 2606.04391, success rates of GPT-4.1 on"
    " Shopping, Reddit and Map) are of agents that act, and only what its text states is here: its tables say"
    " that alpha 0.5, MMR with 0.7 and windows are best, and SGDR's mean over five domains is 37.5."
)


def stream_markdown(found: Mapping[str, Any]) -> str:
    """Return the whole report, of what the command returns."""
    rows = {row["method"]: row for row in found["methods"]}
    said = (
        f"{found['trajectories']['read']} trajectories, {found['steps']} steps at which skills were offered."
    )
    if warm := found["warm"]:
        said += (
            f" Before the first, {warm['taught']} trajectories of {warm['root']} were learned;"
            f" {warm['left_out']} of the stream are in it and were not."
        )
    parts = ["# Skills offered along a stream", said, NOTE, "## Methods", _methods(list(rows.values()))]
    parts += ["## By domain: usable@5", _domains(list(rows.values()))]
    parts += ["## Table 2: task and state", *_table(rows, "alpha", _alphas())]
    parts += ["## Table 3: MMR", *_table(rows, "relevance weight", _weights())]
    parts += ["## Table 4: granularity", _granularity(found["granularity"])]
    return "\n\n".join(parts) + "\n"


def _methods(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("Method", *MEASURES, "95% CI of usable@5", f"{rows[0]['method']} less it", "adjusted p")
    return table(head, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    low, high = row["ci95"]["usable@5"]
    against = row["against"]
    compared = (f"{against['difference']:+.3f}", f"{against['adjusted_p']:.4f}") if against else ("", "")
    return (row["method"], *(f"{row[m]:.3f}" for m in MEASURES), f"{low:.3f} to {high:.3f}", *compared)


def _domains(rows: Sequence[Mapping[str, Any]]) -> str:
    domains = sorted({domain for row in rows for domain in row["by_domain"]})
    cells = [[row["method"], *(f"{row['by_domain'][d]['usable@5']:.3f}" for d in domains)] for row in rows]
    return table(("Method", *domains), cells)


def _alphas() -> Iterator[tuple[str, str, str]]:
    for alpha, name in ALPHAS.items():
        yield f"{alpha:g}", name, _PAPER_ALPHA.get(alpha, _NOT_STATED)


def _weights() -> Iterator[tuple[str, str, str]]:
    for weight, name in RELEVANCE_WEIGHTS.items():
        label = "no MMR" if weight is None else f"{weight:g}"
        yield label, name, _PAPER_ALPHA[0.5] if weight == 0.7 else _NOT_STATED


def _table(
    rows: Mapping[str, Mapping[str, Any]], what: str, lines: Iterator[tuple[str, str, str]]
) -> list[str]:
    cells = [
        [label, f"{rows[name]['usable@5']:.3f}", f"{rows[name]['action@5']:.3f}", said]
        for label, name, said in lines
        if name in rows
    ]
    return [table((what, "usable@5", "action@5", "paper: success rate (%)"), cells)]


def _granularity(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [row["granularity"], row["method"], f"{row['usable@5']:.3f}", f"{row['action@5']:.3f}"]
        for granularity in GRANULARITIES
        for row in rows
        if row["granularity"] == granularity
    ]
    return table(("Skills are", "Method", "usable@5", "action@5"), cells)


def draw_stream(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw `along` of rows of `summarise` into a file of the kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        width = 2.2 if number == 0 else 1.2
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(*zip(*row["along"], strict=True), color=colour, linewidth=width, label=row["method"])
    axes.set_xlabel("steps of the stream")
    axes.set_ylabel("mean usable@5 so far")
    axes.set_ylim(0, None)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=4)
    axes.set_title("Share of steps with a usable skill among the five offered", fontsize=10)
    figure.savefig(path, dpi=150)
