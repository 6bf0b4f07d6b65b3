"""The contents of a skill's folder: an edition's files by the paths under which they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import WrongInput
from tasks.refine.export.paths import FreePaths, file_path
from tasks.refine.risks.rules import risk_rules
from tasks.retrieve.install.lock import Installed, is_folder_name
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition

_RISK = "risk."


@dataclass(frozen=True, slots=True)
class Installable:
    """A skill that may be installed: the name of its folder, what the lock says of it, and its bytes by path.

    `redacted` are the paths of those whose bytes are not the source's: they held what looks like a key.
    """

    name: str
    installed: Installed
    contents: dict[str, bytes]
    redacted: list[str]
    risks: Sequence[Mapping[str, Any]]


def prepare(edition: Edition, refused: Collection[str], accepted: Collection[str]) -> Installable:
    """Return what is to be written of an edition.

    Files whose bytes are not kept are named in the lock. Of a skill whose files are not known, which the lock
    says too, SKILL.md alone is written.

    Args:
        edition: The skill.
        refused: Severities and groups of risk rules that are refused.
        accepted: Rules that are not, by `rule_id`.

    Raises:
        Withheld: The licence policy keeps its text back.
        WrongInput: It is no skill, its name is no name of a folder, or it holds a risk that is refused.
        StorageError: A file of it is missing or damaged.
    """
    row = edition.row
    edition.require_text()
    if row["kind"] != "skill" or edition.skill_file is None:
        msg = f"{row['doc_id']}, of kind {row['kind']}, has no SKILL.md: only skills can be installed"
        raise WrongInput(msg)
    if not is_folder_name(row["name"]):
        msg = f"the name of {row['doc_id']}, {row['name']!r}, cannot name a folder: it cannot be installed"
        raise WrongInput(msg)
    hit = _hit(row["risks"] or (), refused)
    if left := [risk for risk in hit if rule_id(risk["code"]) not in accepted]:
        raise WrongInput(_refusal(row["doc_id"], left))
    blobs = planned(row)
    contents = {path: edition.read(blob["path"]) for path, blob in blobs.items()}
    contents[SKILL_FILE] = edition.skill_file
    fetched = {file["path"]: file["sha256"] for file in row["files"] or ()}
    redacted = [p for p, blob in blobs.items() if fetched.get(blob["path"], blob["sha256"]) != blob["sha256"]]
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(contents.items())}
    if digests[SKILL_FILE] != row["raw_hash"]:
        redacted.insert(0, SKILL_FILE)
    installed = Installed(
        **{n: row[n] for n in ("doc_id", "source", "url", "commit", "raw_hash", "content_hash", "licence")},
        revision=edition.revision.revision,
        files=digests,
        not_written=not_kept(row),
        risks=sorted(risk["code"] for risk in row["risks"] or ()),
        accepted_risks=sorted(rule_id(risk["code"]) for risk in hit),
    )
    return Installable(row["name"], installed, contents, redacted, row["risks"] or ())


def planned(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the files that are written beside the SKILL.md of a row of DOCUMENTS: blobs by path.

    A path that some file system does not take is changed as in an export.
    """
    free = FreePaths(None, [SKILL_FILE])
    return {free.of_file(file_path(blob["path"])): blob for blob in row["blobs"] or ()}


def not_kept(row: Mapping[str, Any]) -> list[str] | None:
    """Return the files of a row of DOCUMENTS whose bytes are not kept; None if its files are not known."""
    kept = {blob["path"] for blob in row["blobs"] or ()}
    files = row["files"]
    return None if files is None else sorted(file["path"] for file in files if file["path"] not in kept)


def is_current(installed: Installed, row: Mapping[str, Any]) -> bool:
    """Tell whether the document of a row of DOCUMENTS is what was installed, its licence included."""
    digests = {path: blob["sha256"] for path, blob in planned(row).items()}
    same = all(row[name] == getattr(installed, name) for name in ("raw_hash", "content_hash", "licence"))
    return same and {**digests, SKILL_FILE: installed.files.get(SKILL_FILE)} == installed.files


def rule_id(code: str) -> str:
    """Return the id of a risk rule, of the code of a finding or as a person wrote it."""
    return code.removeprefix(_RISK)


def require_rules(accepted: Collection[str]) -> list[str]:
    """Return the ids of risk rules that a person named; raise `WrongInput` for what is none."""
    ids = [rule_id(one) for one in accepted]
    known = {rule.id for rule in risk_rules().rules}
    if unknown := [one for one in ids if one not in known]:
        msg = f"--accept-risk {unknown[0]!r} is no rule of risks: `skillery show DOC_ID` prints risk.RULE"
        raise WrongInput(msg)
    return ids


def _hit(risks: Sequence[Mapping[str, Any]], refused: Collection[str]) -> list[Mapping[str, Any]]:
    return [r for r in risks if {r["severity"], rule_id(r["code"]).partition(".")[0]} & set(refused)]


def _refusal(doc_id: str, left: Sequence[Mapping[str, Any]]) -> str:
    risks = "; ".join(f"{risk['severity']} {risk['code']}, {risk['message']}" for risk in left)
    flags = " ".join(f"--accept-risk {rule_id(risk['code'])}" for risk in left)
    return f"{doc_id} is refused for its risks: {risks}. Read it; to install it all the same: {flags}"
