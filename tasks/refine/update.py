"""Updates the corpus after a run: folds duplicates, retires documents, records drops."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime

import polars as pl

from storage.errors import StorageError
from storage.folder import threads_of_process
from storage.parquet import read_frame, write_frame
from storage.partitions import PartitionedTable, partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS, DROPPED, Finding
from storage.state import (
    ALIASES,
    REFINED,
    aliases_table,
    append_dropped,
    documents_table,
    folded_table,
    refined_table,
)
from tasks.crawl.source.identity import owner_part
from tasks.refine import STAGE_VERSION
from tasks.refine.duplicates.exact import fold, owner_of, ranked, texts_of
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.duplicates.shingles import SHINGLE_RULE
from tasks.refine.near_corpus import forget_texts, near_texts, nearest, read_staged
from tasks.refine.plan import AGAIN, STAGED, STAGED_AGAIN, STAGED_DROPPED, STAGING, read_plan
from tasks.refine.risks.look_alikes import look_alikes

SORTED = "state/staged/sorted"
_SETTLED = "state/settled.json"  # what the last update came to
_MAX_BYTES = 200_000_000
_AT_ONCE = 4  # partitions


class StagedDocuments:
    """Staged documents by partition; those that do not fit into memory lie in files sorted by partition."""

    def __init__(self, root: Root) -> None:
        self._root, self._written = root, defaultdict[int, list[str]](list)
        root.delete(SORTED)
        self._held = pl.DataFrame(schema=DOCUMENTS)
        waiting, size = [self._held], 0
        for number, file in enumerate(root.files(STAGED, ".parquet")):
            waiting.append(read_frame(root, file, DOCUMENTS))
            size += int(waiting[-1].estimated_size())
            if size > _MAX_BYTES:
                self._write(pl.concat(waiting), number)
                waiting, size = [self._held], 0
        self._held = pl.concat(waiting)
        self._partition = self._partitions(self._held)

    def of(self, partition: int) -> pl.DataFrame:
        """Return the documents of a partition."""
        files = self._written.get(partition, [])
        held = self._held.filter(self._partition == partition)
        return pl.concat([*(read_frame(self._root, file, DOCUMENTS) for file in files), held])

    def _partitions(self, frame: pl.DataFrame) -> pl.Series:
        return frame["doc_id"].map_elements(partition_of, return_dtype=pl.Int64)

    def _write(self, frame: pl.DataFrame, number: int) -> None:
        partitions = self._partitions(frame)
        for partition in partitions.unique().sort():
            file = f"{SORTED}/part-{partition:02d}/{number:06d}.parquet"
            write_frame(self._root, file, frame.filter(partitions == partition), DOCUMENTS)
            self._written[partition].append(file)


def place(
    root: Root, *, replaced: Collection[str], moved: Collection[str], copies: Collection[str],
    alike: Mapping[str, Finding],
) -> None:  # fmt: skip
    """Update the tables of the corpus and of the copies beside it, from the staged documents.

    The ids `replaced` leave the tables, or their staged document is put there; those `moved` change tables
    with their document unchanged; `copies` are copies now. `alike` are risks of staged documents, by id.
    """
    documents, folded, staged = documents_table(root), folded_table(root), StagedDocuments(root)
    replacing, moving = _by_partition(replaced), _by_partition(moved)

    def place_in(partition: int) -> None:
        rows, moves = _with_risks(staged.of(partition), alike), moving.get(partition, set())
        if moves:
            held = pl.concat([documents.read([partition]), folded.read([partition])]).unique("doc_id")
            rows = pl.concat([rows, held.filter(pl.col("doc_id").is_in(list(moves)))])
        ids = replacing.get(partition, set()) | moves
        beside = ids.intersection(copies)
        # A document enters one table before it leaves the other, in case this run is killed in between.
        folded.replace(beside, rows.filter(pl.col("doc_id").is_in(list(beside))))
        documents.replace(ids, rows.filter(~pl.col("doc_id").is_in(list(beside))))
        folded.replace(ids - beside, rows.clear())

    with ThreadPoolExecutor(min(_AT_ONCE, threads_of_process())) as pool:
        list(pool.map(place_in, sorted(replacing.keys() | moving.keys())))


def _with_risks(rows: pl.DataFrame, more: Mapping[str, Finding]) -> pl.DataFrame:
    if more.keys().isdisjoint(rows["doc_id"]):
        return rows
    risks = [
        [*(held or ()), *([asdict(more[doc_id])] if doc_id in more else ())]
        for doc_id, held in rows.select("doc_id", "risks").iter_rows()
    ]
    return rows.with_columns(risks=pl.Series(risks, dtype=DOCUMENTS["risks"]))


def _by_partition(doc_ids: Collection[str]) -> Mapping[int, set[str]]:
    found = defaultdict[int, set[str]](set)
    for doc_id in doc_ids:
        found[partition_of(doc_id)].add(doc_id)
    return found


_ROW = ("doc_id", "survivor", "kind")


def desired_aliases(
    known: pl.DataFrame, verdict: pl.DataFrame, gone: pl.DataFrame, again: Collection[str]
) -> pl.DataFrame:
    """Return the aliases that should exist: columns doc_id (unique), survivor and kind.

    Of those known the ones of copies are made again; others stay while their id is free. `verdict` has the
    columns doc_id, owner, body_hash and survivor of each document and each copy, best first; `gone` those of
    documents that leave the corpus now; `again` are ids that a source holds now, kept or dropped.
    """
    copies = verdict.filter(pl.col("survivor") != pl.col("doc_id"))
    texts = texts_of(verdict).select("owner", "body_hash", survivor="doc_id")
    renamed = known.filter(pl.col("kind") == "renamed")["doc_id"].implode()
    left = gone.filter(~pl.col("doc_id").is_in(renamed)).select("doc_id", "owner", "body_hash")
    retired = left.join(texts, on=["owner", "body_hash"])
    taken = {*verdict["doc_id"], *retired["doc_id"], *again}
    carried = known.filter(pl.col("kind") != "folded", ~pl.col("doc_id").is_in(list(taken)))
    left = pl.concat([
        retired.select("doc_id", "survivor", kind=pl.lit("retired")), carried.select(_ROW),
    ])  # fmt: skip
    # Another publisher's text never stands for an id that is gone, although earlier versions let it.
    ours = [kind != "retired" or owner_part(ids[0]) == owner_part(ids[1]) for *ids, kind in left.iter_rows()]
    return pl.concat([copies.select("doc_id", "survivor", kind=pl.lit("folded")), left.filter(ours)])


def write_aliases(
    table: PartitionedTable, desired: pl.DataFrame, now: datetime, *, but: Collection[str] = ()
) -> None:
    """Make the table hold the desired aliases; equal ones keep their `since`, ids in `but` their row."""
    known = table.read()
    new = desired.join(known, on=_ROW, how="anti")
    over = known.join(desired, on=_ROW, how="anti")
    held_back = {*known["doc_id"]} & {*but}
    rows = new.filter(~pl.col("doc_id").is_in(list(held_back))).with_columns(since=pl.lit(now))
    table.replace({*new["doc_id"], *over["doc_id"]} - held_back, rows.cast(ALIASES))


_LIGHT = (
    "doc_id", "kind", "name", "source", "repo", "author", "body_hash", "content_hash", "stars",
    "first_seen_at", "licence",
)  # fmt: skip


def update_corpus(
    root: Root, *, run_id: str, now: datetime, near: NearLimits | None = None
) -> dict[str, int]:
    """Put staged documents in place, fold duplicates and retire documents that no source has any more.

    A copy stays beside the corpus and returns to it when its survivor goes. If this run is killed, the next
    one repeats it with the same result: verdicts are `pending` from the first step to the last; a document
    enters one table before it leaves the other; signatures of lost texts are deleted at the end.

    Returns:
        `documents`: the corpus' size; then for each reason how many documents are dropped for it now.
    """
    plan, limits = read_plan(root), near or NearLimits()
    if plan.is_empty() and (settled := _settled(root, limits)):
        return settled
    staged, dropped = _light(root, STAGED), read_staged(root, STAGED_DROPPED, DROPPED)
    again = set(plan.filter(pl.col("action") == "refine")["doc_id"])
    replaced = again | set(plan.filter(pl.col("action") == "remove")["doc_id"])
    served, beside = _light(root, documents_table(root).folder), _light(root, folded_table(root).folder)
    held = pl.concat([served, beside]).unique("doc_id", maintain_order=True)
    light = ranked(pl.concat([held.filter(~pl.col("doc_id").is_in(list(replaced))), staged]))
    texts = texts_of(light)
    verdict = light.join(fold(light, near_texts(root, texts, limits)), on="doc_id", maintain_order="left")
    folded = verdict.filter(pl.col("reason").is_not_null())
    was_folded, now_folded = set(beside["doc_id"]), set(folded["doc_id"])
    newly = folded.filter(~pl.col("doc_id").is_in(list(was_folded - replaced)))
    others = _verdicts_elsewhere(root, plan)
    refined_table(root).replace(set(plan["doc_id"]), pl.concat([others, _pending(plan)]))
    rows = pl.concat([dropped, _duplicates(newly), _departures(plan)], how="diagonal_relaxed")
    append_dropped(root, run_id, rows.with_columns(run_id=pl.lit(run_id)).select(DROPPED.names()))
    gone = held.join(_retired(plan), on="doc_id", how="semi")
    aliases, like = aliases_table(root), _with_nearest_text(root, gone, texts, limits)
    desired = desired_aliases(aliases.read(), verdict, like, again)
    # The alias of a returning id stays until its document is in place: this run may be killed before that.
    write_aliases(aliases, desired, now, but=again)
    both = set(served["doc_id"]) & was_folded
    moved = ((was_folded ^ now_folded) | both) - replaced
    alike = look_alikes(light, set(staged["doc_id"]))
    place(root, replaced=replaced, moved=moved, copies=now_folded, alike=alike)
    write_aliases(aliases, desired, now)
    waiting = read_staged(root, STAGED_AGAIN, AGAIN)
    verdicts = pl.concat([others, _verdicts(plan, staged, dropped, waiting)])
    refined_table(root).replace(set(plan["doc_id"]), verdicts)
    forget_texts(root, texts["body_hash"])
    for folder in (*STAGING, SORTED):
        root.delete(folder)
    counts = _counts(root, verdict)
    root.write_json(_SETTLED, {"by": _settled_by(root, limits, read=False), "counts": counts})
    return counts


def _settled(root: Root, limits: NearLimits) -> dict[str, int] | None:
    """Return what the last update came to, if one that has nothing to put in place would come to the same."""
    try:
        note = root.read_json(_SETTLED) or {}
    except (StorageError, UnicodeDecodeError):  # a note that saves work: without it the work is done
        return None
    counts, by = note.get("counts"), _settled_by(root, limits, read=True)
    if by is None or note.get("by") != by or not isinstance(counts, dict):
        return None
    return counts if all(type(count) is int for count in counts.values()) else None


def _settled_by(root: Root, limits: NearLimits, *, read: bool) -> str | None:
    """Return a digest of all that an update depends on which has nothing to put in place; None if unknown.

    With `read` rows are counted in the files: seals do not tell of one that was damaged or replaced since.
    """
    tables = (documents_table(root), folded_table(root), refined_table(root), aliases_table(root))
    sealed = [(table, table.manifest) for table in tables if table.manifest]
    digests = [manifest.digest() for _, manifest in sealed]
    if None in digests:
        return None
    rows = [t.read(columns=["doc_id"]).height if read else manifest.rows() for t, manifest in sealed]
    told = repr((STAGE_VERSION, limits, SHINGLE_RULE, list(zip(digests, rows, strict=True))))
    return hashlib.sha256(told.encode()).hexdigest()


def _counts(root: Root, verdict: pl.DataFrame) -> dict[str, int]:
    outcomes = refined_table(root).read(columns=["outcome"])
    reasons = outcomes.filter(pl.col("outcome") != "kept").group_by("outcome").len().sort("outcome")
    folds = verdict.drop_nulls("reason").group_by("reason").len().sort("reason")
    kept = verdict["reason"].null_count()
    return {"documents": kept, **dict(reasons.iter_rows()), **dict(folds.iter_rows())}


_FILE = pl.concat_str(pl.element().struct.field("sha256"), pl.element().struct.field("path"), separator=" ")
_BUNDLE = (
    pl.col("files").list.eval(_FILE).list.sort().list.join("\n").fill_null("")
    .map_elements(lambda files: hashlib.sha256(files.encode()).hexdigest(), return_dtype=pl.String)
)  # fmt: skip


def _light(root: Root, folder: str) -> pl.DataFrame:
    """Return the columns that folding reads, each document's `file`, and the digest of its `bundle`.

    A server's body is only its description: it has no body_hash. A bundle that is not known counts as an
    empty one: of both, SKILL.md is all there is to read.
    """
    empty = pl.DataFrame(schema={**{name: DOCUMENTS[name] for name in (*_LIGHT, "files")}, "file": pl.String})
    frames = [
        read_frame(root, file, DOCUMENTS, empty.columns[:-1]).with_columns(file=pl.lit(file))
        for file in root.files(folder, ".parquet")
    ]
    held = pl.concat([empty, *(frame.select(empty.columns) for frame in frames)])
    text = pl.when(pl.col("kind") == "skill").then("body_hash")
    return held.with_columns(body_hash=text, owner=owner_of(), bundle=_BUNDLE).drop("files")


def _with_nearest_text(root: Root, gone: pl.DataFrame, texts: pl.DataFrame, near: NearLimits) -> pl.DataFrame:
    """Return documents that are gone; one whose text is gone too gets that of its owner's most similar."""
    whose = ["owner", "body_hash"]
    lost = gone.drop_nulls("body_hash").join(texts, on=whose, how="anti")
    if lost.is_empty():
        return gone
    joined = gone.join(nearest(root, lost, texts, near.threshold), on=whose, how="left")
    return joined.with_columns(body_hash=pl.coalesce("other", "body_hash"))


