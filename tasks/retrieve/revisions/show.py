"""Shows a skill as it is, and what changed in it between two of its revisions."""

from __future__ import annotations

import base64
import difflib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.state import aliases_table, seen_table
from tasks.crawl.source.identity import doc_key, shown_spec
from tasks.crawl.source.lookup import followed
from tasks.refine.known_files import known_facts, wanted_blobs
from tasks.refine.risks.hits import told_risk
from tasks.refine.signatures import signature_facts
from tasks.refine.text.encodings import decode
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition, find_row, past_edition, present_edition
from tasks.retrieve.revisions.history import Revision, choose, revisions_of

_TOLD = (
    "kind", "name", "description", "inferred", "source", "repo", "ref", "commit", "path", "url", "author",
    "stars", "category", "tags", "language", "licence", "licence_rule", "content_hash", "body_hash",
    "raw_hash",
)  # fmt: skip


def open_edition(root: Root, text: str, revision: str | None = None) -> tuple[Edition, str | None]:
    """Return the edition of the document that a text means, and the alias by which, None if by none.

    `text` is an id or alias in any letter case, or the end of one id, or the name of one document. `revision`
    is what `history.choose` takes; None: as the document is now. Raises `UnknownDocument` if there is no such
    document; `WrongInput` if it has no such revision, or that was dropped; `StorageError` if a file cannot be
    read.
    """
    row, alias = find_row(root, text)
    if revision is None:
        return present_edition(root, row), alias
    return past_edition(root, chosen(root, revisions_of(root, row["doc_id"], row["source"]), revision)), alias


def chosen(root: Root, revisions: list[Revision], text: str) -> Revision:
    """Return the revision that a text means, content hashes included; raises as `history.choose`."""

    def content_hash(revision: Revision) -> str | None:
        try:
            return str(past_edition(root, revision).row["content_hash"])
        except WrongInput:
            return None

    return choose(root, revisions, text, content_hash)


def shown(edition: Edition, alias: str | None) -> dict[str, Any]:
    """Return what is known of a skill, as `skillery show --json` prints it.

    Where the policy keeps its text back, `body`, `front_matter`, an inferred description and the messages of
    findings are null.
    """
    row, allowed = edition.row, edition.licence_class == "allow"
    blobs = {file["path"]: file for file in row["blobs"] or ()}
    told = {name: row[name] for name in _TOLD} | {"source": shown_spec(row["source"])}
    if not allowed and "description" in (row["inferred"] or ()):
        told["description"] = None
    return {
        "doc_id": row["doc_id"],
        **({"alias_of": _leads_to(edition, alias), "doc_id": alias} if alias else {}),
        **told,
        "licence_class": edition.licence_class,
        "front_matter": edition.front_matter if allowed else None,
        "body": row["body"] if allowed else None,
        "risks": [told_risk(risk) for risk in _findings(row["risks"], allowed=allowed)],
        "findings": _findings(row["findings"], allowed=allowed),
        "files": None if row["files"] is None else [_file(f, blobs.get(f["path"])) for f in row["files"]],
        "known_files": _known_files(edition) if allowed else {},
        "fetched_at": row["fetched_at"].isoformat(),
        "first_seen_at": row["first_seen_at"].isoformat(),
        "stale_since": _stale_since(edition),
        **{k: v for k, v in edition.revision.as_dict().items() if k in ("revision", "run_id")},
        "aliases": _aliases(edition.root, row["doc_id"]),
    }


def _leads_to(edition: Edition, alias: str) -> str:
    """Return the document that an alias leads to; of a folded copy, the one that it is folded on."""
    *_, survivor = followed(edition.root, edition.row["doc_id"])
    same = doc_key(alias.strip().strip("/")) == doc_key(edition.row["doc_id"])
    return survivor if same else str(edition.row["doc_id"])


def _findings(found: list[dict[str, Any]] | None, *, allowed: bool) -> list[dict[str, Any]]:
    return [{**f, "message": f["message"] if allowed else None} for f in found or ()]


def _file(file: dict[str, Any], blob: dict[str, Any] | None) -> dict[str, Any]:
    """Return a file as fetched, and as it is kept: null if it is not, other bytes if it was redacted."""
    kept = None if blob is None else {"size": blob["size"], "sha256": blob["sha256"]}
    return {**file, "kept": kept}


def _known_files(edition: Edition) -> dict[str, Any]:
    contents = {path: edition.read(path) for path in wanted_blobs(edition.row["blobs"])}
    signed = signature_facts(contents, edition.row)
    return {**known_facts(contents), **({"signature": signed} if signed else {})}


def _stale_since(edition: Edition) -> str | None:
    rows = seen_table(edition.root).of_document(edition.row["doc_id"])
    since = rows.filter(source=edition.row["source"])["stale_since"].drop_nulls()
    return None if since.is_empty() else str(since[0].isoformat())


def _aliases(root: Root, doc_id: str) -> list[dict[str, str]]:
    rows = aliases_table(root).read().filter(pl.col("survivor") == doc_id).sort("doc_id")
    return rows.select("doc_id", "kind").to_dicts()


_FIELDS = ("name", "description", "licence", "licence_rule", "language", "author", "url", "path", "commit")
# Comparing lines takes time quadratic in the lines that differ.
_MOST_BYTES, _MOST_LINES = 500_000, 5_000
_CONTEXT = 3  # lines around each difference


