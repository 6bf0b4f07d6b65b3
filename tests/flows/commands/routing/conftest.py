from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.routing_material import Set, Written, write_bench


@pytest.fixture
def bench(tmp_path: Path) -> Written:
    return write_bench(tmp_path / "bench")


@pytest.fixture
def routing(bench: Written, root: str) -> list[str]:
    """Return the command that measures the bench."""
    return ["evaluate", "routing", *bench.options(), "--root", root]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Set:
    def put(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put
