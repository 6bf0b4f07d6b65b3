"""The layout of a plan's picture: a row for each group, a box for each step, a way for each edge.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", IEEE
SMC 1981: an edge that passes a row takes a place of its own there, and places are ordered by barycentres.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.models.visible import visible
from tasks.retrieve.graph.layout import MARGIN

# All lengths are inches. A line of a box, the space around its lines, a box, and a passing edge's place.
LINE, PAD, BOX, _PASS = 0.155, 0.1, 3.1, 0.3
# Between boxes of a row, from one row to the next, and around the boxes of a row with its name above them.
_BESIDE, _BETWEEN, BAND, NAME = 0.3, 0.5, 0.12, 0.2
_PORT = 0.35  # between the ends of two edges at one box, at most
_CHARACTERS = 38  # narrow ones of a line
_MOST_LINES = {"condition": 3, "text": 5, "served": 4}
_SWEEPS = 4
_BREAKS = "/-_.:"  # after which an id may be broken

Point = tuple[float, float]
Line = tuple[str, str]  # a text, and what it is: `condition`, `text`, `served`, `sure` or `gap`


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a step: its left and upper edge, its height, and its lines; `y` grows upwards."""

    step: int
    gap: bool
    x: float
    y: float
    height: float
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """What lies behind the boxes of a group: its name, and its edges."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Way:
    """The way of an edge from the lower edge of a box to the upper edge of another.

    Each two points are where it enters and leaves a row: it is straight inside rows, and bent between them.
    """

    kind: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """All that a plan's picture shows below its title, and its width and height."""

    boxes: tuple[Box, ...]
    bands: tuple[Band, ...]
    ways: tuple[Way, ...]
    width: float
    height: float


_Place = tuple[int, int]  # of a step, itself and -1; of an edge that passes a row, its number and the row


def lay_out_plan(plan: Mapping[str, Any]) -> PlanLayout:
    """Return the places of a plan's steps, groups and edges; no two boxes meet, and no edge meets a box."""
    lines = {step["step"]: tuple(_lines(step)) for step in plan["steps"]}
    heights = {number: len(held) * LINE + 2 * PAD for number, held in lines.items()}
    routes, rows = _routes(plan)
    rows = _ordered(rows, routes)
    left = _lefts(rows)
    right = max((left[row[-1]] + _wide(row[-1]) for row in rows), default=MARGIN + BOX) + BAND
    bands, tops, lows, y = list[Band](), dict[int, float](), dict[int, float](), 0.0
    for row in reversed(range(len(rows))):
        low, group = y, plan["groups"][row]
        lows[row] = low + BAND
        tops[row] = lows[row] + max(heights[number] for number in group)
        y = tops[row] + NAME
        name = f"group {row + 1}{', side by side' if len(group) > 1 else ''}"
        bands.insert(0, Band(name, MARGIN, y, right - MARGIN, y - low))
        y += _BETWEEN if row else 0.0
    boxes = [
        Box(n, step["gap"], left[n, -1], tops[step["group"] - 1], heights[n], lines[n])
        for step in plan["steps"]
        for n in [step["step"]]
    ]
    ways = _ways(plan, routes, {box.step: box for box in boxes}, left, tops, lows)
    return PlanLayout(tuple(boxes), tuple(bands), tuple(ways), right + MARGIN, y)


def _routes(plan: Mapping[str, Any]) -> tuple[list[list[_Place]], list[list[_Place]]]:
    """Return the places that each edge leads through, and the places of each row."""
    rows: list[list[_Place]] = [[(number, -1) for number in group] for group in plan["groups"]]
    group_of = {number: place for place, group in enumerate(plan["groups"]) for number in group}
    routes = []
    for number, edge in enumerate(plan["edges"]):
        passed = [(number, row) for row in range(group_of[edge["from"]] + 1, group_of[edge["to"]])]
        for place in passed:
            rows[place[1]].append(place)
        routes.append([(edge["from"], -1), *passed, (edge["to"], -1)])
    return routes, rows


def _ordered(rows: Sequence[list[_Place]], routes: Sequence[list[_Place]]) -> list[list[_Place]]:
    """Return the rows with each place near the middle of those it is joined with, ties as they stood."""
    joined: dict[_Place, list[_Place]] = {place: [] for row in rows for place in row}
    for one, other in itertools.chain.from_iterable(map(itertools.pairwise, routes)):
        joined[one].append(other)
        joined[other].append(one)
    found = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for number in range(1, len(found)) if down else range(len(found) - 2, -1, -1):
            beside = found[number - 1 if down else number + 1]
            found[number] = _by_barycentre(found[number], beside, joined)
    return found


