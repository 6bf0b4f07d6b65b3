"""Forgets a document, repository, trajectory or learned skill: all of it goes, a tombstone stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from storage.answers import forget_answers
from storage.errors import StorageError, UnknownDocument, WrongInput
from storage.lance.served import read_served
from storage.locks import writer_lock
from storage.parquet import read_columns
from storage.root import Root
from storage.state import aliases_table, documents_table, seen_table
from storage.tombstones import Forgotten, Tombstone, add_tombstones, mark_purged
from tasks.crawl.backfill import rebuilt_days
from tasks.crawl.source.lookup import meant, nearest, suggestion
from tasks.induce.library.build import unnamed_digest
from tasks.induce.library.held import HeldLibraries, HeldVerdicts, KeptTrajectories
from tasks.induce.library.llm_inducer import WINDOWS_ASKED
from tasks.induce.skills.skill import InducedSkill
from tasks.induce.skills.texts import STATES
from tasks.retrieve.suggest.stored import ServedSkills
from tasks.retrieve.versions.purge import parquet_files, purge

_RUN = "trajectory"
SCOPES = {_RUN: "trajectory", "learned": "learned skill"}  # what stands before the colon, and in words


def is_learned(target: str) -> bool:
    """Tell whether a target is a trajectory or a learned skill: `trajectory:ID` or `learned:SKILL_ID`."""
    return target.partition(":")[0] in SCOPES and ":" in target


def learned_tombstone(root: Root, target: str) -> Tombstone:
    """Return the tombstone of what a target names: one that is kept, served, or forgotten before.

    Raises `UnknownDocument` if nothing has or had this id; the nearest are named.
    """
    scope, _, name = target.partition(":")
    skills = {} if scope == _RUN else _skills(root)
    known = _runs(root) if scope == _RUN else set(skills)
    if name not in known and name not in Forgotten.load(root).named(scope):
        near = nearest(name, known)
        said = f": near {', '.join(near)}" if near else ""
        raise UnknownDocument(f"no {SCOPES[scope]} has the id {name!r}{said}")
    # Under other names of parameters it would be the same skill.
    digest = unnamed_digest(skills[name].body) if name in skills else None
    return Tombstone(name, scope, target, body_hash=digest)


def _served(root: Root) -> ServedSkills | None:
    try:
        return ServedSkills(root)
    except WrongInput:
        return None


def _runs(root: Root) -> set[str]:
    served = _served(root)
    shown = served.runs() if served else set[str]()
    return shown | set(KeptTrajectories(root).digests())


def _skills(root: Root) -> dict[str, InducedSkill]:
    held, served = HeldLibraries(root), _served(root)
    shown = [skill for one in served.domains for skill in served.skills(one)] if served else []
    kept = [skill for domain in held.domains() for skill in held.by_id(domain).values()]
    return {skill.skill_id: skill for skill in [*shown, *kept]}


def clean_learned(root: Root, stone: Tombstone) -> tuple[Counter[str], str]:
    """Clean files of runs, libraries and answers; return what was removed, and what could not be read."""
    scope, name, removed = stone.scope, stone.doc_id, Counter[str]()
    try:
        if scope == _RUN:
            removed["trajectories"] = KeptTrajectories(root).drop({name})
            HeldVerdicts(root).forget(name)
            of = {stone.target, STATES, WINDOWS_ASKED}
            removed["state/answers"] = forget_answers(root, of.__contains__)
        held = HeldLibraries(root)
        for domain in held.domains():
            if _holds(held.by_id(domain).values(), scope, name):
                held.drop(domain)
                removed["induced"] += 1
    except StorageError as error:
        return removed, str(error)
    return removed, ""


def _holds(skills: Iterable[InducedSkill], scope: str, name: str) -> bool:
    if scope == _RUN:
        return any(name in dict(skill.sources) for skill in skills)
    return any(skill.skill_id == name for skill in skills)


_COLUMNS = ("doc_id", "raw_hash", "body_hash", "repo")
_TEXTS = pl.Schema({**dict.fromkeys(_COLUMNS, pl.String), "current": pl.Boolean})
_SAME_TEXT = ("retired", "renamed")  # kinds of aliases whose id had the text of the document it leads to


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What was forgotten.

    `scope` is `document`, `repository`, `trajectory` or `learned skill`. `doc_ids` are named by the target,
    `copies` held the same text. `removed` counts rows by folder or table, and is empty if all were removed
    before. `served` is the version that is served now, None if none is.
    """

    target: str
    scope: str
    doc_ids: tuple[str, ...]
    copies: tuple[str, ...]
    removed: dict[str, int]
    served: str | None


