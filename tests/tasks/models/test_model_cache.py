from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.errors import TerminalError, WrongInput
from storage.folder import file_digest, threads_of_process
from storage.seal import seal_folder
from tasks.models.engine import COMPILED, SMALL, OpenVino
from tasks.models.hub import require_on_hub
from tasks.models.model_cache import (
    engine_of,
    engine_of_graph,
    is_whole,
    model_cache,
    put_in_place,
    remembered_digest,
)
from tasks.models.onnx_export import require_encoder
from tasks.models.preloaded import loaded_once
from tests.support.loopback import loopback_hub
from tests.support.models.tiny_models import WEIGHT, bare_graph
from tests.support.roots.skill_root import MINILM, Export

ROWS = np.array([[1, 2]], dtype=np.float32)


class Weights:
    """Gives the weight, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Mapping[str, np.ndarray]:
        self.asked += 1
        return {"weight": WEIGHT}


def found(weights: Weights, identity: bytes = b"one") -> list[list[float]]:
    return engine_of_graph(bare_graph(), weights, [identity], 1).run({"rows": ROWS}).tolist()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return model_cache()


def test_a_model_is_put_together_once_for_what_identifies_it() -> None:
    weights = Weights()
    assert found(weights) == found(weights) == (ROWS @ WEIGHT).tolist()
    assert weights.asked == 1
    found(weights, b"other")
    assert weights.asked == 2


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("model.blob", b"half"), ("digests.json", b""), ("digests.json", b"\xff"), ("digests.json", b"[1]"),
        pytest.param("model.blob", None, id="of another release"),  # only the engine can tell
    ],
)  # fmt: skip
def test_a_damaged_model_is_put_together_anew(cache: Path, file: str, data: bytes | None) -> None:
    weights = Weights()
    found(weights)
    damaged = next(cache.rglob(file))
    damaged.write_bytes(data or b"of another release")
    if data is None:
        seal_folder(damaged.parent)
    assert found(weights) == found(weights) == (ROWS @ WEIGHT).tolist()
    assert weights.asked == 2
    assert [child.name[:9] for child in cache.iterdir()] == ["compiled-"]


def test_what_was_compiled_answers_to_the_last_bit_as_what_compiles_it(
    cache: Path, minilm_export: Export
) -> None:
    small = (minilm_export.folder / SMALL).resolve()
    ids = np.arange(1000, 1040, dtype=np.int64).reshape(2, 20)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    plain = OpenVino(small, threads_of_process()).run(feed)
    assert np.array_equal(engine_of(small, 1).run(feed), plain)
    kept = [*cache.glob(f"compiled-*/{COMPILED}")]
    assert len(kept) == 1
    assert np.array_equal(OpenVino(kept[0], 1).run(feed), plain)  # whatever the threads it was compiled with


def test_a_digest_is_remembered_until_the_file_is_written_again(tmp_path: Path, cache: Path) -> None:
    weights = tmp_path / "weights"
    for text in (b"one", b"two"):
        weights.write_bytes(text)
        assert remembered_digest(weights) == remembered_digest(weights) == file_digest(weights)
    (note,) = cache.glob("digest-*.json")
    for damage in (b"half", b"[1]", b"\xff"):
        note.write_bytes(damage)
        assert remembered_digest(weights) == file_digest(weights)


def test_threads_that_ask_at_once_wait_for_one_that_loads() -> None:
    begun, loads = threading.Barrier(4), list[str]()

    @loaded_once(1)
    def load(name: str) -> object:
        loads.append(name)
        time.sleep(0.05)
        return object()

    def ask(_: int) -> object:
        begun.wait()
        return load("one")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1
    assert loads == ["one"]


def test_where_the_cache_cannot_be_written_the_model_is_put_together_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    weights = Weights()
    with caplog.at_level(logging.INFO):
        assert found(weights) == found(weights) == (ROWS @ WEIGHT).tolist()
    assert weights.asked == 2
    assert "cannot be used" in caplog.text


def test_what_another_process_made_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def make(scratch: Path) -> None:
        (scratch / "made").mkdir()
        target.mkdir()  # the other is faster
        (target / "theirs").touch()
        seal_folder(target)

    put_in_place(target, make)
    assert (target / "theirs").exists()
    assert is_whole(target)
    assert [child.name for child in tmp_path.iterdir()] == ["target"]


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    left, busy = tmp_path / "making-left", tmp_path / "making-busy"
    for folder in (left, busy):
        (folder / "made").mkdir(parents=True)
    os.utime(left, (time.time() - 90_000,) * 2)
    with pytest.raises(OSError, match="made"):
        put_in_place(tmp_path / "target", lambda _: None)
    put_in_place(tmp_path / "target", lambda scratch: (scratch / "made").mkdir())
    assert sorted(child.name for child in tmp_path.iterdir()) == ["making-busy", "target"]


ENDPOINT = "huggingface_hub.constants.ENDPOINT"


def test_a_model_that_the_hub_has_passes_and_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loopback_hub(["someone/model"], gated=["someone/gated"]) as address:
        monkeypatch.setattr(ENDPOINT, address)
        require_on_hub("someone/model")
        require_encoder(tmp_path, "someone/model")
        with pytest.raises(TerminalError, match=rf"'no/such' is no folder, and {address} has none of that"):
            require_on_hub("no/such")
        with pytest.raises(TerminalError, match=rf"accept them at {address}/someone/gated, and set HF_TOKEN"):
            require_on_hub("someone/gated")
        with pytest.raises(WrongInput, match=r"^SKILLERY_ENCODER=no/such: .*; unset it to use the default$"):
            require_encoder(tmp_path, "no/such")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["./mine", "/no/such/folder", "a/b/c", "a b", ""])
def test_what_is_neither_a_folder_nor_a_name_is_said_without_asking(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ENDPOINT, "http://127.0.0.1:9")
    with pytest.raises(TerminalError, match="a model of a hub is named OWNER/MODEL"):
        require_on_hub(name)


def test_a_hub_that_does_not_answer_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ENDPOINT, address)
        said = f"{address} cannot be asked for it: Failed to establish a new connection.*$"
        with pytest.raises(TerminalError, match=said):
            require_on_hub("someone/model")


def test_the_packaged_encoder_needs_no_hub_and_a_folder_without_weights_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ENDPOINT, "http://127.0.0.1:9")
    require_encoder(tmp_path, MINILM)
    with pytest.raises(WrongInput, match=r"SKILLERY_ENCODER=.*holds none of model\.safetensors"):
        require_encoder(tmp_path / "models", str(tmp_path))
