from __future__ import annotations

import pytest

from tasks.induce.library.build import RareValues, SkillDraft
from tests.support.induce.learning import drafts_of
from tests.support.induce.runs import add_bed

BEDS = [add_bed(f"g{n}", f"b{n}", bed) for n, bed in enumerate(("Fern corner", "Rose row", "Lily pond"))]


@pytest.fixture(scope="session")
def drafts() -> list[SkillDraft]:
    """Return what recurrence finds in three runs that add a bed, all with loam."""
    return drafts_of("greenhouse", BEDS)


@pytest.fixture(scope="session")
def draft(drafts: list[SkillDraft]) -> SkillDraft:
    """Return the draft that fills in the form and chooses the soil."""
    wanted = ["fill", "select_option"]
    return next(one for one in drafts if [action.name for action in one.skill.body] == wanted)


@pytest.fixture(scope="session")
def rare() -> RareValues:
    return RareValues(BEDS)
