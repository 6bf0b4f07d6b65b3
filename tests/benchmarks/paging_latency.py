"""How long a page takes in a warm process, beside one single-thread encoding of the query in the same run.

Run by hand: `python tests/benchmarks/paging_latency.py FOLDER`, a folder for the encoder's export. Documents
are made up, their vectors and states drawn by a seed: the time of a page does not depend on what they say.
"""

# ruff: noqa: T201

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.evaluate.paging.bench import Remembering
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.token_states import pack, unit
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.document import parse_document
from tasks.retrieve.page import page
from tasks.retrieve.paging.facets import ready_for
from tasks.retrieve.paging.types import PagedDocument

_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_QUERY = (
    "Set up valve {} for a pressure of four bar, check its seal before the pump starts, and tell me what"
    " to log when it drips."
)
_TIMES = 60
_SECTION = """
## Valve {n}

Turn valve {n} by hand until the mark shows. Check the seal:

- Pressure stays under {n} bar while the pump runs
- Replace the ring when it drips more than {n} times

```python
valve = open_valve({n})
valve.log("pressure", bar={n})
```
"""


def _document(nodes: int, encoder: OnnxEncoder) -> PagedDocument:
    body = "# Plant\n" + "".join(_SECTION.format(n=n) for n in range(nodes // 5))
    found = parse_document("plant", body, classifier=LocalClassifier(), tokenizer=encoder)
    chance = np.random.default_rng(7)

    def drawn(rows: int) -> np.ndarray:
        return unit(chance.normal(size=(rows, 384)).astype(np.float32))

    # As many states as there would be; what they say takes no more and no less time.
    states = pack([drawn(node.n_tokens) for node in found])
    return PagedDocument(
        "plant", body, found, drawn(len(found)), n_tokens=encoder.count([body])[0], states=states
    )


def _line(what: str, answer: Callable[[str], object], times: int = _TIMES) -> None:
    queries = [_QUERY.format(turn) for turn in range(times)]
    answer("warm up the pump")
    took = []
    for query in queries:
        began = time.perf_counter()
        answer(query)
        took.append(1000 * (time.perf_counter() - began))
    print(f"{what:48} median {np.median(took):8.2f} ms   p99 {np.quantile(took, 0.99):8.2f} ms")


def main(folder: str) -> None:
    """Print medians and 99th percentiles."""
    encoder = OnnxEncoder(exported_encoder(Path(folder), _ENCODER), threads=1)
    _line("encoding the query alone, one thread", lambda q: encoder.encode([q]))
    for size in (60, 200, 600, 10_000):
        document = _document(size, encoder)
        began = time.perf_counter()
        ready = ready_for(document, encoder=encoder, tokenizer=encoder)
        print(
            f"{len(document.nodes)} nodes: made ready once in {1000 * (time.perf_counter() - began):.1f} ms"
        )
        once = PagedDocument(
            "plant", document.body, document.nodes, document.vectors, document.n_tokens, ready=ready
        )
        remembered = Remembering(encoder)
        for name, budget in (("no budget", None), ("budget 0.5", 0.5)):

            def whole(query: str, document: PagedDocument = once, budget: float | None = budget) -> object:
                return page(document, query, encoder=encoder, tokenizer=encoder, budget=budget)

            def rest(
                query: str,
                document: PagedDocument = once,
                budget: float | None = budget,
                known: Remembering = remembered,
            ) -> object:
                return page(document, query, encoder=known, tokenizer=encoder, budget=budget)

            times = _TIMES if size < 1000 else 10
            for turn in range(times):
                rest(_QUERY.format(turn))
            _line(f"  page, {name}", whole, times)
            _line(f"  page, {name}, without encoding the query", rest, times)


if __name__ == "__main__":
    main(sys.argv[1])