def _by_barycentre(
    row: Sequence[_Place], beside: Sequence[_Place], joined: Mapping[_Place, Sequence[_Place]]
) -> list[_Place]:
    # Places are compared as shares of their rows, which hold different numbers of them.
    share = {place: (k + 0.5) / len(beside) for k, place in enumerate(beside)}
    centre = {}
    for k, place in enumerate(row):
        known = [share[other] for other in joined[place] if other in share]
        centre[place] = sum(known) / len(known) if known else (k + 0.5) / len(row)
    return sorted(row, key=lambda place: centre[place])


def _wide(place: _Place) -> float:
    return BOX if place[1] < 0 else _PASS


def _lefts(rows: Sequence[Sequence[_Place]]) -> dict[_Place, float]:
    """Return where each place begins; the rows stand on one axis."""
    widths = [sum(map(_wide, row)) + _BESIDE * (len(row) - 1) for row in rows]
    left: dict[_Place, float] = {}
    for row, width in zip(rows, widths, strict=True):
        x = MARGIN + BAND + (max(widths) - width) / 2
        for place in row:
            left[place] = x
            x += _wide(place) + _BESIDE
    return left


def _ways(
    plan: Mapping[str, Any],
    routes: Sequence[Sequence[_Place]],
    boxes: Mapping[int, Box],
    left: Mapping[_Place, float],
    tops: Mapping[int, float],
    lows: Mapping[int, float],
) -> list[Way]:
    """Return the way of each edge; ends at one box stand in the order of where they come from or lead to."""
    middle = {place: x + _wide(place) / 2 for place, x in left.items()}
    ends: dict[tuple[int, bool], list[int]] = {}
    for number, route in enumerate(routes):
        ends.setdefault((route[0][0], False), []).append(number)
        ends.setdefault((route[-1][0], True), []).append(number)
    port = {}
    for (step, into), numbers in ends.items():
        numbers.sort(key=lambda n: (middle[routes[n][-2 if into else 1]], n))
        apart = min(_PORT, BOX / (len(numbers) + 1))
        for k, number in enumerate(numbers):
            port[number, into] = middle[step, -1] + apart * (k - (len(numbers) - 1) / 2)
    row_of = {number: row for row, group in enumerate(plan["groups"]) for number in group}
    ways = []
    for number, (route, edge) in enumerate(zip(routes, plan["edges"], strict=True)):
        first, last = boxes[route[0][0]], boxes[route[-1][0]]
        start = port[number, False]
        points = [(start, first.y - first.height), (start, lows[row_of[route[0][0]]])]
        for place in route[1:-1]:
            points += [(middle[place], tops[place[1]]), (middle[place], lows[place[1]])]
        ways.append(Way(edge["type"], (*points, (port[number, True], last.y))))
    return ways


def _lines(step: Mapping[str, Any]) -> list[Line]:
    """Return the lines of a step's box."""
    lines = [(line, "text") for line in broken(f"{step['step']}. {step['text']}", _MOST_LINES["text"])]
    if step["condition"]:
        held = broken(f"only: {step['condition']}", _MOST_LINES["condition"])
        lines += [(line, "condition") for line in held]
    if step["gap"]:
        return [*lines, ("nothing served fits this step", "gap")]
    lines += [(line, "served") for line in broken(step["doc_id"], _MOST_LINES["served"])]
    return [*lines, (f"{step['confidence']:.0%} sure", "sure")]


def broken(text: str, most: int, characters: int = _CHARACTERS) -> list[str]:
    """Return a text in at most so many lines, broken between words, or after signs of an id that is longer.

    What does not fit is cut, and the last line says so by an ellipsis.
    """
    lines = [""]
    for word in visible(" ".join(text[: 4 * most * characters].split())).split(" "):
        rest = word
        while rest:
            room = characters - (_width(lines[-1]) + 1 if lines[-1] else 0)
            if _width(rest) <= room:
                lines[-1] = f"{lines[-1]} {rest}".strip()
                rest = ""
            elif lines[-1]:
                lines.append("")
            else:
                end = _fitting(rest, characters)
                lines[-1], rest = rest[:end], rest[end:]
                if rest:
                    lines.append("")
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    while _width(last) > characters - 1:
        last = last[:-1]
    return [*lines[: most - 1], f"{last.rstrip()}…"]


def _fitting(word: str, characters: int) -> int:
    """Return how much of a word stands on a line: up to a sign in its second half, else as much as fits."""
    fits = 1
    while fits < len(word) and _width(word[: fits + 1]) <= characters:
        fits += 1
    signs = [k + 1 for k, sign in enumerate(word[:fits]) if sign in _BREAKS]
    return signs[-1] if signs and signs[-1] > fits / 2 else fits


def _width(text: str) -> float:
    """Return the width of a text in narrow Latin characters."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 2.0
    if character in "mwMW@%&":
        return 1.7
    return 1.3 if character.isupper() else 1.0
