"""Verdicts that are not those of the files: which runs a library was learned from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from storage.root import Root
from tasks.induce.library.verdicts import HeldVerdicts
from tests.support.induce.runs import add_bed

RUNS = [replace(add_bed(f"g{n}", "b"), success=said) for n, said in enumerate((True, False, None))]


def named(held: HeldVerdicts, domain: str) -> list[str]:
    return [one.trajectory_id for one in held.successful(domain, RUNS)]


def test_without_a_judge_s_verdicts_the_files_word_counts(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    held.put("d", RUNS, declared=True)

    assert named(held, "d") == ["g0"]
    assert list(tmp_path.iterdir()) == []


def test_a_judge_s_verdicts_count_until_the_files_word_is_taken_again(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    held.put("d", [replace(one, success=one.trajectory_id != "g0") for one in RUNS], declared=False)
    held.put("e", [], declared=False)

    assert (named(held, "d"), named(held, "e"), named(held, "f")) == (["g1", "g2"], [], ["g0"])
    held.put("d", RUNS, declared=True)
    assert (named(held, "d"), named(held, "e")) == (["g0"], [])


def test_a_run_that_is_forgotten_is_in_no_verdict(tmp_path: Path) -> None:
    held = HeldVerdicts(Root(tmp_path))
    for domain in ("d", "e"):
        held.put(domain, [replace(one, success=True) for one in RUNS], declared=False)
    held.forget("g1")

    assert named(held, "d") == named(held, "e") == ["g0", "g2"]
