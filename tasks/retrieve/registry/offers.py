"""The offers of a registry: which served skills any client may install, and the archive of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from storage.errors import UnknownDocument, Withheld, WrongInput
from storage.lance.served import Served, require_licences
from storage.lance.tables import SKILLS, TableAt
from storage.root import Root
from tasks.crawl.registries.discovery import MOST_NAME, digest_of, pack, registry_name
from tasks.refine.risks.hits import rule_id
from tasks.retrieve.install.contents import prepare
from tasks.retrieve.install.skills_folder import digests_of
from tasks.retrieve.revisions.edition import (
    SERVED_COLUMNS,
    SKILL_FILE,
    Edition,
    corpus_of,
    present_editions,
    served_edition,
)
from tasks.retrieve.skills.bundle import front_matter_of, skill_file_of

_INTERNAL = "offer.internal"  # its author keeps it to his project
_FORM = 2  # raised when the archive of an unchanged skill changes
_ORIGIN = ("doc_id", "repo", "commit", "licence")
_FACTS = (
    "raw_hash", "content_hash", "name", "description", "licence", "url", "commit", "blobs", "risks",
)  # fmt: skip
Contents = Mapping[str, bytes]
"""The files of a skill by their paths."""


@dataclass(frozen=True, slots=True)
class OfferedSkill:
    """A skill as a registry offers it, without its bytes.

    `facts` is the digest of what its archive depends on; `since` says when it was first seen, and `origin`
    whose it is. `digest` is that of its archive, and `files` holds the SHA-256 of each file by its path.
    """

    doc_id: str
    title: str
    description: str
    since: str
    origin: dict[str, str]
    facts: str
    digest: str
    files: dict[str, str]

    @property
    def archive(self) -> str:
        """The name of its archive, the same for the same bytes."""
        return f"{self.digest.removeprefix('sha256:')}.zip"


def contents_of(edition: Edition, refused: Collection[str], body: Callable[[], str]) -> Contents | str:
    """Return the files of a skill as a registry offers them, or the reason why it is left out.

    A SKILL.md is what its author wrote, but for keys; where clients cannot read its front matter, or would
    read it each in their own way, it is mended as for MCP. Raises `StorageError` if a file of it is missing
    or damaged. `refused`: severities and groups of risks that keep it out. `body` returns its body, where a
    SKILL.md is mended.
    """
    if edition.row["kind"] != "skill" or edition.skill_file is None:
        return "not_kept" if edition.row["kind"] == "skill" else "no_skill"
    if any(rule_id(risk["code"]) == _INTERNAL for risk in edition.row["risks"] or ()):
        return "internal"
    try:
        files = prepare(edition, refused, (), called="skill").contents
    except Withheld:
        return "withheld"
    except WrongInput:  # the name is given, and it is a skill
        return "refused"
    if front_matter_of(edition.skill_file) is not None:
        return files
    mended = skill_file_of(replace(edition, row={**edition.row, "body": body()}))
    return "not_kept" if mended is None else {**files, SKILL_FILE: mended.content}


def offers_of(
    root: Root, served: Served, refused: Collection[str], known: Mapping[str, OfferedSkill],
    rows: pl.DataFrame,
) -> Iterator[tuple[str, OfferedSkill | str, Contents | None]]:  # fmt: skip
    """Yield each served skill: its id, the offer or the reason why there is none, and its files.

    `refused` is as for `contents_of`. `known`: offers made before, by id; what is unchanged since is not read
    again, and has no files here. `rows` is what `served_rows` returned, or some of it.
    """
    licences = require_licences(root)
    rule = f"{_FORM}{sorted(refused)}"
    shown = [licences.class_of(licence) == "allow" for licence in rows["licence"]]
    skills = [kind == "skill" for kind in rows["kind"]]
    for doc_id, is_skill, is_shown in zip(rows["doc_id"], skills, shown, strict=True):
        if not (is_skill and is_shown):
            yield doc_id, "withheld" if is_skill else "no_skill", None
    rows = rows.filter(pl.Series(skills) & pl.Series(shown))
    corpus = corpus_of(root, rows)
    facts = pl.Series([_facts(row, rule) for row in corpus.select(_FACTS).iter_rows()], dtype=pl.String)
    same = pl.Series(
        [_is_known(known, *of) for of in zip(corpus["doc_id"], facts, strict=True)], dtype=pl.Boolean
    )
    for doc_id in corpus.filter(same)["doc_id"]:
        yield doc_id, known[doc_id], None
    table = TableAt(root, SKILLS, served.skills)

    def made(edition: Edition, digest: str) -> tuple[str, OfferedSkill | str, Contents | None]:
        doc_id = str(edition.row["doc_id"])
        files = contents_of(edition, refused, lambda: body_in(table, doc_id))
        return (
            (doc_id, files, None)
            if isinstance(files, str)
            else (doc_id, _offer(edition, digest, files), files)
        )

    by_id = dict(zip(corpus["doc_id"], facts, strict=True))
    for edition in present_editions(root, corpus.filter(~same)):
        yield made(edition, by_id[edition.row["doc_id"]])
    for row in rows.join(corpus, on="doc_id", how="anti").iter_rows(named=True):
        try:
            edition = served_edition(root, row)
        except UnknownDocument:  # no snapshot gives the text that is served
            yield row["doc_id"], "not_kept", None
            continue
        digest = _facts(tuple(edition.row[name] for name in _FACTS), rule)
        if _is_known(known, row["doc_id"], digest):
            yield row["doc_id"], known[row["doc_id"]], None
        else:
            yield made(edition, digest)


def served_rows(
    root: Root, served: Served, *, licences: Collection[str] = (), sources: Collection[str] = (),
    risks: Collection[str] = (),
) -> pl.DataFrame:  # fmt: skip
    """Return what is served, a row a document, sorted by id, with `SERVED_COLUMNS`.

    `licences`: only of one of these, `unknown` included, in any letter case; empty: of any, as below.
    `sources`: only from one of these, or of a kind of source. `risks`: only with one of these codes, with or
    without `risk.`, or `none` for those without any. Raises `WrongInput` if nothing that is served is so.
    """
    rows = TableAt(root, SKILLS, served.skills).frame([*SERVED_COLUMNS, "risks"]).sort("doc_id")
    source, codes = pl.col("source"), pl.col("risks").list
    if licences:
        spelt = pl.col("licence").fill_null("unknown").str.to_lowercase()
        rows = _only(rows, "--licence", licences, spelt.is_in([value.lower() for value in licences]))
    if sources:
        kind = source.str.split(":").list.first()
        rows = _only(rows, "--source", sources, source.is_in([*sources]) | kind.is_in([*sources]))
    if risks:
        wanted = [form for value in risks for form in (rule_id(value), f"risk.{rule_id(value)}")]
        none = (codes.len() == 0) & pl.lit("none" in risks)
        rows = _only(rows, "--risk", risks, none | (codes.set_intersection(wanted).list.len() > 0))
    return rows


def _only(rows: pl.DataFrame, option: str, values: Collection[str], which: pl.Expr) -> pl.DataFrame:
    if (found := rows.filter(which)).is_empty():
        msg = f"{option} {' '.join(values)}: nothing that is served is so; `skillery status` lists sources"
        raise WrongInput(msg)
    return found


def body_in(table: TableAt, doc_id: str) -> str:
    """Return the body of a served document."""
    held = table.first(["text", "body_start"], doc_id=[doc_id])
    return "" if held is None else str(held["text"][held["body_start"] :])


def _is_known(known: Mapping[str, OfferedSkill], doc_id: str, facts: str) -> bool:
    return doc_id in known and known[doc_id].facts == facts


def _facts(values: tuple[Any, ...], rule: str) -> str:
    said = json.dumps([rule, *values], sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _offer(edition: Edition, facts: str, files: Contents) -> OfferedSkill:
    row = edition.row
    url = row["url"] if str(row["url"]).startswith(("https://", "http://")) else None
    origin = {name: str(row[name]) for name in _ORIGIN if row[name] is not None}
    return OfferedSkill(
        row["doc_id"], row["name"], row["description"] or "", row["first_seen_at"].isoformat(),
        {**origin, **({"url": url} if url else {})}, facts, digest_of(pack(files)),
        digests_of(dict(sorted(files.items()))),
    )  # fmt: skip


def named(offers: Iterable[OfferedSkill]) -> dict[str, OfferedSkill]:
    """Return offers by the names under which a registry lists them, sorted.

    Of skills of one name the one that was seen first has it; the others have a part of their id's SHA-256
    behind it, so that a skill that joins renames none.
    """
    found: dict[str, OfferedSkill] = {}
    for offer in sorted(offers, key=lambda offer: (offer.since, offer.doc_id)):
        plain, digest = registry_name(offer.title), hashlib.sha256(offer.doc_id.encode()).hexdigest()
        name, digits = plain or "skill", 8
        while name in found or not plain:
            behind, plain = f"-{digest[:digits]}", plain or "skill"
            name, digits = f"{plain[: MOST_NAME - len(behind)].strip('-')}{behind}", digits + 8
        found[name] = offer
    return dict(sorted(found.items()))
