"""The texts of a corpus, wherever it lies: a root, or a Parquet file."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.state import documents_table

_FORM = "give a root, or a Parquet file with doc_id or id, and content or body"


def corpus_texts(spec: str) -> dict[str, str]:
    """Return the text of every skill of a corpus by its id, as `tasks.evaluate.paging.prepare` reads it.

    Args:
        spec: A root (its current `documents/`), or a Parquet file with doc_id or id and content (a whole
            SKILL.md) or body. A row without text is passed over.

    Raises:
        WrongInput: There is nothing of the kind at `spec`, or it holds no text.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        frame, whole = _of_root(path), False
    elif path.is_file():
        frame, whole = _of_parquet(path)
    else:
        msg = f"{spec}: not found; {_FORM}"
        raise WrongInput(msg)
    rows = frame.drop_nulls().iter_rows()
    texts = {str(doc_id): text if whole else bare(text) for doc_id, text in rows}
    if not texts:
        msg = f"{spec}: holds no text of a skill; {_FORM}"
        raise WrongInput(msg)
    return texts


def bare(body: str) -> str:
    """Return a body with an empty front matter before it, so that none of its own lines is taken for one."""
    return f"---\nname: skill\n---\n{body}"


def _of_root(path: Path) -> pl.DataFrame:
    root = Root(path)
    if not root.exists("documents"):
        msg = f"{path}: no root, it has no documents/; {_FORM}"
        raise WrongInput(msg)
    rows = documents_table(root).read(columns=("doc_id", "kind", "body"))
    return rows.filter(pl.col("kind") == "skill").select("doc_id", "body")


def _of_parquet(path: Path) -> tuple[pl.DataFrame, bool]:
    try:
        columns = pl.read_parquet_schema(path)
        key = next((name for name in ("doc_id", "id") if name in columns), None)
        text = next((name for name in ("content", "body") if name in columns), None)
        if key is None or text is None:
            msg = f"{path}: has no column doc_id or id, or none of content and body; {_FORM}"
            raise WrongInput(msg)
        return pl.scan_parquet(path).select(key, text).collect(), text == "content"
    except (OSError, pl.exceptions.PolarsError) as error:
        msg = f"{path}: cannot be read as Parquet ({error}); {_FORM}"
        raise WrongInput(msg) from error
