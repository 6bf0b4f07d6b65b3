"""The lookup of the document that a person means by an id, the end of one, or a name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

import polars as pl

from storage.root import Root
from storage.state import aliases_table, seen_table
from tasks.crawl.source.identity import doc_key

_SHOWN = 5
_COMPARED, _LONGEST = 100, 300  # names that are compared letter by letter, and characters of what is wanted
_ALIAS_STEPS = 8  # a chain of folds and renames longer than this is a circle


def followed(root: Root, doc_id: str) -> Iterator[str]:
    """Yield an id, in any letter case, and then each id that the one before is an alias of."""
    for _ in range(_ALIAS_STEPS):
        yield doc_id
        aliases = aliases_table(root).of(doc_id).select("doc_id", "survivor").iter_rows()
        survivor = next((s for d, s in aliases if doc_key(d) == doc_key(doc_id)), None)
        if survivor is None:
            return
        doc_id = survivor


def was_brought(root: Root, doc_id: str) -> bool:
    """Tell whether a source has brought a document of this id, there or gone: then it means no other one."""
    return any(doc_key(held) == doc_key(doc_id) for held in seen_table(root).of(doc_id)["doc_id"])


def meant(wanted: str, names: Mapping[str, str | None]) -> list[str]:
    """Return the ids that a text means: the id itself or, if nothing has it, all that it may stand for.

    It may stand for ids of which it is the end, after a slash, and for ids of documents with this name, in
    any letter case. `names` has every id with its document's name, None where that is not known.
    """
    key = doc_key(wanted.strip().strip("/"))
    if not key:
        return []
    keys = {doc_id: doc_key(doc_id) for doc_id in names}
    if same := [doc_id for doc_id, other in keys.items() if other == key]:
        return [min(same)]
    ends = {doc_id for doc_id, other in keys.items() if other.endswith(f"/{key}")}
    named = {doc_id for doc_id, name in names.items() if name is not None and doc_key(name) == key}
    return sorted(ends | named)


def suggestion(wanted: str, found: list[str], ids: Iterable[str]) -> str:
    """Return what a message says after an id that is no document's: what it may mean, or the nearest."""
    if found:
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        return f"; it may mean {', '.join(found[:_SHOWN])}{more}: give the whole id"
    near = _nearest(doc_key(wanted.strip().strip("/")), {doc_key(doc_id): doc_id for doc_id in ids})
    return f"; near it are {', '.join(near)}" if near else ""


def _nearest(key: str, ids: Mapping[str, str]) -> list[str]:
    last = {other.rpartition("/")[2]: other for other in ids}
    close = [*nearest(key, ids), *map(last.__getitem__, nearest(key.rpartition("/")[2], last))]
    return [ids[other] for other in dict.fromkeys(close)][:3]


def nearest(wanted: str, names: Collection[str], n: int = 3) -> list[str]:
    """Return at most `n` of any number of names: those most like a wanted one, best first.

    Comparing letter by letter takes a tenth of a millisecond a name: of many, those that share most pairs of
    letters with the wanted one are compared.
    """
    wanted = wanted[:_LONGEST].encode(errors="replace").decode()
    pairs = {wanted[at : at + 2] for at in range(len(wanted) - 1)}
    if len(names) > _COMPARED and pairs:
        shared = pl.sum_horizontal(pl.col("name").str.contains(pair, literal=True) for pair in sorted(pairs))
        score = shared / (pl.col("name").str.len_chars() + len(pairs))
        names = pl.DataFrame({"name": list(names)}).top_k(_COMPARED, by=score)["name"].to_list()
    return difflib.get_close_matches(wanted, names, n)
