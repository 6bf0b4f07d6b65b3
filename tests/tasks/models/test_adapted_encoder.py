"""The adapted encoder: the base model's states without adapters, others with them, whatever the length."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.models.adapted_encoder import WIDTH, AdaptedEncoder
from tasks.models.encoder import OnnxEncoder

TEXT = "Feed the sourdough at six, then turn the oven on."


def test_without_adapters_it_reads_as_the_default_encoder(minilm: OnnxEncoder) -> None:
    read = AdaptedEncoder({}).read(TEXT)
    whole, *parts = minilm.encode_parts(TEXT, read.spans)
    assert read.spans == minilm.offsets(TEXT)
    states = read.states / np.linalg.norm(read.states, axis=1, keepdims=True)
    assert (states * np.stack(parts)).sum(axis=1) == pytest.approx(np.ones(len(states)), abs=1e-3)
    assert whole @ states.mean(axis=0) > 0.5


def test_an_adapter_changes_what_its_matrix_makes() -> None:
    plain = AdaptedEncoder({}).read(TEXT).states
    noise = np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32)
    adapters = {"5.attention.output.dense.a": noise, "5.attention.output.dense.b": noise.T}
    assert np.abs(AdaptedEncoder(adapters).read(TEXT).states - plain).max() > 0.1


def test_a_long_text_has_a_state_for_each_token() -> None:
    encoder = AdaptedEncoder({})
    read = encoder.read("bread " * 600)
    assert read.states.shape == (600, WIDTH)
    assert len(read.spans) == 600
    assert encoder.read("").states.shape == (0, WIDTH)
