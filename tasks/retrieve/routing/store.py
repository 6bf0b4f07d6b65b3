"""The store of the routing index: a folder a version, made from the one before and the changes."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import StorageError
from storage.lance.served import Served, is_anew, published_versions, read_served
from storage.lance.tables import TableAt
from storage.root import Root
from storage.seal import Seal, first_broken, seals_of, sha256_of
from tasks.models.adapted_encoder import WIDTH, is_base
from tasks.models.preloaded import loaded_once
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import Bm25fSettings, Lexical, lexical_of, lexical_with
from tasks.retrieve.routing.coarse import Coarse, coarse_arrays, coarse_kept
from tasks.retrieve.routing.expansion import expansion_vectors, expansions_digest
from tasks.retrieve.routing.learned_leg import packaged_digest, packaged_retriever
from tasks.retrieve.routing.postings import TERMS_VERSION, Postings, Sketches, joined, kept, postings_of
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import SkillTokens, joined_tokens, kept_tokens, skill_tokens_of

if TYPE_CHECKING:  # its import takes longer than a query
    import pyarrow as pa

log = logging.getLogger(__name__)
FOLDER = "routing"
ROUTING_VERSION = 4  # raised only when the same skills give other files
# Before 2, ids and hashes stood in the card too; before 3, there were no tokens, before 4 no learned vectors.
_READABLE = (1, 2, 3, ROUTING_VERSION)
_WITH_TOKENS = 3
_INDEX = "index.json"  # written last: a folder without it is unfinished
_DIGESTS, _WEIGHTS, _FORETOLD = "digests", "learned", "foretold"
_POSTINGS = ("terms", "starts", "rows", "counts", "lengths", "sketches")
_BY_ROW = ("vectors", "learned")
_TOKENS = ("ids", "starts", "bodies")
_KEPT = 3  # published versions whose folder stays; of older ones it is made anew when they are served again
_ROWS_PER_READ = 500
_WORTH_A_PROCESS = 1000  # skills: from four times as many on, processes are sooner done with their start
_COLUMNS = ["doc_id", "content_hash", "name", "description", "text", "body_start", "vector"]
# What an answer says of a skill, and what skills are filtered by: as Arrow's file, which Polars reads.
_ROWS = "rows.arrow"
_ROW_COLUMNS = [
    "doc_id", "kind", "name", "description", "source", "url", "commit", "content_hash", "licence", "risks",
    "stale", "category", "n_tokens",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoutingIndex:
    """The index that routing scores with, by row: ids, content hashes, postings, sketches and vectors.

    `tokens` are what the reranker reads, `learned` the vectors of the learned leg, shape `(rows, 384)`, and
    `foretold` those of requests that were foretold of skills; None of an index without them, as one from
    before they were kept, the last two of another encoder than the default one. `rows` holds what answers say
    of the skills, and what they are filtered by, in the same order. Of many skills `coarse` has the principal
    axes of `vectors` and `learned`, by name.
    """

    doc_ids: list[str]
    hashes: list[str]
    lexical: Lexical
    sketches: Sketches
    vectors: Vectors
    rows: pl.DataFrame
    tokens: SkillTokens | None = None
    learned: Vectors | None = None
    foretold: Vectors | None = None
    coarse: dict[str, Coarse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Parts:
    doc_ids: list[str]
    hashes: list[str]
    postings: Postings
    vectors: Vectors
    tokens: SkillTokens
    learned: Vectors  # without columns where nothing was learned for the encoder


def prepare_routing(root: Root, served: Served, workers: int | None = 1) -> None:
    """Make the routing index of a version before it is served, unless it is there in today's form.

    What was foretold since is for the next version. Rows of skills whose content did not change are copied
    from the served version's index. Of others `workers` processes read thousands; None: one a core. Raises
    `StorageError` if the table cannot be read, or a file cannot be written.
    """
    if (card := _card(root, _folder(served), served)) is None or not _is_current(card):
        parts, rows = _brought_up(root, served, workers)
        _write(root, served, parts, lexical_of(parts.postings), rows)


def is_kept(root: Root, served: Served) -> bool:
    """Return whether the routing index of a version is there in today's form."""
    card = _card(root, _folder(served), served)
    return card is not None and _is_current(card) and card.get(_FORETOLD) == expansions_digest(root)


def holds_expansions(root: Root, served: Served) -> bool:
    """Return whether a version's routing index, if there is one, has the root's expansions as they are."""
    card = _card(root, _folder(served), served)
    return card is None or card.get(_FORETOLD) == expansions_digest(root)


