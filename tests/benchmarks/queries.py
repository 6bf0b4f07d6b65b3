"""How long answers take from a served root: cold from the shell, and warm in one process.

Run by hand: `python tests/benchmarks/queries.py ROOT`. The reference beside each figure, in the same run, is
an empty Python process for the cold one, and the encoding of the query alone for the warm ones.
"""

# ruff: noqa: T201

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from storage.root import Root
from storage.state import parsed_table
from tasks.retrieve.served_index import ServedIndex

_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_QUESTION = "How do I handle errors when configuration option number {} is missing?"
_TIMES = 50


def _median_ms(answer: Callable[[int], object]) -> float:
    answer(-1)
    times = []
    for turn in range(_TIMES):
        began = time.perf_counter()
        answer(turn)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _cold_seconds(*command: str) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _line(what: str, figure: float, unit: str) -> None:
    print(f"{what:40} {figure:8.2f} {unit}")


def _warm(index: ServedIndex, sizes: list[tuple[str, int]]) -> None:
    index.search("warm up")
    with index.version() as now:
        encoder = now.encoder
    _line("warm: encoding a query alone", _median_ms(lambda t: encoder.encode([_QUESTION.format(t)])), "ms")
    _line("warm: search", _median_ms(lambda t: index.search(_QUESTION.format(t))), "ms")
    for doc_id, nodes in (sizes[0], sizes[1], sizes[len(sizes) // 2]):

        def answer(turn: int, doc_id: str = doc_id) -> object:
            return index.page(doc_id, _QUESTION.format(turn), budget=None, method="mmr")

        _line(f"warm: page of {nodes} nodes", _median_ms(answer), "ms")


def _cold(place: str, sizes: list[tuple[str, int]]) -> None:
    skillery = [sys.executable, "-c", "from flows.cli.main import main; main()"]
    largest, nodes = sizes[0]
    _line("cold: an empty Python process", _cold_seconds(sys.executable, "-c", "pass"), "s")
    search = _cold_seconds(*skillery, "search", "errors", "--root", place)
    _line("cold: search, shell to answer", search, "s")
    page = _cold_seconds(*skillery, "page", largest, "errors", "--root", place)
    _line(f"cold: page of {nodes} nodes, shell to answer", page, "s")


def main(place: str) -> None:
    """Print medians of search and page, warm and cold."""
    parsed = parsed_table(Root(place)).read().sort("n_nodes", descending=True)
    sizes = list(parsed.select("doc_id", "n_nodes").iter_rows())
    _warm(ServedIndex(Root(place), encoder=_ENCODER), sizes)
    _cold(place, sizes)


if __name__ == "__main__":
    main(sys.argv[1])
