from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.roots.nights import Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "root")