def open_routing(root: Root, served: Served) -> RoutingIndex:
    """Return the routing index of a published version; if it is missing it is computed, but not kept.

    Raises `StorageError` if the table cannot be read, or holds other skills than the index.
    """
    try:
        if (found := _opened(root, served)) is not None:
            return found
        log.warning("%s has no routing index: it is made for this process; a run keeps one", served.version)
    except StorageError as error:
        log.warning("the routing index is made for this process: %s", error)
    parts, rows = _brought_up(root, served)
    return RoutingIndex(
        parts.doc_ids, parts.hashes, lexical_of(parts.postings), parts.postings.sketches, parts.vectors, rows,
        parts.tokens, parts.learned if parts.learned.size else None, expansion_vectors(root, rows),
    )  # fmt: skip


def _opened(root: Root, served: Served) -> RoutingIndex | None:
    folder = _folder(served)
    if (card := _card(root, folder, served)) is None:
        return None
    place = root.fetch(folder)
    postings = Postings(**{name: _array(place, name) for name in _POSTINGS})
    impacts, vectors, rows = _array(place, "impacts"), _array(place, "vectors"), _rows(root, served, card)
    ids = rows["doc_id"].to_list()
    tokens = _tokens(place) if card["version"] >= _WITH_TOKENS else None
    learned = _array(place, "learned") if _is_current(card) else np.zeros((len(ids), 0), np.float32)
    foretold = _array(place, _FORETOLD) if card.get(_FORETOLD) and learned.size else None
    coarse = coarse_kept(vectors, learned, lambda name: _array(place, name), card.get(_DIGESTS, {}))
    by_row = (postings.lengths, vectors, learned, foretold, None if tokens is None else tokens.bodies)
    by_posting = {len(impacts), len(postings.rows), len(postings.counts), int(postings.starts[-1])}
    whole = all(len(held) == len(ids) for held in by_row if held is not None) and len(by_posting) == 1
    whole = whole and all(held.whole() for held in coarse.values()) and (tokens is None or tokens.whole())
    if not whole or (np.diff(postings.starts) < 0).any():
        raise StorageError(f"{root.at(folder)} is damaged (its files are not of one version): delete it")
    return RoutingIndex(
        ids, rows["content_hash"].to_list(), lexical_with(postings, impacts, Bm25fSettings()),
        postings.sketches, vectors, rows, tokens, learned if learned.size else None, foretold, coarse,
    )  # fmt: skip


def _tokens(place: Path) -> SkillTokens:
    return SkillTokens(*(_array(place, f"token_{name}") for name in _TOKENS))


def routing_rows(root: Root, served: Served) -> pl.DataFrame:
    """Return what answers say of the skills of a version, out of its routing index, else of its table.

    Raises `StorageError` if neither can be read.
    """
    try:
        if (card := _card(root, _folder(served), served)) is not None:
            return _rows(root, served, card)
    except StorageError as error:
        log.warning("skills are looked up in their table: %s", error)
    return _held(root, served)


def keep_routing(root: Root) -> None:
    """Delete all routing indices except those of the served version and of the last published ones."""
    served = read_served(root)
    last = published_versions(root)[:_KEPT]
    stay = {_folder(version) for version in [*last, *([served] if served else [])]}
    for folder in {f"{FOLDER}/{file.split('/')[1]}" for file in root.files(FOLDER)} - stay:
        root.delete(folder)


def damaged_routing(root: Root, served: Served) -> str | None:
    """Return what is wrong with a version's routing index; None if it is as it was made, or missing."""
    folder = _folder(served)
    try:
        if (card := _card(root, folder, served)) is not None:
            _require_whole(root, folder, card)
            _opened(root, served)
    except StorageError as error:
        return str(error)
    return None


def drop_routing(root: Root, served: Served) -> str:
    """Delete a version's routing index, and return its folder."""
    root.delete(_folder(served))
    return _folder(served)


def _folder(served: Served) -> str:
    return f"{FOLDER}/{served.version}.{served.skills}"


def _basis(served: Served) -> dict[str, Any]:
    """Return what the files depend on besides the skills, in the form that JSON gives back."""
    model = {key: served.model[key] for key in ("name", "revision", "dimension", "template")}
    settings = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(Bm25fSettings()).items()}
    return {"version": ROUTING_VERSION, "terms": TERMS_VERSION, "settings": settings, "model": model}


