"""Print a skill, what changed in one, and which are installed, for a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flows.commands.console import counts, say, table

_ORIGIN = ("source", "commit", "ref", "path", "url", "author", "licence", "licence_rule", "language")
_TIMES = ("fetched_at", "first_seen_at", "stale_since", "revision", "run_id")


def print_skill(found: Mapping[str, Any]) -> None:
    """Print what is known of a skill, without its body."""
    said = f" ({found['doc_id']} leads to it)" if "alias_of" in found else ""
    say(f"{found.get('alias_of', found['doc_id'])}{said}", style="bold")
    say(f"{found['name']}: {found['description'] or 'no description may be shown'}", indent=2)
    for name in (*_ORIGIN, *_TIMES):
        if found[name] is not None:
            say(f"{name.replace('_', ' ')}: {found[name]}", indent=2)
    if found["licence_class"] != "allow":
        say(f"its text is withheld: its licence is of class {found['licence_class']}", style="red", indent=2)
    if found["front_matter"]:
        say("front matter", style="bold")
        for key, value in found["front_matter"].items():
            say(
                f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}",
                indent=2,
            )
    for kind in ("risks", "findings"):
        _findings(kind, found[kind])
    _files(found["files"])
    for kind, facts in found["known_files"].items():
        say(kind, style="bold")
        for name, said in facts.items():
            say(f"{name}: {said}", indent=2)
    if found["aliases"]:
        ids = [f"{alias['doc_id']} ({alias['kind']})" for alias in found["aliases"]]
        say(f"aliases: {', '.join(ids)}")


def _findings(title: str, found: Sequence[Mapping[str, Any]]) -> None:
    say(title if found else f"{title}: none", style="bold")
    _risks("", found)


def _risks(before: str, found: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each risk or finding; without its message where the policy keeps that back."""
    for one in found:
        said = "" if one["message"] is None else f": {one['message']}"
        say(f"{before}{one['severity']} {one['code']}{said}", indent=2)
        if one.get("why") and one["severity"] != "info":
            say(f"{one['why']} To accept it: {one['accept']}", indent=4)


def _files(files: Sequence[Mapping[str, Any]] | None) -> None:
    if not files:
        say("files beside SKILL.md: " + ("not known" if files is None else "none"), style="bold")
        return
    rows = [(f["path"], f"{f['size']:,}", f["sha256"][:12], _kept(f)) for f in files]
    table("files beside SKILL.md", ("path", "bytes", "sha256", "kept"), rows)


def _kept(file: Mapping[str, Any]) -> str:
    if file["kept"] is None:
        return "no"
    return "yes" if file["kept"]["sha256"] == file["sha256"] else "redacted"


def print_differences(found: Mapping[str, Any]) -> None:
    """Print what changed between two revisions of a skill."""
    a, b = (f"{r['revision']} of {r['fetched_at'][:10]}" for r in (found["a"], found["b"]))
    say(f"{found['doc_id']}: {a} to {b}", style="bold")
    if not found["changed"]:
        alone = "; it has no other revision" if found["revisions"] == 1 else ""
        say(f"nothing changed{alone}", indent=2)
    for name, (was, now) in found["fields"].items():
        say(f"{name}: {was} -> {now}", indent=2)
    for change, risks in found["risks"].items():
        _risks(f"risk {change}: ", risks)
    _lines((found["text"] or "").splitlines())
    _changes(found["files"])


_MOST_LINES = 200  # of differences that a dry run prints of a skill


def _changes(files: Sequence[Mapping[str, Any]], most: int | None = None) -> None:
    """Print what changed in files, of differences at most so many lines in all."""
    for file in files:
        was, now = ("none" if size is None else f"{size:,}" for size in file["sizes"])
        say(f"{file['change']} {file['path']} (bytes: {was} -> {now})", style="bold")
        lines = (file["difference"] or "").splitlines()
        shown = lines[:most]
        _lines(shown)
        if most is not None:
            most -= len(shown)
        if len(shown) < len(lines):
            say(f"{len(lines) - len(shown):,} more lines differ: --json has them", indent=2)


def _lines(lines: Sequence[str]) -> None:
    for line in lines:
        style = {"+": "green", "-": "red"}.get(line[:1]) if line[:3] not in ("+++", "---") else "bold"
        say(line, style=style)


def print_installed(found: Mapping[str, Any]) -> None:
    """Print what was installed, what of it is not the source's, and its risks."""
    _mended(found)
    for skill in found["skills"]:
        files = f"{len(skill['files'])} file{'s' * (len(skill['files']) != 1)}"
        say(f"{skill['state']}: {skill['path']} ({files})", style="bold")
        say(f"from {skill['doc_id']}, licence {skill['licence'] or 'unknown'}", indent=2)
        _written(skill)
        _risks("risk: ", skill["risks"])
    say(f"{found['lock']} says what was installed")


