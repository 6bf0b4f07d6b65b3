from __future__ import annotations

from tasks.models.onnx_export import GRAPHS
from tasks.models.train.graph import encoder_graph
from tests.support.paths import PROJECT


def test_the_packaged_graphs_of_encoders_are_those_that_are_written() -> None:
    for name, file in GRAPHS.items():
        assert encoder_graph(name) == (PROJECT / "tasks" / "models" / file).read_bytes()