def _card(root: Root, folder: str, served: Served) -> dict[str, Any] | None:
    """Return the card of a folder; None if it is missing, unfinished, or of another basis."""
    card, basis = root.read_json(f"{folder}/{_INDEX}"), _basis(served)
    if not card or card.get("version") not in _READABLE:
        return None
    return card if all(card.get(key) == basis[key] for key in basis if key != "version") else None


def _is_current(card: dict[str, Any]) -> bool:
    """Return whether the vectors of the learned leg are by the weights of this release."""
    return bool(card["version"] == ROUTING_VERSION and card.get(_WEIGHTS) == packaged_digest())


def _array(folder: Path, name: str) -> npt.NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StorageError:
    return StorageError(f"{path} cannot be read ({error}): delete {path.parent}, then `skillery run`")


def _rows(root: Root, served: Served, card: dict[str, Any]) -> pl.DataFrame:
    if (digest := card.get(_DIGESTS, {}).get(_ROWS)) is None:  # a folder from before answers were read of it
        return _in_order(_held(root, served), card["doc_ids"])
    path = root.fetch(f"{_folder(served)}/{_ROWS}")
    try:
        return _read_sealed(path, digest, path.stat().st_mtime_ns)
    except OSError as error:
        raise _unreadable(path, error) from error


@loaded_once(1)
def _read_sealed(path: Path, digest: str, _changed: int) -> pl.DataFrame:
    data = path.read_bytes()
    if not Seal(path.name, digest).fits(data):  # an offset may point anywhere in memory
        raise OSError("it is not as it was written")
    return pl.read_ipc(data)


def _held(root: Root, served: Served) -> pl.DataFrame:
    return served.skills_table(root).frame(_ROW_COLUMNS)


def _in_order(held: pl.DataFrame, doc_ids: Sequence[str]) -> pl.DataFrame:
    """Return the rows of these ids in their order; raise `StorageError` if there are others, or too few."""
    order = pl.DataFrame({"doc_id": doc_ids}, schema={"doc_id": pl.String})
    rows = order.join(held, on="doc_id", how="left", maintain_order="left").select(_ROW_COLUMNS)
    if held.height != rows.height or rows["name"].has_nulls():
        raise StorageError("the routing index is of other skills than the table: `skillery run` mends it")
    return rows


def _write(root: Root, served: Served, parts: _Parts, lexical: Lexical, rows: pl.DataFrame) -> None:
    folder = _folder(served)
    root.delete(f"{folder}/{_INDEX}")  # nobody takes new files beside old ones for an index
    arrays = {name: getattr(parts.postings, name) for name in _POSTINGS}
    arrays |= {"impacts": lexical.impacts, "vectors": parts.vectors, "learned": parts.learned}
    arrays |= {f"token_{name}": getattr(parts.tokens, name) for name in _TOKENS}
    arrays |= coarse_arrays(parts.vectors, parts.learned)
    digests: dict[str, str] = {}
    if (foretold := expansion_vectors(root, rows)) is not None:
        arrays[_FORETOLD] = foretold

    def write(name: str, data: io.BytesIO) -> None:
        root.write(f"{folder}/{name}", data.getvalue())
        digests[name] = sha256_of(data.getbuffer())

    for name, array in arrays.items():
        np.save(data := io.BytesIO(), array, allow_pickle=False)
        write(f"{name}.npy", data)
    rows.write_ipc(data := io.BytesIO(), compression="uncompressed")  # sooner read
    write(_ROWS, data)
    card = _basis(served) | {_WEIGHTS: packaged_digest(), _DIGESTS: digests}
    card |= {} if foretold is None else {_FORETOLD: expansions_digest(root)}
    root.write_json(f"{folder}/{_INDEX}", card)


def _require_whole(root: Root, folder: str, card: dict[str, Any]) -> None:
    """Raise `StorageError` if a file of a folder is not as it was written; old ones have no digests."""
    # Files were named without an ending before there were others than arrays.
    named = {n if "." in n else f"{n}.npy": digest for n, digest in card.get(_DIGESTS, {}).items()}
    if file := first_broken(root, seals_of(named, folder)):
        raise StorageError(f"{root.at(file)} is damaged: it is not as it was written")


