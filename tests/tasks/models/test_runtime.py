from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import PROJECT


def test_the_encoder_when_it_is_loaded_leaves_nothing_in_the_home_of_its_user(tmp_path: Path) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    subprocess.run(
        [sys.executable, "-c", "import tasks.models.encoder"],
        cwd=PROJECT, env={**others, "HOME": str(tmp_path)}, check=True,
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
