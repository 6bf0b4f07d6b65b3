"""Purges what was forgotten from every file and every table version below a root."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from storage.answers import forget_answers
from storage.errors import StorageError
from storage.lance.served import Served, keep_published, read_served
from storage.lance.tables import INDUCED, NODES, SKILLS, TableAt
from storage.lance.versions import drop_table, keep_only, rewrite, table_names, tag
from storage.parquet import read_columns, rewrite_rows
from storage.partitions import renew_entry
from storage.root import Root
from storage.state import SCHEMAS, table_of
from storage.tombstones import FOLDER, Forgotten
from tasks.crawl.source.tombstones import REASON, listed_ids
from tasks.retrieve.index.build import nodes_base
from tasks.retrieve.paging.kept_encodings import FOLDER as PAGES
from tasks.retrieve.routing.store import keep_routing
from tasks.retrieve.suggest.stored import WithoutForgotten
from tasks.retrieve.versions.publish import switch_to
from tasks.retrieve.versions.retention import drop_blobs, drop_unused_vectors

_NOT_OURS = ("models/", "lance/", "vectors/", "states/", f"{FOLDER}/")
_ORDINAL = re.compile(r"#\d+$")
# Archives hold other files of a repository too, the sample is unpacked again, looks are no longer made.
_CACHES = ("state/crawl/archives", "state/sample", "state/looks", PAGES)


def purge(root: Root, forgotten: Forgotten, *, run_id: str) -> Counter[str]:
    """Remove what tombstones cover from files and tables; return the rows removed, by folder.

    If any row is covered, the tables are rewritten and every older version is removed, and rollback with it.
    Otherwise files and tables are only read. A purge that was killed is finished by calling again. The new
    version of the tables is `v-<run_id>`. Raises `StorageError` if a file or table cannot be read; all others
    have been cleaned.
    """
    root.delete_unfinished()
    # Reports quote sentences of skills; the next evaluation writes them again.
    for place in (*_CACHES, *root.files("reports", ".html")):
        root.delete(place)
    removed, unreadable = _purge_files(root, forgotten)
    if removed or forgotten.rows["purged_at"].has_nulls() or _tables_hold(root, forgotten):
        removed += _purge_tables(root, forgotten, f"v-{run_id}", run_id)
        removed += +Counter({"vectors": drop_unused_vectors(root)})
        try:
            removed += +Counter({"blobs": drop_blobs(root)})
        except StorageError as error:
            unreadable.append(str(error))
    if unreadable:
        msg = f"nothing could be taken out of {'; '.join(unreadable)}: delete that, then forget again"
        raise StorageError(msg)
    return removed


def covered_rows(forgotten: Forgotten, frame: pl.DataFrame) -> pl.Series:
    """Return for each row of any table whether one of its columns in `KEYS` names what has been forgotten.

    A row of a list names its document by `source_id` and `url` together.
    """
    mask = pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True)
    tests = _tests(forgotten)
    for name in (c for c in frame.columns if c in tests and frame.schema[c] == pl.String):
        column = frame[name]
        hits = [value for value in column.drop_nulls().unique() if tests[name](value)]
        mask |= column.is_in(hits).fill_null(value=False)
    if {"source_id", "url"} <= set(frame.columns):
        rows = frame.select("source_id", "url").iter_rows()
        listed = [any(forgotten.covers(d) for d in listed_ids(s or "", u)) for s, u in rows]
        mask |= pl.Series(listed, dtype=pl.Boolean)
    return mask


def _tests(forgotten: Forgotten) -> dict[str, Callable[[str], bool]]:
    """Return by column what tells whether a value of it is of something forgotten."""

    def node(value: str) -> bool:
        return forgotten.covers(_ORDINAL.sub("", value))

    return {
        **dict.fromkeys(("doc_id", "survivor", "source_id"), forgotten.covers),
        **dict.fromkeys(("node_id", "src_id", "dst_id"), node),
        **dict.fromkeys(("repo", "repository"), forgotten.covers_repository),
        "raw_hash": lambda value: forgotten.covers("", value),
        "body_hash": lambda value: forgotten.covers("", None, value),
    }


KEYS = (*_tests(Forgotten.none()), "url")  # the columns that name a document, in any table


def parquet_files(root: Root) -> list[str]:
    """Return every Parquet file below the root that may hold rows of documents, backfills included."""
    return [file for file in root.files("", ".parquet") if not file.startswith(_NOT_OURS)]


def _purge_files(root: Root, forgotten: Forgotten) -> tuple[Counter[str], list[str]]:
    removed: Counter[str] = Counter()
    unreadable = []
    for file in parquet_files(root):
        try:
            count = _purge_file(root, file, forgotten)
        except StorageError as error:
            unreadable.append(str(error))
            continue
        parts = file.split("/")
        folder = "/".join(parts[:2]) if parts[0] in ("raw", "state") else parts[0]
        removed += Counter({folder: count})
    try:
        removed += Counter({"state/answers": forget_answers(root, forgotten.covers)})
    except StorageError as error:
        unreadable.append(str(error))
    return removed, unreadable


def _purge_file(root: Root, file: str, forgotten: Forgotten) -> int:
    # A flipped bit in the name of a column must not keep its rows.
    frame = read_columns(root, file, (*KEYS, "reason", "detail"), SCHEMAS.get(table_of(file)))
    if {"reason", "detail", "doc_id"} <= set(frame.columns):
        # A dropped row stays, with its reason; its detail may quote the text.
        quotes = covered_rows(forgotten, frame.select("doc_id")) & frame["detail"].ne_missing(REASON)
        if quotes.any():
            rewrite_rows(root, file, lambda table: _without_detail(table, quotes))
        return int(quotes.sum())
    gone = covered_rows(forgotten, frame)
    if gone.any():
        kept = pa.array((~gone).to_list(), pa.bool_())
        renew_entry(root, file, *rewrite_rows(root, file, lambda table: table.filter(kept)))
    return int(gone.sum())


def _without_detail(table: pa.Table, quotes: pl.Series) -> pa.Table:
    place = table.schema.get_field_index("detail")
    field = table.schema.field(place)
    details = pc.if_else(pa.array(quotes.to_list()), pa.scalar(REASON, field.type), table.column(place))
    return table.set_column(place, field, details)


def _bases(root: Root, served: Served | None) -> dict[str, int | None]:
    """Return the tables that exist, each with the version that the next build continues from."""
    bases = {
        SKILLS: served.skills if served else None,
        NODES: nodes_base(root, served),
        INDUCED: served.induced if served else None,
    }
    present = table_names(root)
    return {name: base for name, base in bases.items() if name in present}


def _tables_hold(root: Root, forgotten: Forgotten) -> bool:
    if not root.exists("lance"):
        return False
    bases = _bases(root, read_served(root))
    held = (_doc_ids(TableAt(root, name, base)) for name, base in bases.items() if base is not None)
    return any(covered_rows(forgotten, frame).any() for frame in held)


def _doc_ids(table: TableAt) -> pl.DataFrame:
    """Return what names the documents of a table's rows; of `induced`, which has none, no row."""
    if table.name == INDUCED:
        return pl.DataFrame(schema={"doc_id": pl.String})
    return table.frame(["doc_id", "body_hash", "repo"] if table.name == SKILLS else ["doc_id"])


