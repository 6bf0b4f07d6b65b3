"""How fast the default engine encodes beside ONNX Runtime, and how far their vectors agree.

Run by hand: `python -m tests.benchmarks.encoding CORPUS [--paragraphs 1024] [--rounds 5] [--models FOLDER]`;
CORPUS is what `evaluate routing` takes. Both take turns in one process, on all cores, over the same
paragraphs of the skills' bodies.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from tasks.evaluate.routing.data import read_skills
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def paragraphs(corpus: Path, count: int) -> list[str]:
    """Return paragraphs of 80 to 900 characters, of skills drawn by a seed."""
    skills = read_skills([corpus]).sample(fraction=1.0, shuffle=True, seed=7)
    parts = (part.strip() for body in skills["body"] for part in body.split("\n\n"))
    return [part for part in parts if 80 < len(part) < 900][:count]


def main() -> None:
    """Measure, and print a line a round and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--paragraphs", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=Path("data/models"))
    given = parser.parse_args()
    texts = paragraphs(given.corpus, given.paragraphs)
    ours = OnnxEncoder(exported_encoder(given.models, MODEL))
    engines = {"ONNX Runtime": ours.by_onnx_runtime(), ours.engine: ours}
    tokens = sum(ours.count(texts))
    print(f"{len(texts)} paragraphs, {tokens:,} tokens")
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    vectors = {name: encoder.encode(texts) for name, encoder in engines.items()}  # loads both
    for _ in range(given.rounds):
        for name, encoder in engines.items():
            began = time.perf_counter()
            encoder.encode(texts)
            seconds[name].append(time.perf_counter() - began)
        print("  ".join(f"{name} {tokens / taken[-1]:,.0f} tokens/s" for name, taken in seconds.items()))
    first, second = (statistics.median(taken) for taken in seconds.values())
    cosines = (vectors["ONNX Runtime"] * vectors[ours.engine]).sum(axis=1)
    print(f"ratio of medians {first / second:.2f}; cosine {cosines.mean():.6f}, least {cosines.min():.6f}")


if __name__ == "__main__":
    main()
