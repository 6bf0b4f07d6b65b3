"""The model cache: what is made of a model once on this machine, whatever root or run asks for it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.folder import user_cache
from storage.seal import folder_holds, seal_folder
from tasks.models.engine import SMALL, OpenVino, save_small, whole_model

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


def engine_of_graph(
    graph: bytes, weights: Callable[[], Weights], identity: Iterable[bytes], threads: int
) -> OpenVino:
    """Return the engine of a graph that is kept without weights.

    Both together are kept in the model cache, where it can be written: loading them takes a fourth of the
    time that putting them together takes.

    Args:
        graph: Of ONNX, all of whose weights are external.
        weights: Returns them by their names in the graph.
        identity: What changes whenever they do.
        threads: As of `OpenVino`.
    """
    digest = hashlib.sha256(graph)
    for part in identity:
        digest.update(part)

    def make(scratch: Path) -> None:
        made, whole = scratch / "made", scratch / "whole.onnx"
        made.mkdir()
        whole.write_bytes(whole_model(graph, weights()))
        save_small(whole, made / SMALL)
        seal_folder(made)

    try:
        kept = model_cache() / f"whole-{digest.hexdigest()[:24]}"
        if not (kept / SMALL).is_file() or not is_whole(kept):
            put_in_place(kept, make)
        return OpenVino(kept / SMALL, threads)
    except (OSError, RuntimeError) as error:  # OpenVINO raises the latter when a disk is full
        log.info("the model cache cannot be used (%s): the model is put together anew", error)
        return OpenVino(whole_model(graph, weights()), threads)
