"""Near-duplicate folding against truth: exact shingle Jaccard of all pairs of 5,000 generated documents.

Run by hand: `PYTHONPATH=. python tests/benchmarks/near_duplicates.py [DOCUMENTS] [CORPUS.parquet]`. Words
come from the corpus' bodies where one is given (columns id and content), else from a list of made-up words.
"""

# ruff: noqa: T201, S311

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from scipy import sparse

from tasks.refine.filters import FilterLimits
from tests.benchmarks.refining import crawl, dropped, refine

THRESHOLD = 0.85
KINDS = ("0 %", "0.5 %", "1 %", "2 %", "3 %", "block", "reordered")
COPIES = 3
_SYLLABLES = [c + v + e for c in "bdfgklmnprstvz" for v in "aeiou" for e in ("", "n", "r", "s")]
_WORD = re.compile(r"\w+")


def made_up_words(rng: random.Random) -> list[str]:
    return ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(4000)]


def sections(rng: random.Random, words: list[str]) -> list[list[str]]:
    """Return paragraphs of a text: 2 to 9, of 20 to 200 words each, few words often and many seldom."""
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return [rng.choices(words, weights, k=rng.randint(20, 200)) for _ in range(rng.randint(2, 9))]


def edited(text: list[list[str]], kind: str, rng: random.Random, words: list[str]) -> list[list[str]]:
    """Return a copy with an edit: a share of its words replaced, one paragraph, or their order changed."""
    copy = [list(paragraph) for paragraph in text]
    if kind == "reordered":
        rng.shuffle(copy)
    elif kind == "block":
        at = rng.randrange(len(copy))
        copy[at] = rng.choices(words, k=len(copy[at]))
    else:
        places = [(i, j) for i, paragraph in enumerate(copy) for j in range(len(paragraph))]
        for i, j in rng.sample(places, round(float(kind.removesuffix(" %")) / 100 * len(places))):
            copy[i][j] = rng.choice(words)
    return copy


def written(text: list[list[str]]) -> str:
    """Return a text as a SKILL.md; the paragraphs' ends vary nothing but white space."""
    body = "\n\n".join(" ".join(paragraph) + "." for paragraph in text)
    return f"---\nname: generated\ndescription: A generated text.\n---\n{body}\n"


def generated(n: int, words: list[str], rng: random.Random) -> list[tuple[str, str, int, str]]:
    """Return doc_id, content, base and kind (`base` for an original) of `n` documents."""
    rows: list[tuple[str, str, int, str]] = []
    ids = rng.sample(range(10**6), n)
    while len(rows) < n:
        text, base = sections(rng, words), len(rows)
        rows.append((f"doc-{ids[base]}", written(text), base, "base"))
        for kind in rng.sample(KINDS, COPIES)[: n - len(rows)]:
            copy = written(edited(text, kind, rng, words))
            rows.append((f"doc-{ids[len(rows)]}", copy, base, kind))
    return rows


def truth(contents: list[str]) -> dict[tuple[int, int], float]:
    """Return the pairs of texts at the threshold or over it, by an exact product of all shingle sets."""
    numbers: dict[tuple[str, ...], int] = {}
    columns, ends = [], [0]
    for content in contents:
        found = _WORD.findall(content.split("---\n", 2)[2].lower())
        sets = {tuple(found[i : i + 5]) for i in range(len(found) - 4)}
        columns += [numbers.setdefault(shingle, len(numbers)) for shingle in sets]
        ends.append(len(columns))
    shape = (len(contents), len(numbers))
    matrix = sparse.csr_matrix((np.ones(len(columns), np.int32), columns, ends), shape=shape)
    shared = sparse.triu(matrix @ matrix.T, k=1).tocoo()
    sizes = np.diff(ends)
    similarity = shared.data / (sizes[shared.row] + sizes[shared.col] - shared.data)
    near = similarity >= THRESHOLD
    keys = zip(shared.row[near].tolist(), shared.col[near].tolist(), strict=True)
    return dict(zip(keys, similarity[near].tolist(), strict=True))


def folded(rows: list[tuple[str, str, int, str]], folder: Path) -> dict[str, str]:
    """Return which document folded onto which, by the real stage."""
    corpus = folder / "corpus.parquet"
    columns = {"id": [row[0] for row in rows], "content": [row[1] for row in rows]}
    pl.DataFrame(columns).write_parquet(corpus)
    crawl(folder / "root", corpus)
    # Made-up words are of no language.
    counts, seconds, settling = refine(folder / "root", limits=FilterLimits(min_language_confidence=0))
    print(f"{counts} in {seconds:.1f} s, of which settling {settling:.1f} s")
    rows_dropped = dropped(folder / "root").filter(pl.col("lost_to").is_not_null())
    return dict(rows_dropped.select("doc_id", "lost_to").iter_rows())


def report(rows: list[tuple[str, str, int, str]], onto: dict[str, str]) -> None:
    """Print how the folding compares with truth."""
    near = truth([content for _, content, _, _ in rows])
    number = {row[0]: i for i, row in enumerate(rows)}
    folds = [tuple(sorted((number[a], number[b]))) for a, b in onto.items()]
    right = sum(fold in near for fold in folds)
    print(f"folds {len(folds):,}, precision {right / len(folds):.4f} (at least 0.99)")
    gone = {number[doc_id] for doc_id in onto}
    settled = sum(a in gone or b in gone for a, b in near)
    print(f"true pairs {len(near):,}, recall {settled / len(near):.4f} (at least 0.95): not both survive")
    cluster: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        cluster.setdefault(onto.get(row[0], row[0]), []).append(i)
    together = {pair for members in cluster.values() for pair in combinations(members, 2)}
    hits = len(together & near.keys())
    print(
        f"pairs of one cluster {len(together):,}: {hits / len(together):.4f} of them truly near; "
        f"{hits / len(near):.4f} of the true pairs are in one cluster"
    )
    by_kind = Counter(rows[b][3] for a, b in near if rows[a][3] == "base")
    found = Counter(rows[b][3] for a, b in near if rows[a][3] == "base" and (a in gone or b in gone))
    planted = Counter(row[3] for row in rows)
    print("kind        planted  truly near its base  recall of those  of all planted")
    for kind in KINDS:
        recall = found[kind] / by_kind[kind] if by_kind[kind] else float("nan")
        share = found[kind] / planted[kind]
        print(f"{kind:10} {planted[kind]:8,} {by_kind[kind]:20,} {recall:16.3f} {share:15.3f}")


def main(n: int, corpus: str | None) -> None:
    """Generate, fold twice in different orders, compare with truth."""
    rng = random.Random(7)
    words = made_up_words(rng)
    if corpus:
        bodies = " ".join(pl.read_parquet(corpus, columns=["content"])["content"].head(500)).lower()
        words = [word for word, _ in Counter(re.findall(r"[a-z]+", bodies)).most_common(4000)]
    rows = generated(n, words, rng)
    survivors = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            onto = folded(rng.sample(rows, len(rows)), Path(folder))
            survivors.append({row[0] for row in rows} - onto.keys())
    report(rows, onto)
    print(f"two shuffles, same survivors: {survivors[0] == survivors[1]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000, sys.argv[2] if len(sys.argv) > 2 else None)
