"""The model cache: what is made of a model once on this machine, whatever root or run asks for it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.folder import digest_once, put_file, threads_of_process, user_cache
from storage.seal import SEAL, folder_holds, seal_folder, sha256_of
from tasks.models.engine import COMPILED, SMALL, Engine, OpenVino, compiles_as, save_small, whole_model
from tasks.models.preloaded import loaded_once

log = logging.getLogger(__name__)
_SCRATCH, _DAY = "making-", 86_400.0  # seconds; no model takes as long to make
Weights = Mapping[str, npt.NDArray[np.floating]]


def model_cache() -> Path:
    """Return the folder of the model cache, which may be deleted at any time."""
    return user_cache() / "models"


def is_whole(folder: Path) -> bool:
    """Tell whether the files of a folder are as they were sealed; a folder without a seal is."""
    whole = folder_holds(folder)
    if not whole:
        log.warning("%s is damaged: it is made anew", folder)
    return whole


def put_in_place(
    target: Path, make: Callable[[Path], None], whole: Callable[[Path], bool] = is_whole
) -> None:
    """Let `make` fill a scratch folder's `made`, and rename that to `target`, in one step.

    What is there and `whole` stays: another process may have put it there meanwhile. Scratch folders of
    processes that were killed go after a day.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):  # another process removes it, or has just renamed it
            if left.stat().st_mtime < time.time() - _DAY:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_SCRATCH) as scratch:
        make(Path(scratch))
        old = Path(scratch) / "old"
        if target.exists() and not whole(target):
            target.rename(old)
        try:
            (Path(scratch) / "made").rename(target)
        except OSError:
            if not target.is_dir():
                raise


def link_folder(source: Path, target: Path) -> None:
    """Make `target` a folder of the same files, which take no room of their own on the same disk."""
    target.mkdir()
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:  # another disk, or one that knows no links
            shutil.copy2(file, target / file.name)


def remembered_digest(file: Path) -> str:
    """Return the SHA-256 of a file, which is read only if it was written or moved since it was last asked."""
    now = file.stat()
    told = [now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns]
    try:
        note = model_cache() / f"digest-{sha256_of(os.fsencode(file.absolute()))[:24]}.json"
        with contextlib.suppress(OSError, ValueError):
            held = json.loads(note.read_bytes())
            if isinstance(held, dict) and held.get("file") == told:
                return str(held.get("sha256"))
        put_file(note, json.dumps({"file": told, "sha256": (digest := digest_once(file))}).encode())
    except OSError:  # the cache cannot be written
        return digest_once(file)
    return digest


@loaded_once(2)
def engine_of(model: Path, _changed: int) -> Engine:
    """Return the engine of a model's file, loaded once a process for all its encoders."""
    threads = threads_of_process()
    try:
        seal = (model.parent / SEAL).read_bytes()
    except OSError:  # an export from before there were seals
        return OpenVino(model, threads)
    return _compiled(seal + model.name.encode(), lambda _: model, threads)


def engine_of_graph(
    graph: bytes, weights: Callable[[], Weights], identity: Iterable[bytes], threads: int
) -> OpenVino:
    """Return the engine of a graph that is kept without weights, which the model cache holds as compiled.

    All weights of the graph, one of ONNX, are external: `weights` returns them by name, and `identity` is
    what changes whenever they do.
    """

    def source(scratch: Path) -> Path:
        whole = scratch / "whole.onnx"
        whole.write_bytes(whole_model(graph, weights()))
        save_small(whole, scratch / SMALL)
        return scratch / SMALL

    return _compiled(b"".join([graph, *identity]), source, threads)


def _compiled(identity: bytes, source: Callable[[Path], Path], threads: int) -> OpenVino:
    """Return the engine of a model, compiled once for this processor where the model cache can be written.

    `source` returns the model's file, which it may write to the folder that it is given.
    """

    def make(scratch: Path) -> None:
        made = scratch / "made"
        made.mkdir()
        OpenVino(source(scratch), threads).save(made / COMPILED)
        seal_folder(made)

    try:
        kept = model_cache() / f"compiled-{sha256_of(compiles_as().encode() + identity)[:24]}"
        if not (kept / COMPILED).is_file() or not is_whole(kept):
            put_in_place(kept, make)
        try:
            return OpenVino(kept / COMPILED, threads)
        except RuntimeError:  # it is sealed, but not what this release writes
            put_in_place(kept, make, lambda _: False)
            return OpenVino(kept / COMPILED, threads)
    except (OSError, RuntimeError) as error:  # OpenVINO raises the latter, of a full disk too
        log.info("the model cache cannot be used (%s): the model is compiled anew", error)
    with tempfile.TemporaryDirectory() as scratch:
        return OpenVino(source(Path(scratch)), threads)
