"""The differences between two editions of a skill."""

from __future__ import annotations

import difflib
from typing import Any

from storage.root import Root
from tasks.refine.text.canonical import decode
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition, find_row, past_edition
from tasks.retrieve.revisions.history import Revision, revisions_of
from tasks.retrieve.revisions.show import chosen

_FIELDS = ("name", "description", "licence", "licence_rule", "language", "author", "url", "path", "commit")
# Comparing lines takes time quadratic in the lines that differ.
_MOST_BYTES, _MOST_LINES = 500_000, 5_000
_CONTEXT = 3  # lines around each difference


def differences(root: Root, text: str, a: str | None = None, b: str | None = None) -> dict[str, Any]:
    """Return what changed in a document between two of its revisions, as `skillery diff --json` prints it.

    `changed` tells whether anything did. `text` is the difference of SKILL.md, null where there is none;
    `files` has an object a file that was added, removed or changed, with the `difference` of its lines where
    both are texts of some 5,000 lines at most.

    Args:
        root: The root.
        text: An id or alias in any letter case, or the end of one id, or the name of one document.
        a: The earlier revision, as `history.choose` takes it; None: the one before `b`.
        b: The later one; None: the newest.

    Raises:
        UnknownDocument: There is no such document.
        WrongInput: It has no such revision, or that was dropped.
        Withheld: The policy keeps the text of one of them back.
        StorageError: A file cannot be read.
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
    """Return the risks that only one of both has, by rule and severity."""
    was, now = ({(f["code"], f["severity"]): f for f in e.row["risks"] or ()} for e in (old, new))
    return {
        "added": [risk for key, risk in now.items() if key not in was],
        "gone": [risk for key, risk in was.items() if key not in now],
    }


def _of_files(old: Edition, new: Edition) -> list[dict[str, Any]]:
    was, now = ({f["path"]: f for f in e.row["files"] or ()} for e in (old, new))
    found = []
    for path in sorted(was.keys() | now.keys()):
        one, other = was.get(path), now.get(path)
        if one is not None and other is not None and one["sha256"] == other["sha256"]:
            continue
        change = "added" if one is None else "removed" if other is None else "changed"
        sizes = [None if file is None else file["size"] for file in (one, other)]
        kept = [e.contents.get(path, None if file else b"") for e, file in ((old, one), (new, other))]
        lines = None if kept[0] is None or kept[1] is None else difference_of_lines(path, kept[0], kept[1])
        found.append({"path": path, "change": change, "sizes": sizes, "difference": lines})
    return found


def difference_of_lines(path: str, old: bytes, new: bytes) -> str | None:
    """Return the unified difference of two texts; None if they are equal, no texts, or too long."""
    if old == new or max(len(old), len(new)) > _MOST_BYTES or b"\0" in old + new:
        return None
    one, other = (decode(content)[0].splitlines() for content in (old, new))
    if max(len(one), len(other)) > _MOST_LINES:
        return None
    return "\n".join(difflib.unified_diff(one, other, f"a/{path}", f"b/{path}", n=_CONTEXT, lineterm=""))
