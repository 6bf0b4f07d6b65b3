"""The runtime libraries of models, without their telemetry, which writes to the user's home and sends."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is read when the library is loaded
# OpenVINO's converter of models is what reports; without it OpenVINO loads faster, and reports nothing.
_REPORTING = "openvino.tools.ovc"
_modules: dict[str, Any] = sys.modules
_blocked = _REPORTING not in _modules
if _blocked:
    _modules[_REPORTING] = None

import onnxruntime  # noqa: E402
import openvino  # noqa: E402

if _blocked:
    del _modules[_REPORTING]

__all__ = ["onnxruntime", "openvino"]
