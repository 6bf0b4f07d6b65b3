"""Print what a CSV file looks like: delimiter, fields a row, and the kind of value in each column."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from pathlib import Path

DATE = re.compile(r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}$")
NUMBER = re.compile(r"^-?[\d.,' ]*\d$")


def kind_of(value: str) -> str:
    """Name the kind of one cell: empty, date, number or text."""
    value = value.strip()
    if not value:
        return "empty"
    if DATE.match(value):
        return "date"
    return "number" if NUMBER.match(value) else "text"


def profile(path: Path, encoding: str = "utf-8-sig") -> None:
    """Print the profile of one file."""
    text = path.read_text(encoding=encoding, errors="replace")
    dialect = csv.Sniffer().sniff(text[:20_000], delimiters=",;\t|")
    rows = list(csv.reader(text.splitlines(), dialect))
    print(f"delimiter {dialect.delimiter!r}, {len(rows) - 1} data rows")
    print("fields a row:", dict(Counter(len(row) for row in rows)))
    for index, name in enumerate(rows[0]):
        kinds = Counter(kind_of(row[index]) for row in rows[1:] if index < len(row))
        print(f"  {name}: {dict(kinds)}")


if __name__ == "__main__":
    profile(Path(sys.argv[1]))
