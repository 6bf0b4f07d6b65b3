"""The indexes of a registry: for well-known discovery in both versions, and as Claude's marketplaces."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter

from storage.errors import WrongInput
from storage.lance.served import Served
from storage.root import Root
from tasks.crawl.registries.discovery import (
    FOLDER,
    INDEX,
    OLDER_FOLDER,
    OLDER_INDEX,
    as_json,
    index_entry,
    index_json,
    older_index_json,
    registry_name,
    told_description,
)
from tasks.retrieve.registry.offers import OfferedSkill, named, offers_of, served_rows

ARCHIVES = "archives"  # below the folder of the index
MARKETPLACE, FOLDER_MARKETPLACE = "marketplace.json", ".claude-plugin/marketplace.json"
_OURS = "skillery"  # the name of a marketplace, with its host behind it


# What Claude loads of a plugin's folder beside the skill: it would run hooks, servers and programs.
_LOADED = re.compile(
    r"(?:bin|commands|hooks|monitors|output-styles|themes|workflows)/|agents/.*\.md$"
    r"|\.?(?:mcp|lsp)\.json$|(?:settings|plugin)\.json$",
    re.IGNORECASE,
)


def is_plugin(offer: OfferedSkill) -> bool:
    """Tell whether a skill's folder may be a plugin, of which nothing else than the skill is loaded."""
    return not any(map(_LOADED.match, offer.files))


def archive_path(offer: OfferedSkill) -> str:
    """Return where an offer's archive lies in a registry."""
    return f"{FOLDER}/{ARCHIVES}/{offer.archive}"


def older_path(name: str, path: str) -> str:
    """Return where a file of a skill lies in a registry, in the older form."""
    return f"{OLDER_FOLDER}/{name}/{path}"


@dataclass(frozen=True, slots=True)
class Release:
    """What a registry offers of one version of a root, in little more memory than its indexes take.

    `heads` holds each index with its tag by its path, the marketplace as `hosted_at` takes it; `documents`
    says whose each archive is, `archives` which is that of each name, and `noted` is for the next version.
    """

    heads: dict[str, tuple[bytes, str]]
    documents: dict[str, str]
    archives: dict[str, str]
    noted: bytes


_NOTED = TypeAdapter(dict[str, OfferedSkill])


def released(uri: str, served: Served, refused: Collection[str], noted: bytes | None) -> Release:
    """Return what a version of a root offers.

    `uri`: address of the root, which a process of its own may be given. `refused` is as for `contents_of`.
    `noted` is that of a release before; what is unchanged since is not read again.
    """
    root, known = Root(uri), _NOTED.validate_json(zlib.decompress(noted)) if noted else {}
    found = offers_of(root, served, refused, known, served_rows(root, served))
    by_name = named(offer for _, offer, _ in found if isinstance(offer, OfferedSkill))
    files = {**index_files(by_name), MARKETPLACE: _hosted(by_name)}
    return Release(
        {path: (content, tag_of(content)) for path, content in files.items()},
        {offer.archive: offer.doc_id for offer in by_name.values()},
        {name: offer.archive for name, offer in by_name.items()},
        zlib.compress(_NOTED.dump_json({offer.doc_id: offer for offer in by_name.values()})),
    )


def tag_of(content: bytes) -> str:
    """Return the entity tag of a file."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def index_files(offers: Mapping[str, OfferedSkill]) -> dict[str, bytes]:
    """Return the two indexes for well-known discovery by their paths; addresses in them are relative."""
    entries = (
        index_entry(name, o.description, f"{ARCHIVES}/{o.archive}", o.digest, {"skillery/origin": o.origin})
        for name, o in offers.items()
    )
    older = ((name, offer.description, offer.files) for name, offer in offers.items())
    return {INDEX: index_json(entries), OLDER_INDEX: older_index_json(older)}


def hosted_marketplace(offers: Mapping[str, OfferedSkill], base: str) -> bytes:
    """Return the marketplace to be added by its address: each plugin is a skill's archive below `base`."""
    return hosted_at(base, _hosted(offers))


def _hosted(offers: Mapping[str, OfferedSkill]) -> bytes:
    """Return the marketplace whose archives are named relative to where it will lie."""

    def source(_: str, offer: OfferedSkill) -> dict[str, str]:
        sha256 = offer.digest.removeprefix("sha256:")
        return {"source": "archive", "url": archive_path(offer), "sha256": sha256}

    return _marketplace(offers, source)


def hosted_at(base: str, made: bytes) -> bytes:
    """Return a marketplace that was made for any base with the addresses below this one."""
    # Within a string each quote has a backslash before it, so that nobody's text looks like these.
    name = f"{_OURS}-{registry_name(urlsplit(base).hostname or '')}".strip("-")
    made = made.replace(f'"name":"{_OURS}"'.encode(), f'"name":"{name}"'.encode(), 1)
    return made.replace(b'"url":"', f'"url":{json.dumps(base)[:-1]}/'.encode())


def folder_marketplace(offers: Mapping[str, OfferedSkill]) -> bytes:
    """Return the marketplace of a folder, or of a git repository: each plugin is a skill's folder there."""
    return _marketplace(offers, lambda name, _: f"./{OLDER_FOLDER}/{name}")


def _marketplace(offers: Mapping[str, OfferedSkill], source: Callable[[str, OfferedSkill], Any]) -> bytes:
    # `strict` says that the entry is the manifest: an archive is a skill's folder, as all clients take it.
    plugins = [
        {
            "name": name, "description": told_description(name, offer.description),
            "version": offer.digest[7:19], "source": source(name, offer), "strict": False, "skills": ["./"],
            **({"license": offer.origin["licence"]} if "licence" in offer.origin else {}),
            **({"homepage": offer.origin["url"]} if "url" in offer.origin else {}),
        }
        for name, offer in offers.items()
        if is_plugin(offer)
    ]  # fmt: skip
    about = {"description": "Skills refined by Skillery; each is its author's."}
    return as_json({"name": _OURS, "owner": {"name": "Skillery"}, "metadata": about, "plugins": plugins})


def normal_base(url: str) -> str:
    """Return the address at which a registry is reached, without a slash at its end.

    Raises `WrongInput` if it is no address of http or https, or holds more than host, port and path.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable or parts.query or parts.fragment or "@" in parts.netloc:
        msg = f"--public-url {url!r} is no address of a registry: give https://HOST or https://HOST/PATH"
        raise WrongInput(msg)
    return f"{parts.scheme}://{parts.netloc}{quote(parts.path.rstrip('/'), safe='/%')}"
