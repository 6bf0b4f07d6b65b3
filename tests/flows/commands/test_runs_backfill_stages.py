"""A day is served whole or not at all."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prefect.utilities.callables import parameter_schema

from flows.commands.runs import foresee_backfill
from storage.errors import WrongInput
from storage.root import Root

if TYPE_CHECKING:
    from flows.backfill import Stage


@pytest.mark.parametrize("stages", [["refine"], ["parse"], ["parse", "parse"]])
def test_a_day_is_not_served_of_which_not_all_is_done(tmp_path: Path, stages: list[Stage]) -> None:
    from flows.backfill import backfill

    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        backfill.fn(date(2026, 3, 1), date(2026, 3, 2), str(tmp_path), publish=True, stages=stages)
    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        foresee_backfill(Root(tmp_path), "2026-03-01", "2026-03-02", publish=True, stages=stages)
    assert not list(tmp_path.iterdir())


def test_the_form_asks_for_days() -> None:
    from flows.backfill import backfill

    fields = parameter_schema(backfill.fn).model_dump()["properties"]
    assert {name: fields[name]["format"] for name in ("start", "end")} == {"start": "date", "end": "date"}
