"""The one place that decides what is unchanged since the last reading, from a source down to a document.

Each level that is unchanged saves the requests and the reading of those below it:

1. a source: its version, read with the same options (`same_source`);
2. a repository: its listed rows (`list_digest`), then its ETag or commit (`comparable`, `etag_of`);
3. a skill in a changed repository: git's ids of its files (`skill_digest`, `same_skill`);
4. a document that was read: its bytes, files and licences (`document_digest`, in its row of `seen`).

What was remembered is invalidated before other text is written (`Source.invalidate`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from storage.schemas import RawDocument
from tasks.crawl.source.bundle import BundledSkill, DocumentLimits
from tasks.crawl.source.tombstones import REASON as FORGOTTEN

VERDICT = "registry.verdict"  # the finding on a skill that its registry has judged
INCOMPLETE = "incomplete"  # the state of a repository of which some files are left to the next run
# States of a repository that the last run did not reach, or not to its end.
UNREACHED = ("failed", "missing", "denied", INCOMPLETE)


def same_source(
    remembered: Mapping[str, Any], version: str, limit: int | None, options: Mapping[str, object]
) -> bool:
    """Tell whether the last reading covered this version, to the limit of this one, without a failure."""
    same = remembered.get("version") == version and remembered.get("options") == options
    # A forgotten document stays out whenever it is met; any other failure may have passed.
    if set(remembered.get("failed") or {}) - {FORGOTTEN} or not same:
        return False
    if remembered.get("state") == "complete":
        return True
    return bool(remembered.get("state") == "limited" and limit is not None and limit <= remembered["limit"])


def list_digest(listed: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of a repository's rows in a list: their skills, and when each was updated."""
    rows = [[r["rest"], r["updated_at"] and r["updated_at"].isoformat()] for r in listed]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:24]


def comparable(
    known: Mapping[str, Any], digest: str, listed: Iterable[Mapping[str, Any]], limits: DocumentLimits
) -> bool:
    """Tell whether an unchanged commit means that all listed skills of a repository are unchanged.

    It does not if the list has changed, of which `digest` tells, or if files were read under other limits.
    `known` is the repository's row of REPOSITORIES, `listed` its rows of LISTED now.
    """
    same_list = known.get("listed") == digest and known.get("state") in ("ok", *UNREACHED)
    # Older versions took what an archive lacked for lost.
    same_list = same_list and all(row["outcome"] != "not-in-archive" for row in listed)
    return same_list and all(row["digest"].startswith(_kept(limits)) for row in listed if row["digest"])


def etag_of(known: Mapping[str, Any], key: str) -> str | None:
    """Return the ETag of the last answer, which holds only for the credential with that key."""
    return known.get("etag") if known.get("etag_key") == key else None


def skill_digest(skill: BundledSkill, folder_sha: str, limits: DocumentLimits) -> str:
    """Return the digest of git's ids of a skill's folder, its files and the licences above it.

    Before it stand the limits of what is kept of its files.
    """
    # A mirror may leave folders out of its trees; the ids of the files tell the same.
    parts = [folder_sha, skill.entry.key, *(f"{e.path} {e.key}" for e in (*skill.files, *skill.licences))]
    return _kept(limits) + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _kept(limits: DocumentLimits) -> str:
    return f"{limits.kept_files}/{limits.kept_bytes}:"


def same_skill(row: Mapping[str, Any] | None, doc_id: str, digest: str) -> bool:
    """Tell whether the row of LISTED that leads to a skill is of a reading with this `skill_digest`."""
    return row is not None and (row["outcome"], row["doc_id"], row["digest"]) == ("ok", doc_id, digest)


def document_digest(raw: RawDocument) -> str:
    """Return the digest of a document's bytes, bundle, path, licence and verdicts: whether it changed.

    The bundle counts with digests of all its files and the paths of those that are kept. A commit that leaves
    the document as it was does not change the digest, although the URL names it.
    """
    beside = [asdict(f) for f in raw.files or ()] + [asdict(f) for f in raw.licence_files]
    url = raw.url.replace(raw.commit, "") if raw.url and raw.commit else raw.url
    missing = [raw.content is None, raw.files is None]
    known: list[Any] = [raw.raw_hash, missing, beside, raw.path, url]
    known += [raw.repo_licence] * (raw.repo_licence is not None)
    # Only where there are any: documents that were seen before bytes were kept must not all change.
    known += [[file.path for file in raw.contents]] * bool(raw.contents)
    verdicts = [f.message for f in raw.findings if f.code == VERDICT]  # a registry's, of the same bytes
    known += [verdicts] * bool(verdicts)
    parts = json.dumps(known, sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()
