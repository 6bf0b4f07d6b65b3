"""The contents of a skill's folder: an edition's files by the paths under which they are written."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import WrongInput
from storage.schemas import Finding
from tasks.crawl.source.identity import RECREATED, doc_key, parse_remote, repository_name, shown_spec
from tasks.refine.export.paths import FreePaths, file_path
from tasks.refine.risks.hits import GRAVE, HELD, UNSCANNED, RiskHit, risk_hits, rule_id, told_risk
from tasks.refine.risks.rules import risk_rules
from tasks.refine.signatures import signature_facts
from tasks.retrieve.install.lock import Installed, is_folder_name
from tasks.retrieve.install.skills_folder import digests_of
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition

_TOLD = ("bundle.", "identity.apart", RECREATED, HELD)  # begin the codes of findings that an install tells
_NOT_IN_NAME = re.compile(r"[^\w.@+ ]+")
_CARRIED = (
    "doc_id", "source", "repo", "repo_id", "url", "commit", "raw_hash", "content_hash", "licence",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Installable:
    """A skill that may be installed: the name of its folder, what the lock says of it, and its bytes by path.

    `redacted` are the paths of those whose bytes are not the source's: they held what looks like a key.
    """

    name: str
    installed: Installed
    contents: dict[str, bytes]
    redacted: list[str]
    row: Mapping[str, Any]

    @property
    def risks(self) -> list[Mapping[str, Any]]:
        """The risks found in it."""
        return [told_risk(risk) for risk in self.row["risks"] or ()]

    @property
    def unscanned(self) -> list[str]:
        """The files that nothing could look into, or not wholly: what they do is not known."""
        hits = self.installed.hits or ()
        return sorted({hit.file for hit in hits if hit.file and hit.rule.startswith(UNSCANNED)})

    def told(self) -> dict[str, Any]:
        """Return how what is written differs from the skill at its source, as JSON takes it."""
        found = self.row["findings"] or ()
        return {
            "called": self.row["name"], "renamed": self.installed.renamed, "redacted": self.redacted,
            "not_written": self.installed.not_written, "unscanned": self.unscanned,
            "not_executable": sorted(p for p, content in self.contents.items() if content[:2] == b"#!"),
            "findings": [finding for finding in found if finding["code"].startswith(_TOLD)],
            "signature": signature_facts(self.contents, self.row),
        }  # fmt: skip


def prepare(
    edition: Edition, refused: Collection[str], accepted: Collection[str],
    before: Installed | None = None, called: str | None = None,
) -> Installable:  # fmt: skip
    """Return what is to be written of an edition.

    Files whose bytes are not kept are named in the lock. Of a skill whose files are not known, SKILL.md alone
    is written; the lock says that too. Raises `Withheld` if the licence policy keeps its text back;
    `WrongInput` if it is no skill, no folder can be called after it, or it holds a risk that is refused;
    `StorageError` if a file of it is missing or damaged. `refused`: severities and groups of risk rules that
    are refused; what came since `before` is refused from `warning` on. `accepted`: rules, by `rule_id`, whose
    risks are not refused. `before` is what was installed of it; what was accepted then, and is there
    unchanged, stays accepted. `called` is the folder's name; None: after the skill's.
    """
    row = edition.row
    edition.require_text()
    if row["kind"] != "skill" or edition.skill_file is None:
        msg = f"{row['doc_id']}, of kind {row['kind']}, has no SKILL.md: only skills can be installed"
        raise WrongInput(msg)
    name = _named(row, called)
    blobs = planned(row)
    contents = {path: edition.read(blob["path"]) for path, blob in blobs.items()}
    contents[SKILL_FILE] = edition.skill_file
    fetched = {file["path"]: file["sha256"] for file in row["files"] or ()}
    redacted = [p for p, blob in blobs.items() if fetched.get(blob["path"], blob["sha256"]) != blob["sha256"]]
    digests = digests_of(dict(sorted(contents.items())))
    if digests[SKILL_FILE] != row["raw_hash"]:
        redacted.insert(0, SKILL_FILE)
    risks, classes = row["risks"] or (), set(refused)
    hits = risk_hits([Finding(**risk) for risk in risks], contents)
    asked = {hit.rule for hit in {*hits} - _accepted(before, hits, digests)} - {*accepted}
    grave = [r for r in risks if {r["severity"], rule_id(r["code"]).partition(".")[0]} & classes]
    # Whoever installed it has seen its risks, but not those that came since.
    news = new_risks(before, risks, hits) if before else []
    grave += [risk for risk in news if risk["severity"] in GRAVE and risk not in grave]
    if left := [risk for risk in grave if rule_id(risk["code"]) in asked]:
        raise WrongInput(_refusal(row["doc_id"], left, before))
    installed = Installed(
        **{n: row[n] for n in _CARRIED} | {"source": shown_spec(row["source"])},  # people commit it
        revision=edition.revision.revision,
        files=digests,
        not_written=not_kept(row),
        risks=sorted(risk["code"] for risk in risks),
        accepted_risks=sorted({rule_id(risk["code"]) for risk in grave}),
        renamed={blob["path"]: path for path, blob in blobs.items() if blob["path"] != path},
        hits=hits,
        called=called is not None,
        artifact=tree if (tree := row["tree_sha"] or "").startswith("sha256:") else None,
    )
    return Installable(name, installed, contents, redacted, row)


def folder_name(name: str) -> str:
    """Return what the folder of a skill is called: its name, without what some file system refuses."""
    return name if is_folder_name(name) else file_path(_NOT_IN_NAME.sub("-", name).strip("-. "))


def _named(row: Mapping[str, Any], called: str | None) -> str:
    name = folder_name(row["name"]) if called is None else called
    if not is_folder_name(name):
        said = f"the name of {row['doc_id']}, {row['name']!r}," if called is None else repr(called)
        raise WrongInput(f"{said} cannot name a folder: choose another name for it, --as NAME")
    return name


def _accepted(before: Installed | None, hits: Sequence[RiskHit], digests: Mapping[str, str]) -> set[RiskHit]:
    """Return what was accepted when a skill was installed; of an older lock, hits in files as they were."""
    if before is None:
        return set()
    unchanged = (hit for hit in hits if before.files.get(hit.file, "") == digests.get(hit.file))
    return {h for h in (unchanged if before.hits is None else before.hits) if h.rule in before.accepted_risks}


def new_risks(
    before: Installed, risks: Sequence[Mapping[str, Any]], hits: Sequence[RiskHit]
) -> list[Mapping[str, Any]]:
    """Return those of a skill's risks that hit something which was not there before."""
    if before.hits is None:
        return [risk for risk in risks if risk["code"] not in before.risks]
    new = {hit.rule for hit in {*hits}.difference(before.hits)}
    return [risk for risk in risks if rule_id(risk["code"]) in new]