def _written(skill: Mapping[str, Any]) -> None:
    """Print how what is written of a skill differs from the skill at its source."""
    lines = {
        "its name cannot be a folder's": [skill["called"]] if skill["called"] != skill["name"] else [],
        "keys were redacted in": skill["redacted"],
        "under another path": [f"{path} as {written}" for path, written in skill["renamed"].items()],
        "not executable, as no file is: run them by their interpreter or chmod": skill["not_executable"],
        "not kept, so not written": skill["not_written"] or [],
        "not looked into, so nobody knows what they do": skill["unscanned"],
        "skills of their own inside, not written": [f["message"] for f in skill["findings"] if _nested(f)],
        "a signature is with it": [f"{what}: {told}" for what, told in skill["signature"].items()],
    }
    for what, which in lines.items():
        if which:
            say(f"{what}{'' if what.endswith(' in') else ':'} {', '.join(which)}", style="yellow", indent=2)
    if skill["not_written"] is None:
        said = "its source does not tell which files it has: SKILL.md alone is written"
        say(said, style="yellow", indent=2)
    _risks("finding: ", (found for found in skill["findings"] if not _nested(found)))


def _nested(finding: Mapping[str, Any]) -> bool:
    return bool(finding["code"] == "bundle.nested")


def print_outdated(found: Mapping[str, Any]) -> None:
    """Print the state of each installed skill."""
    _mended(found)
    for skill in found["skills"]:
        _state(skill)
        if "reason" in skill:
            say(f"update would leave it as it is: {skill['reason']}", style="red", indent=2)
        _risks("risk added: ", (skill.get("risks") or {}).get("added", ()))
        _edits(skill)
    if not found["skills"]:
        say(f"nothing is installed in {found['folder']}")


def _edits(skill: Mapping[str, Any]) -> None:
    for edit in skill["edited"]:
        say(f"{edit['change']} by hand: {edit['path']}", indent=2)


def print_updated(found: Mapping[str, Any]) -> None:
    """Print the differences of each skill that was, or would be, updated, and why others were not."""
    _mended(found)
    for skill in found["skills"]:
        _state(skill)
        if "reason" in skill:
            say(f"it stays as it is: {skill['reason']}", style="red", indent=2)
        if "renamed" in skill:
            _written(skill)
        if licence := skill.get("licence"):
            say(f"licence: {licence[0] or 'unknown'} -> {licence[1] or 'unknown'}", indent=2)
        _risks("risk added: ", skill.get("risks", {}).get("added", ()))
        _changes(skill.get("files", ()), _MOST_LINES if found["dry_run"] else None)
        _edits(skill)
    dry = "; nothing was written (--dry-run)" if found["dry_run"] else ""
    say(f"{counts(Counter(skill['state'] for skill in found['skills']))}{dry}")


def print_removed(found: Mapping[str, Any]) -> None:
    """Print what was removed."""
    _mended(found)
    for skill in found["skills"]:
        edits = f", with what was edited: {len(skill['edited'])}" if skill["edited"] else ""
        say(f"removed: {found['folder']}/{skill['name']}, which was {skill['doc_id']}{edits}")


def _state(skill: Mapping[str, Any]) -> None:
    was, now = ((one or {}).get("content_hash", "none")[:12] for one in (skill["from"], skill["to"]))
    changed = f", {was} -> {now}" if skill["state"] in ("outdated", "updated", "merged") else ""
    say(f"{skill['state']}: {skill['name']} ({skill['doc_id']}{changed})", style="bold")
    if "held" in skill:
        say(skill["held"], style="red", indent=2)


def _mended(found: Mapping[str, Any]) -> None:
    for name, done in found["mended"].items():
        say(f"an earlier command was killed: {name} is {done}, and its lock says so now", style="yellow")


def print_published(found: Mapping[str, Any]) -> None:
    """Print what a registry holds, what was written of it, and how clients reach it."""
    say(f"{found['out']}: {found['skills']:,} skills of {found['version']}", style="bold")
    if found["left_out"]:
        say(f"left out: {counts(found['left_out'])}", indent=2)
    if found["no_plugins"]:
        say(
            f"in no marketplace, since Claude would load more than the skill: {found['no_plugins']:,}",
            indent=2,
        )
    told = f"written: {found['written']:,} files, {found['bytes']:,} bytes; removed: {found['removed']:,}"
    say(f"{told}{'; signed' if found['signed'] else ''}; {found['seconds']} s", indent=2)
    if found["public_url"] is None:
        say("to be added to Claude by address, it needs --public-url https://HOST", indent=2)
    else:
        say(f"install from it: skillery install NAME --from {found['public_url']}", indent=2)


def print_verified(found: Mapping[str, Any]) -> None:
    """Print each skill that differs from the locks, with its differences, and how many do not."""
    for skill in found["skills"]:
        for one in skill["differences"]:
            say(f"{skill['name']}: {one['change']} {one['path']}", style="red")
    states = counts(Counter(skill["state"] for skill in found["skills"]))
    say(f"{found['folder']}: {states}", style="bold")


def print_signed(found: Mapping[str, Any]) -> None:
    """Print whether a registry is as the holder of a key signed it."""
    if found["verified"]:
        say(f"{found['registry']}: every file is as the holder of {found['key']} signed it", style="bold")
    else:
        say(f"{found['registry']}: not as the holder of {found['key']} signed it", style="red")
        say(found["difference"], indent=2)


def print_frozen(found: Mapping[str, Any]) -> None:
    """Print what was installed as the locks say, and why other skills were not."""
    _mended(found)
    for skill in found["skills"]:
        why = f": {skill['reason']}" if "reason" in skill else ""
        say(f"{skill['state']}: {skill['name']}{why}", style="red" if why else "")
