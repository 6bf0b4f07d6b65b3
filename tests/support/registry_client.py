"""A client of registries, written after their formats: it takes what an index names, and verifies it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote, urljoin
from urllib.request import urlopen

from tests.support.loopback import answering

Skills = dict[str, dict[str, bytes]]
"""The files of skills by path, by name."""


def fetched(url: str) -> bytes:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
        return bytes(answer.read())


def discovered(base: str) -> Skills:
    """Return the skills of the index of version 0.2.0; each archive must have its digest."""
    index = f"{base}/.well-known/agent-skills/index.json"
    found = {}
    for entry in json.loads(fetched(index))["skills"]:
        content = fetched(urljoin(index, entry["url"]))
        assert entry["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        found[entry["name"]] = _unpacked(content)
    return found


def discovered_before(base: str) -> Skills:
    """Return the skills of the index of version 0.1.0."""
    folder = f"{base}/.well-known/skills"
    return {
        entry["name"]: {p: fetched(f"{folder}/{entry['name']}/{quote(p)}") for p in entry["files"]}
        for entry in json.loads(fetched(f"{folder}/index.json"))["skills"]
    }


def added(url: str) -> Skills:
    """Return the plugins of a marketplace that is added by its address; each is one skill."""
    found = {}
    for plugin in json.loads(fetched(url))["plugins"]:
        source = plugin["source"]
        content = fetched(source["url"])
        assert (source["source"], plugin["strict"], plugin["skills"]) == ("archive", False, ["./"])
        assert source["sha256"] == hashlib.sha256(content).hexdigest()
        found[plugin["name"]] = _unpacked(content)
    return found


def added_from(folder: Path) -> Skills:
    """Return the plugins of a marketplace that is a folder."""
    plugins = json.loads((folder / ".claude-plugin" / "marketplace.json").read_bytes())["plugins"]
    places = {plugin["name"]: folder / plugin["source"] for plugin in plugins}
    return {name: files_in(place) for name, place in places.items()}


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _unpacked(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """Serve a folder as any web server does, and give its address."""
    with answering(partial(_Quiet, directory=str(folder))) as address:
        yield address
