"""An edition of a skill: its document, front matter, SKILL.md and files, now or as one revision held them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.blobs import BlobStore
from storage.errors import UnknownDocument, WrongInput
from storage.lance.served import Served, require_licences, require_shown
from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS, SCHEMA_VERSION, Dropped, RawDocument, to_frame
from storage.state import documents_table, folded_table, read_run, seen_table
from tasks.crawl.source.identity import doc_key
from tasks.crawl.source.lookup import followed, meant, suggestion, was_brought
from tasks.models.redact import redact
from tasks.refine.frontmatter.frontmatter import parse_frontmatter
from tasks.refine.text.canonical import canonical
from tasks.refine.text.encodings import decode
from tasks.refine.text.strict_yaml import Value
from tasks.retrieve.revisions.history import (
    Revision,
    read_revision,
    revisions_of,
    snapshots_in,
    snapshots_of_part,
)

SKILL_FILE = "SKILL.md"
SERVED_COLUMNS = ["doc_id", "kind", "name", "source", "commit", "content_hash", "licence"]
"""The columns of the table `skills` by which an edition is found."""


@dataclass(frozen=True, slots=True)
class Edition:
    """A skill as it is or was; nothing of it holds what looks like a key.

    `row` is its row of DOCUMENTS; `skill_file` its SKILL.md as its author wrote it, None where it was not
    fetched; `contents` holds the bytes of files by path, and those that it lacks are blobs of `root`.
    """

    root: Root
    revision: Revision
    row: Mapping[str, Any]
    licence_class: str
    skill_file: bytes | None
    front_matter: dict[str, Value]
    contents: Mapping[str, bytes]

    def require_text(self) -> None:
        """Raise `Withheld` if the policy keeps its text back."""
        require_shown(self.row["doc_id"], self.row["licence"], self.licence_class)

    def path_of(self, path: str) -> str:
        """Return the path of SKILL.md or of the one bundled file that a path, or the end of one, means.

        Raises `WrongInput` if there is no such file, or several may be meant.
        """
        if path.casefold() == SKILL_FILE.casefold():
            return SKILL_FILE
        files = [file["path"] for file in self.row["files"] or ()]
        exact = [path] if path in files else meant(path, dict.fromkeys(files))
        if len(exact) != 1:
            said = suggestion(path, exact, [SKILL_FILE, *files]).replace("whole id", "whole path")
            raise WrongInput(f"{self.row['doc_id']} has no file {path!r}{said}")
        return exact[0]

    def read(self, path: str) -> bytes:
        """Return the bytes of a file, as they are kept.

        Raises `WrongInput` as `path_of` does, and if its bytes are not kept; `Withheld` if the policy keeps
        the skill's text back; `StorageError` if a blob is missing or damaged.
        """
        self.require_text()
        found = self.path_of(path)
        blobs = {file["path"]: file["sha256"] for file in self.row["blobs"] or ()}
        if found == SKILL_FILE and self.skill_file is not None:
            return self.skill_file
        if found not in blobs:
            said = any(finding["code"].startswith("bundle.") for finding in self.row["findings"] or ())
            why = "its findings say why" if said else "it was fetched by a Skillery that kept none"
            raise WrongInput(f"the bytes of {found} of {self.row['doc_id']} are not kept: {why}")
        kept = self.contents.get(found)
        return BlobStore(self.root).read(blobs[found]) if kept is None else kept


def find_row(root: Root, text: str) -> tuple[dict[str, Any], str | None]:
    """Return the row of the document that a text means, and the alias by which, None if by none.

    A folded copy is an alias in what is searched, but its id means its own text and files. Raises
    `UnknownDocument` if nothing has this id, and not exactly one document has an id that ends in it or this
    name.
    """
    table = documents_table(root)
    for step, wanted in enumerate(followed(root, text.strip().strip("/"))):
        if row := _row_in(table, wanted):
            return row, text if step else None
        if row := _row_in(folded_table(root), wanted):
            return row, text
    known = table.read(columns=["doc_id", "name"])
    names = dict(known.select("doc_id", "name").iter_rows())
    found = [] if was_brought(root, text.strip().strip("/")) else meant(text, names)
    if len(found) == 1:
        return table.of_document(found[0]).row(0, named=True), None
    msg = f"no document has the id {text!r}{suggestion(text, found, names)}: `skillery search` prints ids"
    raise UnknownDocument(msg)


def copy_of(root: Root, doc_id: str, served: Served) -> dict[str, Any] | None:
    """Return the row of a folded copy by its id in any letter case; None: none was published with `served`.

    The corpus may be ahead of what is served: the gate refused it, or the root was rolled back.
    """
    copy = _row_in(folded_table(root), doc_id)
    if copy is None or copy["fetched_at"] <= served.published_at:
        return copy
    # A run that changes nothing but copies passes, and the version stays.
    run = read_run(root, copy["run_id"]) or {}
    passed = run.get("state") in ("complete", "partial") and run.get("served") == served.version
    return copy if passed else None


def _row_in(table: PartitionedTable, doc_id: str) -> dict[str, Any] | None:
    rows = table.of(doc_id)
    same = rows.filter([doc_key(d) == doc_key(doc_id) for d in rows["doc_id"]])
    return next(same.iter_rows(named=True), None)


def present_edition(root: Root, row: Mapping[str, Any]) -> Edition:
    """Return a document of the corpus, by its row, as it is now.

    Raises `StorageError` if a raw part, or the file of licences' classes, cannot be read; `UnknownDocument`
    if there is no raw snapshot of it.
    """

    def is_it(revision: Revision) -> bool:
        return (revision.source, revision.fetched_at) == (row["source"], row["fetched_at"])

    seen = seen_table(root).of_document(row["doc_id"]).filter(source=row["source"])
    # A crawl may have brought a newer one that has not been refined yet: then all parts are searched.
    for part in (file for file in seen["raw_part"] if root.exists(file)):
        if found := [s for s in snapshots_in(root, part, row["doc_id"]) if is_it(s[0])]:
            return _edition(root, *found[-1], row, {})
    revisions = revisions_of(root, row["doc_id"], row["source"])
    revision = ([r for r in revisions if is_it(r)] or revisions)[-1]
    return _edition(root, revision, read_revision(root, revision), row, {})


def past_edition(root: Root, revision: Revision) -> Edition:
    """Return a document as a revision held it, refined by the rules of now.

    Raises `WrongInput` if it was dropped when it was refined; the message says why. Raises `StorageError` if
    a raw part, or the file of licences' classes, cannot be read.
    """
    return refined_edition(root, revision, read_revision(root, revision))


def refined_edition(
    root: Root, revision: Revision, raw: RawDocument, class_of: Callable[[str | None], str] | None = None
) -> Edition:
    """Return a document as it was fetched, refined by the rules of now.

    `class_of` gives the class of a licence; None: as the root's last run has it. Raises `WrongInput`,
    `StorageError` as `past_edition`.
    """
    # Refining takes a second to load, which what is there now does without.
    from tasks.refine.document import refine_bundles, refine_document  # noqa: PLC0415

    (bundle,) = refine_bundles([raw])
    at = revision.fetched_at
    document = refine_document(raw, fetched_at=at, first_seen_at=at, bundle=bundle)
    if isinstance(document, Dropped):
        msg = f"revision {revision.revision[:12]} of {revision.doc_id} was dropped: {document.reason}"
        raise WrongInput(f"{msg} ({document.detail})")
    frame = to_frame([document], DOCUMENTS, run_id=revision.run_id, schema_version=SCHEMA_VERSION)
    kept = {blob.path: content for blob, content in zip(bundle.blobs, bundle.contents, strict=True)}
    return _edition(root, revision, raw, frame.row(0, named=True), kept, class_of)


def served_edition(root: Root, row: Mapping[str, Any]) -> Edition:
    """Return the edition of a document whose row of `skills` is served.

    The corpus may be ahead of what is served, or behind it after a rollback; then the edition is refined anew
    of the raw snapshot that the served text came from. Raises `UnknownDocument` if no snapshot gives the text
    that is served; it may have been forgotten. Raises `StorageError` if a file of the root cannot be read.
    """
    for table in (documents_table(root), folded_table(root)):
        for document in table.of_document(row["doc_id"]).iter_rows(named=True):
            if _is_same(document, row):
                return present_edition(root, document)
    for revision in reversed(revisions_of(root, row["doc_id"], row["source"])):
        if revision.commit == row["commit"]:
            try:
                edition = past_edition(root, revision)
            except WrongInput:  # refine would drop it now
                continue
            if _is_same(edition.row, row):
                return edition
    msg = f"the files of {row['doc_id']} as they are served are not kept: search and page still answer"
    raise UnknownDocument(msg)


def corpus_of(root: Root, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the documents of the corpus, without their bodies, that are as rows of `skills` have them.

    Of the other rows `served_edition` finds the edition one by one.
    """
    bare = [name for name in DOCUMENTS.names() if name != "body"]
    same = ["doc_id", "content_hash", "commit"]
    return (
        documents_table(root)
        .read(columns=bare)
        .join(rows.select(same), on=same, how="semi", nulls_equal=True)
    )


