from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import StorageError
from storage.root import Root
from tasks.evaluate.generate.skill_files import Growth
from tasks.evaluate.generate.tasks import FOLDER, SkillTask, checked_task, read_written, write_tasks
from tasks.models.llm.budget import Ceiling, Ledger
from tasks.models.llm.errors import Rejected
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill, document_digest
from tests.support.llm.llm_asking import book_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.models.routing_material import SKILLS

TYRE = SKILLS[2]
GOOD = "My wheel lost its air on the way to the market, and I have to be there with forty eggs by noon."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"task": "Mend my wheel."}, "has 3 words"),
        ({"task": "air " * 251}, "has 251 words"),
        ({"task": f"Use {TYRE.name} at once. {GOOD}"}, f"names the guide: '{TYRE.name}', 'rim care'"),
        ({"task": f"I need Rim-Care. {GOOD}"}, "names the guide"),
        ({"task": 7}, "no object"),
        ([GOOD], "no object"),
    ],
)
def test_what_is_no_task_is_refused_by_name(answer: object, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        checked_task([TYRE.name, "rim care"])(json.dumps(answer))


def test_a_task_is_one_line_of_text_that_any_file_can_hold() -> None:
    assert checked_task([TYRE.name])(json.dumps({"task": f"  {GOOD}\n\ud800 "})) == f"{GOOD} ?"


def writes(asked: Asked) -> str:
    (record,) = asked.fragments
    return json.dumps({"task": f"{GOOD} It is {record['category'] or 'no'} work, they say."})


def make(
    server: LlmServer,
    answers: Answers,
    folder: Path,
    ledger: Ledger | None = None,
    skills: Sequence[Skill] = SKILLS[:3],
) -> Growth:
    book = book_of(server.url, answers, ledger)
    categories = {TYRE.doc_id: "wheels"}
    return write_tasks(skills, {}, categories, Root(folder), book, sampling=Sampling())


def test_each_skill_gets_a_task_and_a_second_call_asks_nothing(answers: Answers, tmp_path: Path) -> None:
    with LlmServer(say=writes) as server:
        first = make(server, answers, tmp_path)
        again = make(server, answers, tmp_path)

        assert (first.asked, first.kept, again.asked, again.kept) == (3, 0, 0, 3)
        assert server.requests == 3
    assert {one.doc_id: one.task for one in read_written(Root(tmp_path), SKILLS)} == {
        skill.doc_id: f"{GOOD} It is {'wheels' if skill is TYRE else 'no'} work, they say."
        for skill in SKILLS[:3]
    }


def test_a_skill_whose_text_has_changed_is_asked_about_again(answers: Answers, tmp_path: Path) -> None:
    other = TYRE._replace(body=f"{TYRE.body}\nThrow it away.")
    with LlmServer(say=writes) as server:
        make(server, answers, tmp_path)
        again = make(server, answers, tmp_path, skills=[*SKILLS[:2], other])

        assert (again.asked, again.kept) == (1, 2)
        assert "Throw it away." in server.asked[-1].fragments[0]["body"]
    for now in (TYRE, other):
        (task,) = read_written(Root(tmp_path), [now])
        assert (task.doc_id, task.skill) == (now.doc_id, document_digest(now))


def test_a_skill_without_a_usable_answer_says_why(answers: Answers, tmp_path: Path) -> None:
    with LlmServer(lambda _: "no-json", say=writes) as server:
        make(server, answers, tmp_path)

    kept = read_written(Root(tmp_path), SKILLS)
    assert {(one.task, one.failed) for one in kept} == {("", "rejected")}
    assert all(isinstance(one, SkillTask) and one.detail for one in kept)


def test_a_spent_budget_leaves_skills_for_the_next_call(answers: Answers, tmp_path: Path) -> None:
    with LlmServer(say=writes) as server:
        growth = make(server, answers, tmp_path, Ledger(ceiling=Ceiling(tokens=1)))

        assert (growth.asked, dict(growth.unfinished)) == (0, {"budget": 3})
        assert make(server, answers, tmp_path).asked == 3


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "x.json").write_text("{}", "utf-8")

    with pytest.raises(StorageError, match="delete it, and its skill is asked about again"):
        read_written(Root(tmp_path), SKILLS)