def differences(root: Root, text: str, a: str | None = None, b: str | None = None) -> dict[str, Any]:
    """Return what changed in a document between two of its revisions, as `skillery diff --json` prints it.

    `changed` tells whether anything did. `text` is the difference of SKILL.md, null where there is none;
    `files` has an object a file that was added, removed or changed, with the `difference` of its lines where
    both are texts of some 5,000 lines at most. Raises `UnknownDocument` if there is no such document;
    `WrongInput` if it has no such revision, or that was dropped; `Withheld` if the policy keeps the text of
    one of them back; `StorageError` if a file cannot be read. `text` is an id or alias in any letter case, or
    the end of one id, or the name of one document. `a` is the earlier revision, as `history.choose` takes it;
    None: the one before `b`. `b` is the later one; None: the newest.
    """
    row, _ = find_row(root, text)
    revisions = revisions_of(root, row["doc_id"], row["source"])
    return {"doc_id": row["doc_id"], **compared(root, revisions, a, b)}


def compared(
    root: Root, revisions: list[Revision], a: str | None = None, b: str | None = None
) -> dict[str, Any]:
    """Return what changed between two of a document's revisions, given in the order of time.

    The rest is as `differences` says.
    """
    later = revisions[-1] if b is None else chosen(root, revisions, b)
    before = revisions[max(0, revisions.index(later) - 1)]
    earlier = before if a is None else chosen(root, revisions, a)
    old, new = past_edition(root, earlier), past_edition(root, later)
    for edition in (old, new):
        edition.require_text()
    found: dict[str, Any] = {
        "fields": {n: [old.row[n], new.row[n]] for n in _FIELDS if old.row[n] != new.row[n]},
        "text": difference_of_lines(SKILL_FILE, old.skill_file or b"", new.skill_file or b""),
        "risks": _of_findings(old, new),
        "files": _of_files(old, new),
    }
    changed = any(found[key] for key in ("fields", "text", "files")) or any(found["risks"].values())
    told = {"revisions": len(revisions), "a": earlier.as_dict(), "b": later.as_dict(), "changed": changed}
    return {**told, **found}


def _of_findings(old: Edition, new: Edition) -> dict[str, list[dict[str, Any]]]:
    was, now = ({(f["code"], f["severity"]): f for f in e.row["risks"] or ()} for e in (old, new))
    return {
        "added": [risk for key, risk in now.items() if key not in was],
        "gone": [risk for key, risk in was.items() if key not in now],
    }


def _of_files(old: Edition, new: Edition) -> list[dict[str, Any]]:
    held = [{file["path"]: file for file in edition.row["files"] or ()} for edition in (old, new)]
    was, now = ({path: file["sha256"] for path, file in files.items()} for files in held)

    def content(path: str, side: int) -> tuple[bytes | None, int]:
        return (old, new)[side].contents.get(path), held[side][path]["size"]

    return changed_files(was, now, content)


def changed_files(
    was: Mapping[str, str], now: Mapping[str, str], content: Callable[[str, int], tuple[bytes | None, int]]
) -> list[dict[str, Any]]:
    """Return an object a file that was added, removed or changed, by the digests of files before and after.

    `content` returns the bytes, None where they are not kept, and the size of a file before (0) or after (1).
    """
    found = []
    for path in sorted(path for path in was.keys() | now.keys() if was.get(path) != now.get(path)):
        change = "added" if path not in was else "removed" if path not in now else "changed"
        (old, before), (new, after) = (
            content(path, side) if path in files else (b"", None) for side, files in enumerate((was, now))
        )
        lines = None if old is None or new is None else difference_of_lines(path, old, new)
        found.append({"path": path, "change": change, "sizes": [before, after], "difference": lines})
    return found


def difference_of_lines(path: str, old: bytes, new: bytes) -> str | None:
    """Return the unified difference of two texts; None if they are equal, no texts, or too long."""
    if old == new or max(len(old), len(new)) > _MOST_BYTES or b"\0" in old + new:
        return None
    one, other = (decode(content)[0].splitlines() for content in (old, new))
    if max(len(one), len(other)) > _MOST_LINES:
        return None
    return "\n".join(difflib.unified_diff(one, other, f"a/{path}", f"b/{path}", n=_CONTEXT, lineterm=""))


def file_of(edition: Edition, file: str) -> dict[str, Any]:
    """Return a file as a JSON object: `text`, or `base64` where it is no UTF-8; raises as `Edition.read`."""
    content = edition.read(file)
    digest = hashlib.sha256(content).hexdigest()
    told = {"path": edition.path_of(file), "size": len(content), "sha256": digest}
    as_text = _as_text(content)
    body = {"base64": base64.b64encode(content).decode()} if as_text is None else {"text": as_text}
    origin = {name: edition.row[name] for name in ("source", "url", "commit", "licence")}
    return {"doc_id": edition.row["doc_id"], **told, **body, **origin}


def _as_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def require_text(found: dict[str, Any]) -> str:
    """Return the text of what `file_of` returned; raise `WrongInput` if it is none."""
    if "text" not in found:
        msg = f"{found['path']} has {found['size']:,} bytes and is no text: --raw prints them as they are"
        raise WrongInput(msg)
    return str(found["text"])
