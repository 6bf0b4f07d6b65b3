from __future__ import annotations

from pathlib import Path

import pytest

from tasks.refine import plan
from tasks.refine.filters import MAX_PARTS, FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.text import rules as rules_data
from tests.support.roots.nights import HandSource, Nights, raw

DATA = Path(plan.__file__).parent / "data"
TEXT = b"---\nname: bread\ndescription: Bakes bread.\n---\nLet it rise.\n"


def todo(nights: Nights) -> int:
    plan.rule_digests.cache_clear()
    return plan_refine(nights.root, FilterLimits()).todo


@pytest.mark.parametrize("name", ["licences.yaml", "placeholders.yaml"])
def test_editing_a_rule_s_data_refines_what_was_refined_by_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    nights = Nights(tmp_path / "root")
    nights.run(HandSource("dir:d", raw("o/r/bread", TEXT)))
    assert todo(nights) == 0
    copy = tmp_path / "rules" / "data"
    copy.mkdir(parents=True)
    for file in DATA.glob("*.yaml"):
        (copy / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(rules_data, "files", lambda _: copy.parent)
    assert todo(nights) == 0
    with (copy / name).open("a", encoding="utf-8") as rules:
        rules.write("# another rule\n")
    assert todo(nights) == 1
    monkeypatch.undo()
    assert todo(nights) == 0


def test_editing_boilerplate_refines_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights = Nights(tmp_path / "root")
    nights.run(HandSource("dir:d", raw("o/r/bread", TEXT)))
    monkeypatch.setattr(plan, "BOILERPLATE", plan.BOILERPLATE[:-1])
    assert todo(nights) == 1
    monkeypatch.undo()
    assert todo(nights) == 0


def test_the_digest_of_a_root_made_before_is_still_that_of_the_default_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "STAGE_VERSION", 3)
    monkeypatch.setattr(plan, "rule_digests", lambda: {"risk rules": "3c7c1fd88365"})
    assert plan.digest_of_rules(FilterLimits()) == "d34cef26a7fc"


def test_the_limit_of_parts_refines_anew_only_if_it_is_set(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "root")
    nights.run(HandSource("dir:d", raw("o/r/bread", TEXT)))
    assert plan_refine(nights.root, FilterLimits(max_parts=MAX_PARTS)).todo == 0
    assert plan_refine(nights.root, FilterLimits(max_parts=5)).todo == 1


def test_the_rules_are_those_by_which_roots_were_refined() -> None:
    # Who edits a rule changes its digest here, and knows that every document is refined again.
    plan.rule_digests.cache_clear()
    assert plan.rule_digests() == {
        "risk rules": "3c7c1fd88365",
        "licences": "2b7fa3811d87",
        "placeholders": "aa6fa77fbf88",
        "boilerplate": "afd7ef7b2372",
    }
