"""Zip archives of commits as the forge makes them, kept on disk once made."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from tests.support.marketplace.objects import Blob, Commit, RandomBlob, Tree

_UNIX = 3


class Shelf:
    """Makes each archive once and keeps it in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def archive(self, commit: Commit, root: str) -> Path:
        """Return the zip file of a commit, with one folder of this name at its root."""
        path = self._folder / f"{commit.sha}-{root}.zip"
        if not path.exists():
            _write(path, commit, root)
        return path


def _write(path: Path, commit: Commit, root: str) -> None:
    when = time.gmtime(commit.at)[:6]
    with ZipFile(path, "w") as archive:
        archive.comment = commit.sha.encode()
        archive.writestr(_folder(f"{root}/", when), b"")
        for name, node in commit.tree.walk(f"{root}/"):
            if isinstance(node, Tree) or node.kind == "commit":
                archive.writestr(_folder(f"{name}/", when), b"")
            else:
                _add(archive, name, node, when)


def _folder(name: str, when: tuple[int, ...]) -> ZipInfo:
    info = ZipInfo(name, _date(when))
    info.external_attr, info.create_system = 0x10, 0
    return info


def _date(when: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second = when
    return year, month, day, hour, minute, second


def _add(archive: ZipFile, name: str, blob: Blob, when: tuple[int, ...]) -> None:
    info = ZipInfo(name, _date(when))
    info.compress_type = ZIP_STORED if isinstance(blob, RandomBlob) else ZIP_DEFLATED
    info.file_size = blob.size
    with archive.open(info, "w", force_zip64=blob.size > zipfile.ZIP64_LIMIT) as member:
        for piece in blob.pieces():
            member.write(piece)
    # As git archive has it: links and executables carry their mode, plain files none at all. Set afterwards,
    # because opening a member puts a mode of its own in the place of none.
    info.create_system, info.external_attr = 0, 0
    if blob.mode != "100644":
        mode = int(blob.mode, 8) | (0o777 if blob.mode == "120000" else 0)
        info.create_system, info.external_attr = _UNIX, mode << 16


def root_name(repo: str, ref: str) -> str:
    """Return the root folder of an archive of this ref: tag `v1.2` gives `repo-1.2`, `a/b` `repo-a-b`."""
    short = ref.removeprefix("refs/heads/")
    if ref.startswith("refs/tags/"):
        tag = ref.removeprefix("refs/tags/")
        short = tag[1:] if tag[:1] == "v" and tag[1:2].isdigit() else tag
    return f"{repo}-{short.replace('/', '-')}"
