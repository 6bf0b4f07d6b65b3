from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from tasks.models.engine import OpenVino, batches_of, whole_model
from tests.support.models.bare_graph import WEIGHT, bare_graph
from tests.support.paths import PROJECT


def test_a_graph_without_weights_computes_with_those_it_is_given() -> None:
    engine = OpenVino(whole_model(bare_graph(), {"weight": WEIGHT + 1}), threads=1)
    rows = np.array([[1, 2], [0, 1]], dtype=np.float32)
    assert engine.inputs == {"rows"}
    assert engine.run({"rows": rows}).tolist() == (rows @ (WEIGHT + 1)).tolist()


def test_a_weight_that_is_not_given_is_named() -> None:
    with pytest.raises(KeyError, match="weight"):
        whole_model(bare_graph(), {"other": WEIGHT})


def test_the_weights_become_part_of_the_model() -> None:
    model = onnx.load_model_from_string(whole_model(bare_graph(), {"weight": WEIGHT}))
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), WEIGHT)


_FIRST_CALLS = """
import sys, threading
import numpy as np
from tasks.models.engine import OpenVino, whole_model
from tests.support.models.bare_graph import WEIGHT, bare_graph

engine = OpenVino(whole_model(bare_graph(), {"weight": WEIGHT}), threads=2)
begin, row = threading.Barrier(4), np.ones((1, 2), np.float32)

def run() -> None:
    begin.wait()
    engine.run({"rows": row})

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
"""


def test_threads_that_make_the_first_calls_of_a_process_at_once_all_end() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", _FIRST_CALLS], cwd=PROJECT, check=True, timeout=60)


@given(st.lists(st.integers(0, 300), max_size=200))
def test_every_window_is_in_one_batch_of_its_length(lengths: list[int]) -> None:
    batches = batches_of(lengths)
    assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
    assert all(len({lengths[at] for at in batch}) == 1 for batch in batches)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= 1024 for batch in batches)
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=100))
def test_windows_of_one_length_stay_in_order(lengths: list[int]) -> None:
    places = [at for batch in batches_of(lengths) for at in batch]
    for length in set(lengths):
        of_length = [at for at in places if lengths[at] == length]
        assert of_length == sorted(of_length)
