"""The runtime of ONNX models, without its telemetry, which keeps a database in the user's home."""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is read when the library is loaded

import onnxruntime

__all__ = ["onnxruntime"]
