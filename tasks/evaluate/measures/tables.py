"""Tables of a report: a column is a heading and a format of a row's fields, one renderer for each output.

A format is that of `str.format` over a row, such as `{hit@1:.3f} [{ci95[hit@1][0]:.2f}, ...]`. A cell of
which a field is missing or None is empty, unless the format says otherwise. Beyond Python's own there are the
specifications `.2p` (a share as a number of per cent), `.3z` (a share without the zero before its point, of
one the digit alone), `+.3z`, `? x` (the text ` x` if the field is true, else nothing), and behind any of them
`|text`, which stands where the field is missing or None. The papers' own figures are packaged.
"""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

Row = Mapping[str, Any]
Columns = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its title, which may be empty; the format of each column by its heading; its rows."""

    title: str
    columns: Columns
    rows: Sequence[Row]

    def cells(self) -> list[list[str]]:
        """Return the texts of all cells."""
        return [[cell(form, row) for form in self.columns.values()] for row in self.rows]


# A text is a paragraph, or in Markdown a heading.
Block = str | Table


def cell(form: str, row: Row) -> str:
    """Return a row's text by a format."""
    try:
        return _FORMATTER.vformat(form, (), row)
    except _Missing:
        return ""


def columns(*parts: str | Columns, **more: str) -> dict[str, str]:
    """Return columns: of a plain name headed by it and holding that field, of a mapping its own."""
    found: dict[str, str] = {}
    for part in parts:
        found |= {part: f"{{{part}}}"} if isinstance(part, str) else part
    return found | more


def means(measures: Iterable[str] | Mapping[str, str], form: str = ".3f") -> dict[str, str]:
    """Return a column for the mean of each measure, by heading if they are a mapping from measures."""
    return {heading: f"{{{measure}:{form}}}" for measure, heading in _headed(measures)}


def with_intervals(
    measures: Iterable[str] | Mapping[str, str],
    form: str = ".3f",
    bounds: str = ".2f",
    around: tuple[str, str, str] = (" [", ", ", "]"),
) -> dict[str, str]:
    """Return a column for each measure's mean and its 95 % interval, of the form `0.500 [0.40, 0.60]`."""
    return {
        heading: (f"{{{measure}:{form}}}" if form else "") + interval(measure, bounds, around)
        for measure, heading in _headed(measures)
    }


def interval(
    measure: str, bounds: str = ".2f", around: tuple[str, str, str] = ("[", ", ", "]"), key: str = "ci95"
) -> str:
    """Return the format of a measure's interval."""
    first, between, last = around
    low, high = (f"{{{key}[{measure}][{end}]:{bounds}}}" for end in (0, 1))
    return f"{first}{low}{between}{high}{last}"


def _headed(measures: Iterable[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    return list(measures.items()) if isinstance(measures, Mapping) else [(one, one) for one in measures]


class _Missing(Exception):
    """A field of a format is missing or None."""


class _Formatter(string.Formatter):
    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, IndexError, TypeError):
            return None, field_name

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401
        spec, otherwise, text = format_spec.partition("|")
        if spec.startswith("?"):
            return spec[1:] if value else ""
        if value is None:
            if otherwise:
                return text
            raise _Missing
        if spec.endswith("p"):
            return format(100 * value, f"{spec[:-1]}f")
        if spec.endswith("z"):
            return _without_zero(value, spec[:-1])
        return str(value) if not spec else format(value, spec)


def _without_zero(value: float, spec: str) -> str:
    said = format(abs(value), f"{spec.removeprefix('+')}f")
    sign = "-" if value < 0 else "+" if spec.startswith("+") else ""
    return sign + ("1" if float(said) == 1 else said.removeprefix("0"))


_FORMATTER = _Formatter()


def markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown, a table under its title as a heading."""
    return "\n\n".join(_markdown(block) for block in blocks if block) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, str):
        return block
    drawn = table(list(block.columns), block.cells())
    return f"## {block.title}\n\n{drawn}" if block.title else drawn


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return cells under their headings as a Markdown table."""
    lines = [headings, ["---"] * len(headings), *([str(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@functools.cache
def papers(part: str) -> dict[str, Any]:
    """Return what the papers measured.

    `part` is `compose` (SkillWeaver: shares, and our method for each row of table 2), `paging` (SkillPager,
    by table: rows of `label`, our `method` and, where given, in per cent, `sufficient`, `interval`, `nodes`
    and `reduction`) or `routing` (by method: `table`, and each measure that is given).
    """
    file = resources.files("tasks.evaluate").joinpath(f"data/papers_{part}.json")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found
