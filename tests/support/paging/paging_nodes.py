"""Documents cut into nodes, for the tests of paging."""

from __future__ import annotations

from storage.schemas import Node
from tasks.parse.segment.segment import segment
from tests.support.models.word_models import WordTokenizer

CODE = (
    "```python\n"
    + "\n\n".join(f"def step_{n}():\n    stir(pot, {n} * 10, gently=True)" for n in range(8))
    + "\n```"
)


TABLE = "| soup | minutes |\n|---|---|\n" + "\n".join(f"| leek and potato {n} | {n} |" for n in range(12))


PROSE = " ".join(f"Simmer batch {n} until the spoon stands up in it and nobody complains." for n in range(9))


def nodes_of(body: str) -> list[Node]:
    counts = WordTokenizer()
    return [
        Node(
            f"soup#{f.ordinal}", "soup", f.ordinal, "step", f.heading_path, f.lead_in, f.block, f.start,
            f.end, f.text, counts.count([f.text])[0], "by-hand", 1.0,
        )
        for f in segment(body).fragments
    ]  # fmt: skip
