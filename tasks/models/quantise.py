"""Turns an exported encoder's weights into eight-bit integers; run as a module it does so for one export."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tasks.models.encoder import card_of


def quantise(export: Path, target: Path) -> None:
    """Write an export with int8 weights (dynamic: activations are scaled as they come) to a new folder.

    Weights are scaled by channel and kept within seven bits, which processors without VNNI instructions
    need so that sums do not overflow. Its card's revision says that the vectors are others.

    Raises:
        ModelMismatch: `export` holds no exported encoder.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 (onnx: for this alone)

    card = card_of(export)
    target.mkdir()
    quantize_dynamic(
        export / "model.onnx", target / "model.onnx", per_channel=True, reduce_range=True,
        weight_type=QuantType.QInt8,
    )  # fmt: skip
    shutil.copy(export / "tokenizer.json", target)
    text = json.dumps({**card, "revision": f"{card['revision']}-int8"}, indent=1)
    # Written last: a folder with a card is a whole export.
    (target / "encoder.json").write_text(text, "utf-8")


if __name__ == "__main__":
    quantise(Path(sys.argv[1]), Path(sys.argv[2]) / "export")
