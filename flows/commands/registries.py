"""Registries: what is served is published as one; skills are installed from others, verified, had again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.commands.installing import InstallSettings, as_dicts, told_of
from flows.settings import Settings, load
from storage.errors import SkilleryError, WrongInput
from storage.lance.served import read_licences, require_served
from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.source.unchanged import document_digest
from tasks.retrieve.install.contents import Installable, prepare
from tasks.retrieve.install.lock import LOCK_FILE, Installed
from tasks.retrieve.install.locked_sources import LockedSources, folder_of
from tasks.retrieve.install.skills_folder import SkillsFolder, open_skills_folder, said
from tasks.retrieve.install.skills_lock import WELL_KNOWN, Entry, entry_of, folder_hash, read_skills_lock
from tasks.retrieve.install.verification import differences
from tasks.retrieve.registry.indexes import is_plugin, normal_base
from tasks.retrieve.registry.offers import served_rows
from tasks.retrieve.registry.signature import SIGNATURE, RegistrySigner, difference
from tasks.retrieve.registry.static import StaticRegistry
from tasks.retrieve.revisions.edition import Edition, refined_edition
from tasks.retrieve.revisions.history import Revision
from tasks.retrieve.revisions.show import open_edition


def publish_registry(
    root: Root, out: str, *, licences: Sequence[str] = (), sources: Sequence[str] = (),
    risks: Sequence[str] = (), public_url: str | None = None, keep: int = 3, sign: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write what a root serves as a registry, and tell what was written.

    The keywords are the options of `skillery publish`. What is refused to `install` stays out; without
    `public_url` there is no marketplace to be added by address, and without `sign` an older signature goes.
    Raises `NotPublished` if nothing is served; `WrongInput` if `out` is the root, or holds what Skillery did
    not write; a filter leaves nothing; or it cannot be signed with that key, or holds a file that none of
    these would be; `StorageError` if a file cannot be read or written.
    """
    started, place = time.perf_counter(), _place(root, out)
    signer = None if sign is None else RegistrySigner(place, sign)
    base = None if public_url is None else normal_base(public_url)
    served = require_served(root)
    rows = served_rows(root, served, licences=licences, sources=sources, risks=risks)
    signed = signer is not None and signer.is_signed()
    registry = StaticRegistry(place, anew=signer is not None and not signed)
    offers, left_out = registry.publish(root, served, rows, load(InstallSettings).refuse, base, keep)
    if signer is not None and not (signed and not registry.written and not registry.removed):
        if foreign := [path for path in registry.foreign() if path != SIGNATURE]:
            msg = f"{place.at(foreign[0])} is none of the registry's files: remove it, then sign"
            raise WrongInput(msg if len(foreign) == 1 else f"{msg} ({len(foreign)} are there)")
        signer.sign()
    elif signer is None and place.exists(SIGNATURE):
        place.delete(SIGNATURE)  # it is of other files
    return {
        "out": place.uri, "version": served.version, "skills": len(offers), "left_out": left_out,
        "no_plugins": sum(not is_plugin(offer) for offer in offers.values()),
        "written": len(registry.written), "bytes": registry.bytes, "removed": len(registry.removed),
        "public_url": base, "signed": signer is not None, "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def _place(root: Root, out: str) -> Root:
    """Return where a registry goes; raise `WrongInput` if the root lies there, above it or below it."""
    place = Root(out)
    one, other = f"{place.uri.rstrip('/')}/", f"{root.uri.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        msg = f"--out {out} and the root {root.uri} lie in each other: a registry has a place of its own"
        raise WrongInput(msg)
    return place


def editions_from(root: Root, settings: Settings, url: str, names: Collection[str]) -> list[Edition]:
    """Return skills of a registry for well-known discovery, verified by its digests and refined here.

    The licence policy is the one that a run has left in the root, else that of the settings. Raises
    `SourceError` or `SourceUnavailable` if it cannot be read, and `WrongInput` if it has no such skill, or
    what it gave for one was refused; the message says why.
    """
    from tasks.crawl.registries.well_known import (  # noqa: PLC0415 (what is held is not asked for)
        WellKnownSource,
        normal_url,
        site_of,
    )
    from tasks.crawl.source.base import CrawlContext, Missed  # noqa: PLC0415

    now, site = datetime.now(UTC), site_of(normal_url(url))
    ids = {f"{site}/{name}": name for name in names}  # what is nested in an artifact has a longer id
    found: dict[str, RawDocument] = {}
    why: dict[str, str] = {}
    # What a root remembers of a registry would leave out what is unchanged.
    with tempfile.TemporaryDirectory(prefix="skillery-from-") as folder:
        context = CrawlContext(Root(folder), now, settings=settings.crawl())
        for item in WellKnownSource(url, context, names=names).read():
            if isinstance(item, Missed):
                why |= {ids[doc_id]: item.detail for doc_id in item.doc_ids if doc_id in ids}
            elif isinstance(item, RawDocument) and item.doc_id in ids:
                found[ids[item.doc_id]] = item
            elif isinstance(item, Dropped) and item.doc_id in ids:
                why[ids[item.doc_id]] = item.detail
    if lacking := [name for name in names if name not in found]:
        raise WrongInput(f"{lacking[0]!r} of {url}: {why.get(lacking[0], 'its index names no such skill')}")
    class_of = _class_of(root, settings)
    return [refined_edition(root, _revision(raw, now), raw, class_of) for raw in (found[n] for n in names)]


def _revision(raw: RawDocument, now: datetime) -> Revision:
    return Revision(
        document_digest(raw), raw.doc_id, raw.source, raw.commit, raw.raw_hash, now, run_id="", part=""
    )


def _class_of(root: Root, settings: Settings) -> Callable[[str | None], str]:
    """Return what classes licences: the root's last run, else the settings."""
    if (held := read_licences(root)) is not None:
        return held.class_of
    from tasks.refine.licences.policy import LicencePolicy, licence_class  # noqa: PLC0415 (its library)

    policy = LicencePolicy(**settings.licence_policies()["serve"])
    return lambda licence: licence_class(licence, policy)


def verify_skills(folder: Path, project: Path | None, others: Collection[Path]) -> dict[str, Any]:
    """Tell how the files of a folder of skills differ from its locks; nothing is asked for elsewhere.

    `skills-lock.json` lies in `project`, if there is one; its skills may lie in `others` too.

    Raises `WrongInput` if nothing is there to be verified, and `StorageError` if a lock is damaged.
    """
    found = differences(folder, project, others)
    if not found:
        raise WrongInput(
            f"nothing is installed in {folder}, and no lock names anything: name a folder by --to or --agent"
        )
    skills = [
        {"name": name, "state": "differs" if edits else "verified", "differences": as_dicts(edits)}
        for name, edits in found.items()
    ]
    verified = not any(found.values())
    return {"folder": str(folder), "lock": str(folder / LOCK_FILE), "verified": verified, "skills": skills}


def verify_registry(folder: Path, key: Path) -> dict[str, Any]:
    """Tell whether a registry in a folder is as the holder of a key signed it, and if not how it differs.

    Raises `WrongInput` as `tasks.retrieve.registry.signature.difference`.
    """
    found = difference(Root(folder), key)
    return {"registry": str(folder), "key": str(key), "verified": found is None, "difference": found}


def install_frozen(
    root: Root, folder: Path, project: Path | None, settings: Settings, rules: InstallSettings
) -> dict[str, Any]:
    """Install what the locks of a folder say, and nothing else; what is there as they say stays.

    Each skill has its `state`, and a `reason` where it is `failed`: it was edited, is held nowhere with these
    bytes, or is refused by now. Raises `WrongInput` if no lock says anything, and `Locked` or `StorageError`
    as `installing.install_skills`.
    """
    shared = {} if project is None else read_skills_lock(project)
    with open_skills_folder(folder, create=True) as skills:
        wanted: dict[str, Installed | None] = {**dict.fromkeys(shared), **skills.skills}
        if not wanted:
            msg = f"neither {folder / LOCK_FILE} nor a skills-lock.json says anything: install skills first"
            raise WrongInput(msg)
        edits = differences(folder, project)
        base, told = project or folder, list[dict[str, Any]]()
        entries = {
            name: (installed and entry_of(installed, {}, base)) or shared.get(name, {})
            for name, installed in wanted.items()
            if edits[name]
        }
        sources = LockedSources(settings.crawl(), datetime.now(UTC), base, entries.values())
        for name, installed in sorted(wanted.items()):
            if not edits[name]:
                told.append({"name": name, "state": "unchanged"})
            elif (folder / name).exists():
                reason = f"it differs from its lock: {said(edits[name])}"
                told.append({"name": name, "state": "failed", "reason": reason})
            else:
                held = _held(root, name, installed, entries[name], sources, settings)
                told.append(_restored(skills, name, installed, shared.get(name, {}), held, rules))
        return {**told_of(skills), "skills": told}


def _restored(
    skills: SkillsFolder, name: str, installed: Installed | None, entry: Entry,
    held: Iterator[Edition | str], rules: InstallSettings,
) -> dict[str, Any]:  # fmt: skip
    why = "its lock names no source that is read here"
    for found in held:
        if not isinstance(found, Edition):
            why = found
            continue
        try:
            accepted = () if installed is None else installed.accepted_risks
            prepared = prepare(found, rules.refuse, accepted, installed, called=name)
        except SkilleryError as error:
            why = str(error)
            continue
        if _is_exact(prepared, installed, entry):
            skills.put(name, installed or prepared.installed, prepared.contents)
            return {"name": name, "state": "installed"}
        why = f"{found.row['source']} gives other bytes than the lock names"
    return {"name": name, "state": "failed", "reason": why}


def _is_exact(prepared: Installable, installed: Installed | None, entry: Mapping[str, Any]) -> bool:
    if installed is not None:
        return prepared.installed.files == installed.files
    return folder_hash(prepared.contents) == entry.get("computedHash")


def _held(
    root: Root, name: str, installed: Installed | None, entry: Entry, sources: LockedSources,
    settings: Settings,
) -> Iterator[Edition | str]:  # fmt: skip
    """Yield what a lock may mean, of the root, then of the source that it names, or why there is none."""
    if installed is None:
        ref = entry.get("ref")
        wanted = ("/".join(filter(None, (str(entry.get("source")), folder_of(entry)))), ref and str(ref))
    else:
        wanted = (installed.doc_id, installed.revision)
    try:
        yield open_edition(root, *wanted)[0]
    except SkilleryError as error:
        yield str(error)
    try:
        if entry.get("sourceType") == WELL_KNOWN and (url := entry.get("sourceUrl")):
            from tasks.crawl.registries.well_known import site_of  # noqa: PLC0415

            name = name if installed is None else installed.doc_id.removeprefix(f"{site_of(str(url))}/")
            yield from editions_from(root, settings, str(url), [name])
        elif (raw := sources.skill(entry)) is not None:
            yield refined_edition(root, _revision(raw, datetime.now(UTC)), raw, _class_of(root, settings))
    except SkilleryError as error:
        yield str(error)
