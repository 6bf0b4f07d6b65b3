"""Resolves which licence a skill has, from its own folder outwards; every contradiction is a finding."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from storage.schemas import Finding, LicenceFile, RawDocument
from tasks.refine.licences.names import Stated, licence_tables, spdx_expression, stated_licence
from tasks.refine.licences.texts import recognise
from tasks.refine.text.rules import finding
from tasks.refine.text.strict_yaml import Value

LicenceRule = Literal["folder-file", "frontmatter", "parent-file", "repository"]
# LICENSE, LICENSE.md, LICENSE-MIT, COPYING.LESSER; not license_check.py.
_LICENCE_NAME = re.compile(r"(?:licen[cs]e|copying)(?:[-_. ][\w.+-]*)?", re.IGNORECASE)
_NO_TEXT = re.compile(r"\.(?:py|js|ts|sh|json|ya?ml|toml|go|rs|html?|png|svg|pdf)$", re.IGNORECASE)
_SPECIFIC = re.compile(r"-(?:only|or-later)\b")


@dataclass(frozen=True, slots=True)
class Licence:
    """A document's licence (SPDX expression or None), the rule that decided, and findings.

    A rule without a licence means that a file found by this rule sets terms that were not recognised.
    """

    licence: str | None
    rule: LicenceRule | None
    findings: tuple[Finding, ...]


def skill_folder(path: str | None) -> str:
    """Return the folder of a skill within its repository (empty: its root) from its source's path."""
    parts = [part for part in (path or "").replace("\\", "/").split("/") if part not in {"", "."}]
    if parts and parts[-1].casefold().endswith(".md"):
        parts.pop()
    return "/".join(parts)


def nearest_licence_files(path: str | None, files: Sequence[LicenceFile]) -> list[LicenceFile]:
    """Return the licence files of a skill's folder, or of the nearest folder above it that has some."""
    return next((found for found in _files_by_distance(path, files) if found), [])


def _files_by_distance(path: str | None, files: Sequence[LicenceFile]) -> list[list[LicenceFile]]:
    """Return licence files by folder: the skill's own (maybe none), then those of the folders above."""
    here, by_folder = skill_folder(path), defaultdict[str, list[LicenceFile]](list)
    for file in files:
        folder, name = posixpath.split(file.path)
        if _LICENCE_NAME.fullmatch(name) and not _NO_TEXT.search(name):
            by_folder[folder].append(file)
    own = by_folder.pop(here, [])
    above = (folder for folder in by_folder if not folder or here.startswith(f"{folder}/"))
    return [own, *(by_folder[folder] for folder in sorted(above, key=len, reverse=True))]


def _of_files(files: Sequence[LicenceFile]) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the licence that the files of one folder give together: all of several apply."""
    found, known = [], set[str]()
    for file in files:
        read = recognise(file.text)
        if read.licence is None:
            found.append(finding("licence.unrecognised", f"{file.path}: {read.note}"))
            continue
        known.add(read.licence)
        shown = f"{file.path}: {read.licence}, confidence {read.confidence:.2f}"
        found.append(finding("licence.recognised", shown))
    if refused := sorted(known.intersection(licence_tables()["refusals"])):
        return refused[0], tuple(found)
    if not known or any(f.code == "licence.unrecognised" for f in found):
        return None, tuple(found)
    joined = " AND ".join(sorted(known))
    return spdx_expression(joined) or joined, tuple(found)


def _conflict(licence: str, rule: str, place: str, other: str | None) -> tuple[Finding, ...]:
    """Return a finding if another place names another licence; "only" and "or later" make no difference."""
    if not other or _SPECIFIC.sub("", other) == _SPECIFIC.sub("", licence):
        return ()
    return (finding("licence.conflict", f"{licence} by {rule}, {other} by {place}"),)


def _declared(value: Value | None, stated: Stated) -> tuple[Finding, ...]:
    if not value:
        return ()
    shown = " ".join(str(value).split())[:300]
    found = [finding("licence.declared", shown)]
    if stated.licence is None and not stated.points_to_file:
        found.append(finding("licence.unknown-name", f"{shown}: no licence that SPDX or the table knows"))
    return tuple(found)


def resolve_licence(raw: RawDocument, declared: Value | None) -> Licence:
    """Return a document's licence by the first of four rules that decides.

    1. `folder-file`: a licence file in the skill's folder.
    2. `frontmatter`: the value declared there.
    3. `parent-file`: a licence file in the nearest folder above that has one.
    4. `repository`: what the forge says of the whole repository.

    A file whose text is not recognised ends the search without a licence: its terms apply, so neither files
    further out count nor what the author declares, unless that is a refusal. The forge does not count if the
    author points to a file that is missing. The declared value stays a finding as written.
    """
    stated = stated_licence(declared)
    own, *above = _files_by_distance(raw.path, raw.licence_files)
    here, on_here = _of_files(own)
    found = (*_declared(declared, stated), *on_here)
    if here:
        against = _conflict(here, "folder-file", "frontmatter", stated.licence)
        return Licence(here, "folder-file", (*found, *against))
    if stated.licence and (not own or stated.licence in licence_tables()["refusals"]):
        return Licence(stated.licence, "frontmatter", found)
    if own:
        return Licence(None, "folder-file", found)
    further = _further_out(raw, above[0] if above else [], points_to_file=stated.points_to_file)
    return replace(further, findings=(*found, *further.findings))


def _further_out(raw: RawDocument, nearest: list[LicenceFile], *, points_to_file: bool) -> Licence:
    forge = spdx_expression(raw.repo_licence) if raw.repo_licence else None
    if nearest:
        licence, found = _of_files(nearest)
        against = _conflict(licence, "parent-file", "repository", forge) if licence else ()
        return Licence(licence, "parent-file", (*found, *against))
    if points_to_file:
        return Licence(None, None, (finding("licence.file-missing"),))
    return Licence(forge, "repository" if forge else None, ())
