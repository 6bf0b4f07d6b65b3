"""Reading one skill, for the command: what is known of it, one of its files, what changed in it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from storage.errors import WrongInput
from storage.root import Root
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition
from tasks.retrieve.revisions.show import open_edition, shown


def skill_of(root: Root, text: str, revision: str | None) -> dict[str, Any]:
    """Return what is known of the skill that a text means, now or at a revision.

    Raises:
        UnknownDocument: No document has this id or name, or several may be meant.
        WrongInput: It has no such revision.
        StorageError: A file of the root cannot be read.
    """
    return shown(*open_edition(root, text, revision))


def skill_bytes(root: Root, text: str, file: str | None, revision: str | None) -> bytes:
    """Return the bytes of a skill's file, as they are kept; None stands for its SKILL.md.

    Raises:
        UnknownDocument, StorageError: As `skill_of`.
        WrongInput: Also if there is no such file, or its bytes are not kept.
        Withheld: The licence policy keeps its text back.
    """
    return open_edition(root, text, revision)[0].read(SKILL_FILE if file is None else file)


def skill_file(root: Root, text: str, file: str, revision: str | None) -> dict[str, Any]:
    """Return a skill's file as a JSON object: `text`, or `base64` where it is no UTF-8 text.

    Raises as `skill_bytes`.
    """
    return file_of(open_edition(root, text, revision)[0], file)


def file_of(edition: Edition, file: str) -> dict[str, Any]:
    """Return a file of an edition as `skill_file` does; raises as `Edition.read`."""
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
    """Return the text of what `skill_file` returned; raise `WrongInput` if it is none."""
    if "text" not in found:
        msg = f"{found['path']} has {found['size']:,} bytes and is no text: --raw prints them as they are"
        raise WrongInput(msg)
    return str(found["text"])