@dataclass(frozen=True, slots=True)
class Targets:
    """The ids that a request names, those of documents with the same text now, and the tombstones of both."""

    target: str  # as asked for; the whole id, if that was the end of one or a name
    scope: str
    doc_ids: tuple[str, ...]
    copies: tuple[str, ...]
    tombstones: tuple[Tombstone, ...]


def forget(root: Root, target: str, *, run_id: str, now: datetime) -> ForgetReport:
    """Remove every text of `target` from all files and table versions; leave tombstones that hold no text.

    A target is a doc_id or an alias of one; a repository: `owner/repo`, `host/owner/repo`, `local/name`;
    `trajectory:ID`, or `learned:SKILL_ID`. What was learned of a trajectory goes on without it where others
    did the same; the libraries of its domain are built anew by the next `induce`.

    A call that was killed is finished by calling again. Older versions of the tables are removed, so there is
    no rollback to them. Readers that use one fail, and find the new version `v-<run_id>` when they read
    `state/served.json` again. Raises `UnknownDocument` if nothing has or had this id, or lies below it.
    Raises `Locked` if a backfill is being written; nothing has been removed yet. Raises `StorageError` if a
    file or table cannot be read; all others have been cleaned.
    """
    found, learned = targets_of(root, target), is_learned(target)
    with ExitStack() as locks:
        # Tombstones come first: from then on no crawl or backfill brings the text back.
        forgotten = add_tombstones(root, found.tombstones, now)
        for day in () if learned else rebuilt_days(root):
            locks.enter_context(writer_lock(day))
        removed, unreadable = clean_learned(root, found.tombstones[0]) if learned else (Counter[str](), "")
        removed += purge(root, forgotten, run_id=run_id)
        if unreadable:
            raise StorageError(f"nothing could be taken out of {unreadable}: delete that, then forget again")
        mark_purged(root, now)
    served, counts = read_served(root), dict(sorted((+removed).items()))
    scope = SCOPES.get(found.scope, found.scope)
    version = served.version if served else None
    return ForgetReport(found.target, scope, found.doc_ids, found.copies, counts, version)


def targets_of(root: Root, target: str) -> Targets:
    """Return what `forget` would remove of a target; raise `UnknownDocument` if nothing has or had its id."""
    if is_learned(target):
        stone = learned_tombstone(root, target)
        return Targets(stone.doc_id, stone.scope, (stone.doc_id,), (), (stone,))
    return find_targets(root, target, Forgotten.load(root))


def find_targets(root: Root, target: str, forgotten: Forgotten) -> Targets:
    """Return what `target` names: an id or alias in any letter case, or a repository and all below it.

    The end of an id, or a name, names the one document that has it. Other documents are forgotten too if they
    hold a text now that the target holds now. A text that only the target held before is kept from coming
    back under any id. Raises `UnknownDocument` if nothing has or had this id, or lies below it.
    """
    rows = _known_texts(root)
    aliases = aliases_table(root).read().select("doc_id", "survivor", "kind")
    key = target.strip().strip("/").casefold()
    before = forgotten.of(key).filter(pl.col("scope") == "document")
    known = {*rows["doc_id"], *aliases["doc_id"], *before["doc_id"]}
    was_repository = "repository" in forgotten.of(key)["scope"]
    scope = "repository" if was_repository else _scope(key, known)
    if scope == "document":
        named = {d for d in known if d.casefold() == key}
    else:
        in_repository = rows.filter(pl.col("repo").str.to_lowercase() == key)["doc_id"]
        named = {d for d in known if f"{d.casefold()}/".startswith(f"{key}/")} | set(in_repository)
    if not named:
        earlier = forgotten.named("document") | forgotten.named("repository")
        names = {**dict.fromkeys([*known, *earlier]), **_names(root)}
        found = meant(target, names)
        # A whole repository goes by its whole name alone.
        if len(found) == 1 and _scope(found[0].casefold(), known) == "document":
            return find_targets(root, found[0], forgotten)
        msg = f"no document or repository has the id {target!r}{suggestion(target, found, known)}"
        raise UnknownDocument(msg)
    ids = _with_aliases(named | set(before.filter(~pl.col("copy"))["doc_id"]), aliases)
    copies, tombstones = _tombstones(rows, ids, key)
    if scope == "repository":
        tombstones.append(Tombstone(key, "repository", key))
    copies |= set(before.filter("copy")["doc_id"])
    return Targets(target, scope, tuple(sorted(ids)), tuple(sorted(copies - ids)), tuple(tombstones))


