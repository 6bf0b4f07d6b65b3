"""The bundle of a served skill: each file with the digest of exactly the bytes that are served."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storage.errors import WrongInput
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition
from tasks.retrieve.skills.address import file_uri
from tasks.retrieve.skills.skill_file import SkillFile

MOST_FILES, MOST_BYTES = 512, 16 * 1024 * 1024  # of a skill that is listed file by file (SEP-2640)
MARKDOWN, FOLDER = "text/markdown", "inode/directory"


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file as it is served: its size in bytes, its SHA-256 in hexadecimal, and what reads it."""

    size: int
    sha256: str
    read: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class ServedBundle:
    """A skill as it is served; `whole` tells whether `files`, by path, are all that belongs to it."""

    doc_id: str
    skill: SkillFile
    origin: dict[str, Any]
    files: dict[str, ServedFile] = field(default_factory=dict)
    whole: bool = True

    @property
    def name(self) -> str:
        """Its name, as its front matter says it."""
        return str(self.skill.front_matter["name"])

    def uri(self, path: str = SKILL_FILE) -> str:
        """Return the address of one of its files."""
        return file_uri(self.doc_id, self.name, path)

    def entry(self) -> dict[str, Any]:
        """Return it as `skills/list` and `skills/get` have it.

        `resources` is `dynamic` where the bundle is unknown, lacks a file's bytes, or is over the limits.
        """
        listed = [
            {"uri": self.uri(path), "digest": f"sha256:{file.sha256}", "size": file.size}
            for path, file in self.files.items()
        ]
        within = len(self.files) <= MOST_FILES and sum(f.size for f in self.files.values()) <= MOST_BYTES
        resources = listed if self.whole and within else "dynamic"
        return {
            "uri": self.uri(), "frontmatter": self.skill.front_matter, "resources": resources,
            "_meta": self.meta(),
        }  # fmt: skip

    def meta(self) -> dict[str, Any]:
        """Return whose it is, and whether its SKILL.md was mended, under a key of our own."""
        return {"skillery/origin": {**self.origin, "mended": self.skill.mended}}

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; raises `WrongInput` if the skill has none at this path."""
        if path not in self.files:
            msg = f"{self.doc_id} serves no file {path[:200]!r}"
            raise WrongInput(msg)
        return self.files[path].read()

    def children(self, path: str) -> list[dict[str, Any]]:
        """Return the files and folders right below a folder; raises `WrongInput` if it is no folder."""
        begin = f"{path}/" if path else ""
        below = sorted({p[len(begin) :].partition("/")[::2] for p in self.files if p.startswith(begin)})
        if not below:
            msg = f"{self.doc_id} serves no folder {path[:200]!r}"
            raise WrongInput(msg)
        found = {name: not rest for name, rest in below}
        return [self._child(begin + name, name, is_file=is_file) for name, is_file in found.items()]

    def _child(self, path: str, name: str, *, is_file: bool) -> dict[str, Any]:
        if not is_file:
            return {"uri": self.uri(path), "name": name, "mimeType": FOLDER}
        told = {"uri": self.uri(path), "name": name, "size": self.files[path].size}
        return told if (media := mime_of(path)) is None else {**told, "mimeType": media}


def own_files(edition: Edition, skill: SkillFile) -> tuple[dict[str, ServedFile], bool]:
    """Return the files of a skill that are served, SKILL.md first, and whether they are all it has."""
    content = skill.content
    files = {SKILL_FILE: ServedFile(len(content), hashlib.sha256(content).hexdigest(), lambda: content)}
    for blob in edition.row["blobs"] or ():
        path = blob["path"]
        files[path] = ServedFile(blob["size"], blob["sha256"], lambda path=path: edition.read(path))  # type: ignore[misc]
    listed = edition.row["files"]
    return files, listed is not None and all(file["path"] in files for file in listed)


def mime_of(path: str) -> str | None:
    """Return the media type that a file's name tells, None if it tells none."""
    return MARKDOWN if path.lower().endswith(".md") else mimetypes.guess_type(path)[0]