def present_editions(root: Root, documents: pl.DataFrame) -> Iterator[Edition]:
    """Yield the editions of many documents that `corpus_of` returned, reading each raw part once."""
    parts = seen_table(root).read(columns=["doc_id", "source", "raw_part"])
    placed = documents.join(parts, on=["doc_id", "source"], how="left", maintain_order="left")
    for (part,), group in placed.group_by("raw_part", maintain_order=True):
        ids = {doc_key(doc_id) for doc_id in group["doc_id"]}
        found = snapshots_of_part(root, str(part), ids) if part and root.exists(str(part)) else ()
        held = {(r.doc_id, r.source, r.fetched_at): (r, raw) for r, raw in found}
        for row in group.drop("raw_part").iter_rows(named=True):
            snapshot = held.get((row["doc_id"], row["source"], row["fetched_at"]))
            yield _edition(root, *snapshot, row, {}) if snapshot else present_edition(root, row)


def _is_same(document: Mapping[str, Any], served: Mapping[str, Any]) -> bool:
    return all(document[name] == served[name] for name in ("content_hash", "commit"))


def _edition(
    root: Root, revision: Revision, raw: RawDocument, row: Mapping[str, Any], contents: Mapping[str, bytes],
    class_of: Callable[[str | None], str] | None = None,
) -> Edition:  # fmt: skip
    text, redacted = decode(raw.content or b"")[0], raw.content
    clean, secrets = redact(text)
    if secrets:
        redacted = clean.encode("utf-8", "replace")
    fields = parse_frontmatter(canonical(clean)[0]).fields if raw.kind == "skill" else {}
    licence_class = (class_of or require_licences(root).class_of)(row["licence"])
    return Edition(root, revision, row, licence_class, redacted, fields, contents)