def _names(root: Root) -> dict[str, str | None]:
    return dict(documents_table(root).read(columns=["doc_id", "name"]).select("doc_id", "name").iter_rows())


def _known_texts(root: Root) -> pl.DataFrame:
    """Return `_TEXTS` of every text below the root; `current` tells whether its document holds it now."""
    held = set(seen_table(root).read(columns=["doc_id", "raw_part"]).iter_rows())
    return pl.concat([pl.DataFrame(schema=_TEXTS), *_in_files(root, held), _in_served(root)]).unique()


def _in_files(root: Root, held: set[tuple[str, str]]) -> Iterator[pl.DataFrame]:
    for file in parquet_files(root):
        try:
            frame = read_columns(root, file, _COLUMNS)
        except StorageError:
            continue  # the purge reads it too, and names it after it has cleaned all others
        if "doc_id" not in frame.columns:
            continue
        if file.startswith("raw/"):
            current = pl.Series([(doc_id, file) in held for doc_id in frame["doc_id"]], dtype=pl.Boolean)
        else:
            current = pl.repeat(file.startswith(("documents/", "state/folded/")), frame.height, eager=True)
        frame = frame.with_columns(current=current)
        missing = [pl.lit(None, pl.String).alias(c) for c in _COLUMNS if c not in frame.columns]
        named = frame.with_columns(missing).drop_nulls("doc_id")  # an event of usage may name none
        yield named.select(_TEXTS.names()).cast(_TEXTS).unique()


def _in_served(root: Root) -> pl.DataFrame:
    served = read_served(root)
    if served is None:
        return pl.DataFrame(schema=_TEXTS)
    rows = served.skills_table(root).rows(["doc_id", "body_hash", "repo"]).to_pylist()
    return pl.DataFrame([{**row, "raw_hash": None, "current": True} for row in rows], schema=_TEXTS)


def _scope(key: str, known: Collection[str]) -> str:
    """Tell an id from a repository's name by its form, or, if that may be either, by what lies below it."""
    parts, folded = key.split("/"), {d.casefold() for d in known}
    if parts[0] != "mcp" and len(parts) == (3 if "." in parts[0] else 2):
        return "repository"
    below = any(d.startswith(f"{key}/") for d in folded)
    return "repository" if below and key not in folded else "document"


def _with_aliases(named: set[str], aliases: pl.DataFrame) -> set[str]:
    """Return these ids with those that they lead to, and every id that led to one of them."""
    same = aliases.filter(pl.col("kind").is_in(_SAME_TEXT))
    ids, size = set(named), 0
    while len(ids) != size:
        size, folded = len(ids), {d.casefold() for d in ids}
        for doc_id, survivor in same.select("doc_id", "survivor").iter_rows():
            if doc_id.casefold() in folded or survivor.casefold() in folded:
                ids |= {doc_id, survivor}
    return ids


def _tombstones(rows: pl.DataFrame, ids: set[str], key: str) -> tuple[set[str], list[Tombstone]]:
    """Return the other documents with a text that these ids hold now, and a tombstone per id and text."""
    of_target = pl.col("doc_id").is_in(list(ids))
    own, others = rows.filter(of_target), rows.filter(~of_target)
    now = _hashes(own.filter("current"))
    holding = others.filter("current", pl.any_horizontal(pl.col("raw_hash", "body_hash").is_in(list(now))))
    copies = set(holding["doc_id"])
    # A text that a document keeps must not be blocked: the next crawl would drop that document.
    standing = _hashes(others.filter("current", ~pl.col("doc_id").is_in(list(copies))))
    blocked = now | _hashes(holding) | (_hashes(own) - standing)
    tombstones = [
        Tombstone(doc_id, "document", key, copy=doc_id in copies) for doc_id in sorted(ids | copies)
    ]
    gone = pl.concat([own, holding]).select("doc_id", "raw_hash", "body_hash").unique(maintain_order=True)
    for doc_id, raw_hash, body_hash in gone.iter_rows():
        raw, body = (h if h in blocked else None for h in (raw_hash, body_hash))
        if raw or body:
            tombstones.append(Tombstone(doc_id, "document", key, doc_id in copies, raw, body))
    return copies, tombstones


def _hashes(rows: pl.DataFrame) -> set[str]:
    return {*rows["raw_hash"].drop_nulls(), *rows["body_hash"].drop_nulls()}
