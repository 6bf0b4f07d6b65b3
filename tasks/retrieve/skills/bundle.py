"""The bundle of a served skill: its address, its SKILL.md as it is served, and the digest of each file.

The address of a skill's file is `skill://<id>/<name>/<path>` (Skills extension of MCP, SEP-2640). The first
segment is the document's id: its parts percent-encoded and joined by `+`, so that no skill lies in the folder
of another one, and the id can be read back. The second is the skill's name.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import yaml

from storage.errors import UnknownDocument, WrongInput
from tasks.crawl.source.identity import doc_key
from tasks.refine.frontmatter.frontmatter import MAX_FRONTMATTER_CHARS
from tasks.refine.text.strict_yaml import StrictYamlError, load_strict
from tasks.retrieve.revisions.edition import SKILL_FILE, Edition

SCHEME = "skill://"
_NO_SEGMENT = re.compile(r"[/\\\x00-\x1f\x7f]")


class Address(NamedTuple):
    """The parts of an address; `path` is that of a file or folder of the skill, empty for its own folder."""

    doc_id: str
    name: str
    path: str


def is_segment(name: str) -> bool:
    """Tell whether a name can be one segment of an address."""
    return bool(name) and name not in {".", ".."} and not _NO_SEGMENT.search(name)


def folder_uri(doc_id: str, name: str) -> str:
    """Return the address of a skill's folder; whatever its id holds, it has two segments."""
    whole = "+".join(quote(part, safe="") for part in doc_id.split("/"))
    return f"{SCHEME}{whole}/{quote(name, safe='')}"


def file_uri(doc_id: str, name: str, path: str) -> str:
    """Return the address of a file or folder of a skill."""
    return f"{folder_uri(doc_id, name)}/{quote(path, safe='/')}" if path else folder_uri(doc_id, name)


def parse_uri(uri: str) -> Address:
    """Return the parts of an address, whose first segment may be in any letter case.

    Raises:
        UnknownDocument: It is not written as `file_uri` writes addresses, so that nothing is served there.
    """
    host, _, rest = uri.removeprefix(SCHEME).partition("/")
    name, _, path = rest.partition("/")
    found = Address("/".join(unquote(part) for part in host.split("+")), unquote(name), unquote(path))
    try:
        own_host, _, own_rest = file_uri(*found).removeprefix(SCHEME).partition("/")
        same = own_rest == rest and doc_key(own_host) == doc_key(host)
    except UnicodeEncodeError:  # half of a surrogate pair
        same = False
    if not uri.startswith(SCHEME) or not is_segment(found.name) or not same:
        msg = f"nothing is served at {uri[:200]!r}: addresses are those that skills/list and skills/get give"
        raise UnknownDocument(msg)
    return found


_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class JsonLoader(_BASE):  # type: ignore[misc] # whether libyaml is there decides which class it is
    """Reads YAML as JSON holds it: a date stays the text that its author wrote."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as the class above has it)
        first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in _BASE.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A SKILL.md as served, and the front matter that these bytes hold; `mended`: it was rewritten."""

    content: bytes
    front_matter: dict[str, Any]
    mended: bool


def skill_file_of(edition: Edition) -> SkillFile | None:
    """Return the SKILL.md of a skill as it is served, None if its bytes are not kept.

    Where its front matter is no YAML that any parser reads alike, or lacks a name or a description, it is
    written anew of what refine read of it; the body is the refined one then.
    """
    if edition.skill_file is None:
        return None
    stated = front_matter_of(edition.skill_file)
    if stated is not None:
        return SkillFile(edition.skill_file, stated, mended=False)
    fields = {**edition.front_matter, "name": edition.row["name"], "description": edition.row["description"]}
    front = yaml.safe_dump(fields, allow_unicode=True, sort_keys=False, width=1_000_000)
    content = f"---\n{front}---\n\n{edition.row['body']}\n".encode()
    stated = front_matter_of(content)
    return None if stated is None else SkillFile(content, stated, mended=True)


def front_matter_of(content: bytes) -> dict[str, Any] | None:
    """Return the front matter of a SKILL.md as JSON; None if hosts may read it otherwise, or not at all.

    It must be UTF-8 and begin with a closed block of YAML 1.1 without anchors, repeated keys or values that
    JSON has no form for, which gives `name` and `description` as texts.
    """
    try:
        found = _FRONT.match(content.decode())
        if found is None or len(found[1]) > MAX_FRONTMATTER_CHARS:
            return None
        _, repeated = load_strict(found[1])
        fields = yaml.load(found[1], Loader=JsonLoader)  # noqa: S506 (made of the safe one)
        texts = [fields.get(name) for name in ("name", "description")] if isinstance(fields, dict) else [None]
        stated: dict[str, Any] = json.loads(json.dumps(fields, allow_nan=False))
    except (ValueError, TypeError, RecursionError, StrictYamlError, yaml.YAMLError):
        return None
    # JSON has no keys but texts: what it turns into one was another value.
    same = stated == fields
    return stated if same and not repeated and all(isinstance(t, str) and t.strip() for t in texts) else None


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
            raise WrongInput(f"{self.doc_id} serves no file {path[:200]!r}")
        return self.files[path].read()

    def children(self, path: str) -> list[dict[str, Any]]:
        """Return the files and folders right below a folder; raises `WrongInput` if it is no folder."""
        begin = f"{path}/" if path else ""
        below = sorted({p[len(begin) :].partition("/")[::2] for p in self.files if p.startswith(begin)})
        if not below:
            raise WrongInput(f"{self.doc_id} serves no folder {path[:200]!r}")
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
