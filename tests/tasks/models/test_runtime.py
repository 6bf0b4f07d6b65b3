from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import PROJECT


@pytest.mark.parametrize(
    "module", ["models.encoder", "models.adapted_encoder", "parse.classify.context_model"]
)
def test_what_loads_the_runtime_leaves_nothing_in_the_home_of_its_user(tmp_path: Path, module: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}

    subprocess.run(
        [sys.executable, "-c", f"import tasks.{module}"],
        cwd=PROJECT, env={**others, "HOME": str(tmp_path)}, check=True,
    )  # fmt: skip

    assert list(tmp_path.iterdir()) == []
