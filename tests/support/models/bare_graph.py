"""A small graph of ONNX without its weight."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def bare_graph() -> bytes:
    """A product with `weight`, which lies elsewhere."""
    weight = numpy_helper.from_array(WEIGHT, "weight")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    held = weight.external_data.add()
    held.key, held.value = "location", "weights"
    shapes = (("rows", ["n", 2]), ("found", ["n", 3]))
    rows, found = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes)
    product = helper.make_node("MatMul", ["rows", "weight"], ["found"])
    graph = helper.make_graph([product], "product", [rows], [found], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content
