from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from storage.errors import ModelMismatch, TerminalError
from tasks.models import onnx_export as export
from tasks.models.encoder import OnnxEncoder, card_of
from tasks.models.onnx_export import PACKAGED, export_ahead, exported_encoder, resolve
from tests.support.loopback import loopback_hub
from tests.support.models.tiny_models import save_bi_encoder
from tests.support.roots.skill_root import MINILM, Export

FAKE_EXPORT = """#!{python}
import json, sys
from pathlib import Path
name, source, weights, scratch = sys.argv[-4:]
target = Path(scratch) / "made"
target.mkdir()
card = {{"name": name, "revision": weights, "dimension": 3, "max_tokens": 8, "pooling": "mean"}}
(target / "encoder.json").write_text(json.dumps(card))
with Path({log!r}).open("a") as log:
    log.write(name + "\\n")
"""


@pytest.fixture
def exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that takes no time to export; returns the file in which it notes each export."""
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "python"
    script.write_text(FAKE_EXPORT.format(python=sys.executable, log=str(log)), "utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return log


def model(folder: Path, weights: bytes) -> str:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def test_the_packaged_model_is_exported_without_torch_in_this_process(minilm_export: Export) -> None:
    card = card_of(minilm_export.folder)
    assert minilm_export.loaded == []
    assert card == {
        "name": MINILM, "revision": PACKAGED[MINILM][2], "dimension": 384, "max_tokens": 256,
        "pooling": "mean",
    }  # fmt: skip
    files = "digests.json encoder.json model.bin model.onnx model.xml tokenizer.json"
    assert sorted(os.listdir(minilm_export.folder)) == files.split()


def refuse(*_: object) -> None:
    raise OSError


def test_an_export_is_made_once_leaves_nothing_beside_it_and_is_shared_by_the_roots_of_a_machine(
    tmp_path: Path, exporter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = model(tmp_path / "mine", b"one")
    one, again, other = (exported_encoder(tmp_path / root / "models", name) for root in "aab")
    assert one == again
    assert os.listdir(tmp_path / "a" / "models") == [one.name]
    assert os.path.samefile(one / "encoder.json", other / "encoder.json")
    monkeypatch.setattr(os, "link", refuse)  # as between two disks
    third = exported_encoder(tmp_path / "c" / "models", name)
    assert not os.path.samefile(one / "encoder.json", third / "encoder.json")
    assert card_of(third) == card_of(one)
    assert exporter.read_text() == f"{name}\n"


def test_an_export_that_is_made_ahead_waits_in_the_cache_for_the_root(tmp_path: Path, exporter: Path) -> None:
    """Of a packaged encoder alone."""
    models = tmp_path / "models"
    export_ahead(models, model(tmp_path / "mine", b"one"))
    assert exporter.read_text() == ""
    export_ahead(models, MINILM)
    assert not models.exists()
    exported_encoder(models, MINILM)
    export_ahead(models, MINILM)
    assert exporter.read_text() == f"{MINILM}\n"


def test_a_failure_to_export_ahead_waits_for_who_needs_it(
    tmp_path: Path, exporter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PACKAGED, MINILM, (*PACKAGED[MINILM][:2], "0" * 64))
    export_ahead(tmp_path / "models", MINILM)
    assert exporter.read_text() == ""
    with pytest.raises(ModelMismatch, match=r"SHA-256 .* expected 0000"):
        exported_encoder(tmp_path / "models", MINILM)


def no_home() -> Path:
    msg = "Could not determine home directory."
    raise RuntimeError(msg)


@pytest.mark.parametrize("there", [True, False], ids=["no folder", "no home"])
def test_a_machine_whose_cache_cannot_be_written_exports_for_the_root(
    tmp_path: Path, exporter: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    (tmp_path / "file").touch()
    if there:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", no_home)
    assert card_of(exported_encoder(tmp_path / "models", model(tmp_path / "mine", b"one")))["dimension"] == 3


def test_what_a_crashed_export_left_is_exported_anew(tmp_path: Path, exporter: Path) -> None:
    name = model(tmp_path / "mine", b"one")
    folder = exported_encoder(tmp_path / "models", name)
    exports = (file.parent for file in (tmp_path / "cache" / "skillery" / "models").glob("*/encoder.json"))
    for place in [folder, *exports]:
        (place / "encoder.json").unlink()
        (place / "model.onnx").write_bytes(b"half")
    assert exported_encoder(tmp_path / "models", name) == folder
    assert os.listdir(folder) == ["encoder.json"]
    assert exporter.read_text() == f"{name}\n" * 2
    (folder / "encoder.json").unlink()  # and the machine's is whole
    assert card_of(exported_encoder(tmp_path / "models", name))["name"] == name
    assert exporter.read_text() == f"{name}\n" * 2


def test_a_model_of_the_same_weights_and_other_settings_has_an_export_of_its_own(
    tmp_path: Path, exporter: Path
) -> None:
    name = model(tmp_path / "mine", b"one")
    for n, settings in enumerate(("{}", '{"max_seq_length": 64}', '{"max_seq_length": 64}')):
        (tmp_path / "mine" / "sentence_bert_config.json").write_text(settings)
        exported_encoder(tmp_path / f"models-{n}", name)
    assert exporter.read_text() == f"{name}\n" * 2


def test_an_export_that_answers_otherwise_than_its_model_is_refused(
    tmp_path: Path, minilm_export: Export, minilm: OnnxEncoder
) -> None:
    folder = Path(shutil.copytree(minilm_export.folder, tmp_path / "copy"))
    (folder / "digests.json").unlink()
    right, card = minilm.encode([export._PROBE]), card_of(folder)
    with pytest.raises(ModelMismatch, match=r"does not answer as the model does \(cosine -1\.000\)"):
        export._finish(folder, card, -right)
    assert not (folder / "digests.json").exists()
    export._finish(folder, card, right)
    assert (folder / "digests.json").read_bytes() == (minilm_export.folder / "digests.json").read_bytes()


@pytest.mark.slow  # minutes, and some 10 GB of memory
def test_an_encoder_of_more_than_2_gb_is_exported_with_its_weights_and_answers(tmp_path: Path) -> None:
    name = str(save_bi_encoder(tmp_path / "large", width=1024, vocabulary=570_000))
    folder = exported_encoder(tmp_path / "models", name)
    assert (folder / "model.onnx_data").stat().st_size > 2_300_000_000
    assert set(json.loads((folder / "digests.json").read_text())) >= {"model.onnx", "model.onnx_data"}
    baking, bees = OnnxEncoder(folder).encode(["bake bread in the oven", "wax of the hive"])
    assert baking @ bees < 0.999
    (folder / "model.onnx_data").write_bytes(b"cut short")
    assert exported_encoder(tmp_path / "models", name) == folder
    assert np.allclose(OnnxEncoder(folder).encode(["wax of the hive"])[0], bees, atol=1e-5)


def test_folders_are_named_for_the_model_and_differ_with_name_and_weights(
    tmp_path: Path, exporter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [model(tmp_path / "a" / "mine", b"one"), model(tmp_path / "b" / "mine", b"one")]
    hub = ["someone/mine", "another/mine"]
    with loopback_hub(hub) as address:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        folders = {n: exported_encoder(tmp_path / "models", n) for n in [*names, *hub]}
    (tmp_path / "a" / "mine" / "model.safetensors").write_bytes(b"two")
    changed = exported_encoder(tmp_path / "models", names[0])
    assert len({*folders.values(), changed}) == 5
    assert all(re.fullmatch(r"mine-[0-9a-f]{12}", f.name) for f in [*folders.values(), changed])
    assert [card_of(folders[n])["name"] for n in folders] == [*names, *hub]
    monkeypatch.chdir(names[1])
    assert exported_encoder(tmp_path / "models", ".").name.startswith("mine-")


def test_the_export_does_not_import_what_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "sentence_transformers.py").write_text("raise SystemExit('these weights are none')", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(library))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hashlib.py").write_text("raise SystemExit('picked up the wrong hashlib')", "utf-8")
    name = model(tmp_path / "mine", b"no weights at all")
    with pytest.raises(TerminalError, match=r"exporting encoder .*mine to ONNX failed: these weights are"):
        exported_encoder(tmp_path / "models", name)
    assert not (tmp_path / "models").exists()
    left = os.listdir(tmp_path / "cache" / "skillery" / "models")
    assert [name for name in left if not name.startswith("digest-")] == []


def test_a_name_leads_to_a_folder_then_to_packaged_weights_then_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve("someone/else") == ("someone/else", "")
    source, weights = resolve(MINILM)
    assert (Path(source) / "model.safetensors").is_file()
    assert weights == PACKAGED[MINILM][2]
    monkeypatch.chdir(tmp_path)
    model(tmp_path / MINILM, b"mine")
    assert resolve(MINILM)[0] == MINILM
    with pytest.raises(ModelMismatch, match=r"holds none of model\.safetensors"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_max_tokens": True}, "unknown"),
    ],
)
def test_pooling_of_older_models_is_read_off_their_flags(config: dict[str, object], pooling: str) -> None:
    assert export._old_pooling(json.loads(json.dumps(config))) == pooling
