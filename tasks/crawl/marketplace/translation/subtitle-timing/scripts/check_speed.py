"""List the subtitles of an SRT file that are too fast to read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TIME = re.compile(r"(\d+):(\d+):(\d+)[,.](\d+) --> (\d+):(\d+):(\d+)[,.](\d+)")
LIMIT = 17.0


def seconds(parts: tuple[str, ...]) -> float:
    """Turn hours, minutes, seconds and milliseconds into seconds."""
    hours, minutes, whole, thousandths = (int(part) for part in parts)
    return hours * 3600 + minutes * 60 + whole + thousandths / 1000


def too_fast(text: str, limit: float = LIMIT) -> Iterator[tuple[str, float]]:
    """Yield the number and the speed of each subtitle above `limit` characters a second."""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        match = TIME.match(lines[1]) if len(lines) > 2 else None
        if match is None:
            continue
        duration = seconds(match.groups()[4:]) - seconds(match.groups()[:4])
        speed = sum(len(line) for line in lines[2:]) / max(duration, 0.001)
        if speed > limit:
            yield lines[0], speed


if __name__ == "__main__":
    for number, speed in too_fast(Path(sys.argv[1]).read_text(encoding="utf-8-sig")):
        print(f"{number}: {speed:.1f} characters a second")