def _retired(plan: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of documents that no source has any more under an id of any letter case."""
    lost = plan.filter(pl.col("action") == "lose")
    return plan.filter(pl.col("action") == "remove").join(lost, on=["doc_id", "source"], how="anti")


def _duplicates(newly: pl.DataFrame) -> pl.DataFrame:
    exact = pl.when(pl.col("reason") == "duplicate")
    similar = pl.format("word 5-shingle Jaccard {} to its survivor", pl.col("similarity").round(3))
    return newly.select(
        "doc_id", "source", "content_hash", "reason", "similarity", lost_to="survivor",
        rule=exact.then(pl.lit("refine.exact")).otherwise(pl.lit("refine.near")),
        detail=exact.then(pl.lit("same body")).otherwise(similar),
    )  # fmt: skip


def _departures(plan: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each document that no source has any more, or that lost to another source's copy."""
    removed = _retired(plan).select(
        "doc_id", "source", reason=pl.lit("retired"), rule=pl.lit("refine.retired"),
        detail=pl.lit("its source was read to its end without it"),
    )  # fmt: skip
    lost = plan.filter(pl.col("action") == "lose").select(
        "doc_id", "source", "lost_to", reason=pl.lit("other_source"), rule=pl.lit("refine.preferred"),
        detail=pl.concat_str(pl.lit("the copy of "), "lost_to_source", pl.lit(" counts")),
    )  # fmt: skip
    return pl.concat([removed, lost], how="diagonal")


def _pending(plan: pl.DataFrame) -> pl.DataFrame:
    """Return verdicts with no digest: if this run is killed, the next one plans these documents again."""
    replaced = plan.filter(pl.col("action").is_in(["refine", "remove"])).select("doc_id", "source")
    return replaced.with_columns(digest=pl.lit(""), outcome=pl.lit("pending"))


def _verdicts(
    plan: pl.DataFrame, staged: pl.DataFrame, dropped: pl.DataFrame, again: pl.DataFrame
) -> pl.DataFrame:
    kept = staged.select("doc_id", outcome=pl.lit("kept"))
    outcomes = pl.concat([kept, dropped.select("doc_id", outcome="reason")])
    done = plan.filter(pl.col("action") == "refine").join(outcomes, on="doc_id")
    known = ~pl.col("doc_id").is_in(again["doc_id"].implode())
    done = done.with_columns(digest=pl.when(known).then("digest").otherwise(pl.lit("")))
    lost = plan.filter(pl.col("action") == "lose").with_columns(outcome=pl.lit("other_source"))
    return pl.concat([done.select(REFINED.names()), lost.select(REFINED.names())])


def _verdicts_elsewhere(root: Root, plan: pl.DataFrame) -> pl.DataFrame:
    """Return the verdicts on the plan's documents as other sources have them, which stay."""
    held = refined_table(root).read({partition_of(doc_id) for doc_id in plan["doc_id"]})
    return held.join(plan, on="doc_id", how="semi").join(plan, on=["doc_id", "source"], how="anti")
