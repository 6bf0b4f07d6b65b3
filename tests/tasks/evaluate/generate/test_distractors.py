from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.answers import Answers
from storage.root import Root
from tasks.evaluate.generate.distractors import KINDS, PROMPT, read_distractors, write_distractors
from tasks.evaluate.routing.data import read_skills
from tasks.models.llm.budget import Ledger
from tasks.models.llm.errors import Rejected
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.routing_llm import distractors_of, writes_distractors
from tests.support.models.routing_material import SKILLS

SKILL = SKILLS[2]
GOOD = distractors_of(SKILL.name)


def check(entries: object, *, strict: bool = True) -> list[str]:
    found = PROMPT.read(json.dumps({"distractors": entries}), SKILL, last=not strict)
    return [distractor.kind for distractor in found]


def but(**changes: object) -> list[dict[str, Any]]:
    """Return three good distractors, the last one changed."""
    return [*GOOD[:2], {**GOOD[2], **changes}]


def test_one_of_each_kind_passes() -> None:
    assert check(GOOD) == list(KINDS)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (GOOD[:2], "no usable skill of kind too-general"),
        (but(kind="easy"), "the kind 'easy' is none of"),
        (but(kind="same-domain"), "two of kind same-domain"),
        (but(name="tyre"), "the name 'tyre' is taken"),
        (but(name=GOOD[0]["name"]), "is taken"),
        (but(name="Tyre Care"), "not in lower case with hyphens"),
        (but(description=" "), "a text is missing"),
        (but(description="x" * 1025), "more than 1024 characters"),
        (but(body="Too short."), "the body has 2 words"),
        (but(body="word " * 2501), "the body has 2501 words"),
        (but(body=GOOD[0]["body"] + " One more."), "repeats that of another skill"),
        ("none", "no object"),
        ([7, *GOOD[1:]], "a text is missing"),
    ],
)
def test_what_is_no_distractor_is_refused_by_name(entries: object, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        check(entries)


def test_a_body_that_repeats_the_right_skill_is_a_copy() -> None:
    whole = SKILL._replace(body=str(GOOD[1]["body"]))
    with pytest.raises(Rejected, match="skill 2: the body repeats"):
        PROMPT.read(json.dumps(GOOD), whole, last=False)


def test_in_the_end_what_is_good_stays() -> None:
    assert check(but(body="Too short."), strict=False) == ["same-domain", "same-tools"]
    with pytest.raises(Rejected):
        check([{}], strict=False)


def make(server: LlmServer, answers: Answers, folder: Path, ledger: Ledger | None = None) -> dict[str, Any]:
    llm = llm_of(server.url, answers, ledger)
    tasks = {"home/tyre": ["My tyre is flat."]}
    folder.mkdir(exist_ok=True)
    return write_distractors(SKILLS[:3], tasks, Root(folder), llm)


def test_each_skill_gets_a_file_and_a_second_call_asks_nothing(answers: Answers, tmp_path: Path) -> None:
    with LlmServer(say=writes_distractors) as server:
        first = make(server, answers, tmp_path / "out")
        again = make(server, answers, tmp_path / "out")
        assert tuple(one[key] for one in (first, again) for key in ("asked", "kept")) == (3, 0, 0, 3)
        assert server.requests == 3
        shown = {asked.fragments[0]["name"]: asked.fragments[0]["tasks"] for asked in server.asked}
        assert shown == {"sourdough": [], "bees": [], "tyre": ["My tyre is flat."]}
    assert [len(one["distractors"]) for one in read_distractors(Root(tmp_path / "out"))] == [3, 3, 3]
    keys = sorted(kept.key[:8] for kept in answers.kept(rejected=False))
    assert keys == ["069c172d", "a5f7473c", "e0935059"]  # answers that were kept before are found


def test_distractors_are_skills_of_a_corpus(answers: Answers, tmp_path: Path) -> None:
    with LlmServer(say=writes_distractors) as server:
        make(server, answers, tmp_path / "out")
    skills = read_skills([tmp_path / "out" / "distractors.jsonl"])
    assert skills.height == 9
    assert skills["doc_id"][0] == "distractor/home/bees#1"