def is_same_publisher(was: Installed, now: Mapping[str, Any]) -> bool:
    """Tell whether who published what was installed published a row of DOCUMENTS, or another edition, too.

    A repository is known by the id that its forge gave it, whatever it is called and whoever led there;
    where one side has none by the place on its forge that its source names, or by its name at one source.
    What is not known any more, or was not known, is another one.
    """
    if was.repo_id is not None and now["repo_id"] is not None:
        return bool(was.repo_id == now["repo_id"])
    specs = [shown_spec(source) for source in (was.source, now["source"])]
    places = [*map(_place, specs)]
    if specs[0] != specs[1] and places[0] is not None:
        return places[0] == places[1]
    if was.repo_id is not None:
        return False
    if was.repo is not None:
        return was.repo == now["repo"] and specs[0] == specs[1]
    return now["repo_id"] is None and specs[0] == specs[1]


def _place(spec: str) -> str | None:
    """Return the repository on a forge that a source is; None: it is no single one."""
    if spec.startswith("github:"):
        spec = f"git+https://github.com/{spec[7:]}"
    url = spec.removeprefix("git+")
    if url == spec or url.startswith("file:"):
        return None
    try:
        ref = parse_remote(url).path.partition("@")[2]
        return doc_key(repository_name(url.removesuffix(f"@{ref}")))
    except WrongInput:
        return None


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
    """Tell whether the document of a row of DOCUMENTS has the text, files and licence that were installed."""
    digests = {path: blob["sha256"] for path, blob in planned(row).items()}
    same = all(row[name] == getattr(installed, name) for name in ("raw_hash", "content_hash", "licence"))
    return same and {**digests, SKILL_FILE: installed.files.get(SKILL_FILE)} == installed.files


def require_rules(accepted: Collection[str]) -> list[str]:
    """Return the ids of risk rules that a person named; raise `WrongInput` for what is none."""
    ids = [rule_id(one) for one in accepted]
    known = {rule.id for rule in risk_rules().rules}
    if unknown := [one for one in ids if one not in known]:
        msg = f"--accept-risk {unknown[0]!r} is no rule of risks: `skillery show DOC_ID` prints risk.RULE"
        raise WrongInput(msg)
    return ids


def _refusal(doc_id: str, left: Sequence[Mapping[str, Any]], before: Installed | None) -> str:
    rules = dict.fromkeys(rule_id(risk["code"]) for risk in left)
    risks = "; ".join(f"{risk['severity']} {risk['code']}, {risk['message']}" for risk in left)
    flags = " ".join(f"--accept-risk {rule}" for rule in rules)
    other = " (not what was accepted before)" if before and rules.keys() & set(before.accepted_risks) else ""
    return f"{doc_id} is refused for its risks{other}: {risks}. Read it; to install it all the same: {flags}"
