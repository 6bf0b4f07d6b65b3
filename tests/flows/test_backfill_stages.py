"""A day is served whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import WrongInput

if TYPE_CHECKING:
    from flows.backfill import Stage


@pytest.mark.parametrize("stages", [["refine"], ["parse"], ["parse", "parse"]])
def test_a_day_is_not_served_of_which_not_all_is_done(tmp_path: Path, stages: list[Stage]) -> None:
    from flows.backfill import backfill

    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        backfill.fn("2026-03-01", "2026-03-02", str(tmp_path), publish=True, stages=stages)
    assert not list(tmp_path.iterdir())