def _brought_up(root: Root, served: Served, workers: int | None = 1) -> tuple[_Parts, pl.DataFrame]:
    """Return the parts for a version, unchanged ones of the version before first, and its rows in order."""
    from tasks.refine.workers import batch_processes, run_each  # noqa: PLC0415 (queries need no processes)

    held = _held(root, served)
    wanted = dict(held.select("doc_id", "content_hash").iter_rows())
    dimension = int(served.model["dimension"])
    parts = [_still_wanted(_before(root, served), wanted) or _of_skills([], [], np.zeros((0, dimension)))]
    new = sorted(wanted.keys() - (known := set(parts[0].doc_ids)))
    with batch_processes(len(new) // _WORTH_A_PROCESS, workers) as executor:
        batches = _batches(served.skills_table(root), new, whole=not known)
        parts.extend(run_each(executor, _of_batch, batches))
    log.info("routing index: %d skills, %d of them read", len(wanted), len(new))
    found = _by_id(parts, _learned(served, parts))
    return found, _in_order(held, found.doc_ids)


def _by_id(parts: Sequence[_Parts], learned: Vectors) -> _Parts:
    """Return the rows of all parts by ascending id: the same bytes, whichever rows were copied."""
    ids, hashes = [d for p in parts for d in p.doc_ids], [h for p in parts for h in p.hashes]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    return _Parts(
        [ids[row] for row in order], [hashes[row] for row in order],
        joined([p.postings for p in parts], np.argsort(order)),
        np.concatenate([p.vectors for p in parts])[order],
        kept_tokens(joined_tokens([p.tokens for p in parts]), order), learned[order],
    )  # fmt: skip


def _before(root: Root, served: Served) -> _Parts | None:
    """Return the parts of the served version; None if none fit, or if everything is rebuilt."""
    if (last := read_served(root)) is None or is_anew(root):
        return None
    folder = _folder(last)
    try:
        if (card := _card(root, folder, served)) is None or not _is_current(card):
            return None
        _require_whole(root, folder, card)
        place = root.fetch(folder)
        arrays, tokens = {name: _array(place, name) for name in (*_POSTINGS, *_BY_ROW)}, _tokens(place)
        rows = _rows(root, last, card)
    except StorageError as error:
        log.warning("the routing index is made anew: %s", error)
        return None
    vectors, learned = (arrays.pop(name) for name in _BY_ROW)
    ids, hashes = rows["doc_id"].to_list(), rows["content_hash"].to_list()
    return _Parts(ids, hashes, Postings(**arrays), vectors, tokens, learned)


def _still_wanted(parts: _Parts | None, wanted: dict[str, str]) -> _Parts | None:
    if parts is None:
        return None
    pairs = zip(parts.doc_ids, parts.hashes, strict=True)
    keep = np.array([wanted.get(doc_id) == content for doc_id, content in pairs], dtype=np.bool_)
    rows = np.flatnonzero(keep)
    return _Parts(
        [parts.doc_ids[r] for r in rows], [parts.hashes[r] for r in rows], kept(parts.postings, keep),
        np.asarray(parts.vectors)[keep], kept_tokens(parts.tokens, rows), np.asarray(parts.learned)[keep],
    )  # fmt: skip


def _batches(table: TableAt, doc_ids: Sequence[str], *, whole: bool) -> Iterator[pa.Table]:
    import pyarrow as pa  # noqa: PLC0415 (queries read no table)

    if whole:
        for batch in table.batches(_COLUMNS):
            yield pa.Table.from_batches([batch])
        return
    for start in range(0, len(doc_ids), _ROWS_PER_READ):
        yield table.rows(_COLUMNS, doc_id=doc_ids[start : start + _ROWS_PER_READ])


def _of_batch(batch: pa.Table) -> _Parts:
    ids, hashes, names, descriptions, texts, starts, vectors = (batch.column(c).to_pylist() for c in _COLUMNS)
    bodies = (text[start:] for text, start in zip(texts, starts, strict=True))
    return _of_skills([*map(Skill, ids, names, descriptions, bodies)], hashes, np.array(vectors))


def _of_skills(skills: Sequence[Skill], hashes: list[str], vectors: npt.NDArray[Any]) -> _Parts:
    ids, nothing = [skill.doc_id for skill in skills], np.zeros((0, 0), np.float32)
    tokens = skill_tokens_of(skills)
    return _Parts(ids, hashes, postings_of(skills), vectors.astype(np.float32), tokens, nothing)


def _learned(served: Served, parts: Sequence[_Parts]) -> Vectors:
    """Return the vectors of the learned leg of all parts; of the first they are known."""
    tokens = [part.tokens for part in parts]
    if not is_base(served.model):
        return np.zeros((sum(len(part.bodies) for part in tokens), 0), np.float32)
    known, new = parts[0].learned.reshape(-1, WIDTH), joined_tokens(tokens[1:])
    return np.concatenate([known, packaged_retriever(None).skills(new)]) if len(new.bodies) else known
