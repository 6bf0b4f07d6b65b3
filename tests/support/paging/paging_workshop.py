"""A root with the documents that probes of paging ask about."""

from __future__ import annotations

_THINGS = ("anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer")


_DEEDS = ("Polish", "Grease", "Sharpen", "Store", "Measure")


def workshop(name: str, tools: int) -> str:
    """Return a guide of 8 sections of so many passages each."""
    parts = [f"---\nname: {name}\n---\n# Workshop {name}"]
    for thing in _THINGS:
        parts.append(f"## The {thing}")
        parts += [
            f"- {_DEEDS[n % 5]} the {thing} handle every {n + 2} weeks with {name}{thing}{n} wax."
            for n in range(tools)
        ]
    return "\n".join(parts) + "\n"