def _purge_tables(root: Root, forgotten: Forgotten, label: str, run_id: str) -> Counter[str]:
    """Serve the tables without what is forgotten, as a new version, and remove all other versions.

    A table that was never served is dropped. The time of publication stays: no row is fresher than it was.
    """
    if not root.exists("lance"):
        return Counter()
    served = read_served(root)
    versions: dict[str, int] = {}
    removed: Counter[str] = Counter()
    gone: set[str] = set()
    # Skills come first: one may be covered by its text alone, and its nodes are found by its id.
    for name, base in _bases(root, served).items():
        if base is None:
            drop_table(root, name)
            continue
        table = TableAt(root, name, base)
        if name == INDUCED:
            rest = WithoutForgotten(table.rows(["kind", "record"]), forgotten)
            versions[name] = rewrite(root, name, base, rest.of)
            removed[f"lance/{name}"] = rest.gone
        else:
            held = _doc_ids(table)
            gone |= set(held.filter(covered_rows(forgotten, held))["doc_id"])
            removed[f"lance/{name}"] = int(held["doc_id"].is_in(list(gone)).sum())
            versions[name] = rewrite(root, name, base, partial(_without, gone))
        tag(root, name, label, versions[name])
    if served is not None:
        base = versions.get(NODES)
        nodes = None if served.nodes is None else base
        switch_to(root, replace(
            served, version=label, run_id=run_id, skills=versions[SKILLS], nodes=nodes, nodes_base=base,
            induced=versions.get(INDUCED),
        ))  # fmt: skip
    keep_published(root, label)
    keep_routing(root)
    for name, version in versions.items():
        keep_only(root, name, version)
    return +removed


def _without(gone: set[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    stays = [doc_id not in gone for doc_id in batch.column("doc_id").to_pylist()]
    return batch.filter(pa.array(stays, pa.bool_()))
