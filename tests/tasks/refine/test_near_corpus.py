from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storage.errors import StorageError
from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import DOCUMENTS
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.near_corpus import forget_texts, near_texts, nearest
from tasks.refine.text.canonical import body_hash

BASE = [f"w{n}" for n in range(100)]
# Twin and cousin are near to the base, cousin more so to the twin; the others are near to none.
TEXTS = {
    "base": " ".join(BASE),
    "twin": " ".join([*BASE[:99], "new"]),
    "cousin": " ".join(["old", *BASE[1:99], "new"]),
    "half": " ".join([*BASE[:50], *(f"v{n}" for n in range(50))]),
    "short": "Too short a text.",
}
HASH = {name: body_hash(text) for name, text in TEXTS.items()}
NAME = {found: name for name, found in HASH.items()}
LIMITS = NearLimits()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def stored(root: Root, *names: str, file: str = "documents/one.parquet") -> pl.DataFrame:
    """Write texts to a file, return them as `near_texts` takes them."""
    columns = {name: [None] * len(names) for name in DOCUMENTS}
    hashes = [HASH[name] for name in names]
    rows = {**columns, "doc_id": names, "body": [TEXTS[name] for name in names], "body_hash": hashes}
    write_frame(root, file, pl.DataFrame(rows, schema=DOCUMENTS), DOCUMENTS)
    return owned("ann", hashes).with_columns(file=pl.lit(file))


def owned(owner: str, hashes: list[str]) -> pl.DataFrame:
    schema = {"owner": pl.String, "body_hash": pl.String}
    return pl.DataFrame({"owner": [owner] * len(hashes), "body_hash": hashes}, schema=schema)


def folded(found: pl.DataFrame) -> dict[str, tuple[str, float]]:
    return {NAME[text]: (NAME[onto], round(similarity, 3)) for _, text, onto, similarity in found.iter_rows()}


def test_what_is_known_of_texts_spares_reading_them_again(root: Root) -> None:
    texts = stored(root, *TEXTS)
    first = near_texts(root, texts, LIMITS)
    root.delete("documents")
    assert near_texts(root, texts, LIMITS).equals(first)
    with pytest.raises(StorageError, match=r"one\.parquet is missing"):
        near_texts(root, texts, NearLimits(threshold=0.5))


def test_a_new_text_is_compared_with_what_was_there(root: Root) -> None:
    old = stored(root, "base", "half", "short")
    assert near_texts(root, old, LIMITS).is_empty()
    new = stored(root, "cousin", "twin", file="state/staged/kept/two.parquet")
    found = near_texts(root, pl.concat([new[1:], old, new[:1]]), LIMITS)
    assert folded(found) == {"base": ("twin", 0.979), "cousin": ("twin", 0.979)}


def test_where_nothing_is_gone_nothing_is_written(root: Root) -> None:
    texts = stored(root, *TEXTS)
    near_texts(root, texts, LIMITS)
    before = {file: (root.folder / file).stat().st_mtime_ns for file in root.files("state")}
    near_texts(root, texts, LIMITS)
    forget_texts(root, texts["body_hash"])
    assert {file: (root.folder / file).stat().st_mtime_ns for file in root.files("state")} == before


def test_the_nearest_of_a_text_that_is_gone_is_the_one_most_like_it(root: Root) -> None:
    near_texts(root, stored(root, *TEXTS), LIMITS)
    gone = owned("ann", [HASH["base"], HASH["half"]])

    def like(*held: str, threshold: float = 0.85, owner: str = "ann") -> list[tuple[str, str]]:
        found = nearest(root, gone, owned(owner, [HASH[name] for name in held]), threshold)
        return [(NAME[one], NAME[other]) for _, one, other in found.iter_rows()]

    assert like("cousin", "twin", "short") == [("base", "twin")]
    assert like("cousin", "short") == [("base", "cousin")]
    assert like("cousin", "short", threshold=0.97) == []
    assert like("short") == []
    assert like("twin", owner="bob") == []
