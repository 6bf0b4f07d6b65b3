"""Counts what each asker has used within a stretch of time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """Uses by asker in stretches of `seconds` that begin at multiples of it since 1970, as UTC days do."""

    seconds: int
    start: int = 0
    used: Counter[str] = field(default_factory=Counter)

    def at(self, now: float) -> Counter[str]:
        """Return what is used at this moment: nothing yet where a new stretch has begun."""
        start = int(now // self.seconds) * self.seconds
        if start != self.start:
            self.start = start
            self.used.clear()
        return self.used

    @property
    def reset(self) -> int:
        """When the stretch ends, seconds since 1970."""
        return self.start + self.seconds
