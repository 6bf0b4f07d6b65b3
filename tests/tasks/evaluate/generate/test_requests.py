from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.answers import Answers
from storage.errors import StorageError
from storage.jsonl import write_lines
from storage.root import Root
from tasks.evaluate.generate.requests import document_line, query_line, read_requests, write_requests
from tasks.evaluate.generate.skill_files import Growth
from tasks.evaluate.measures.evidence import read_paging_bench
from tasks.evaluate.paging.bench import body_of
from tasks.models.llm.budget import Ceiling, Ledger
from tasks.models.llm.errors import LlmDenied
from tasks.models.llm.question import Sampling
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.bench_llm import requests_about, skill_about, writes_five
from tests.support.llm.llm_asking import book_of
from tests.support.llm.llm_server import Asked, LlmServer

SKILLS = [skill_about(f"mill{n}") for n in range(12)]


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer(say=writes_five) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Root:
    return Root(tmp_path / "bench")


def write(
    skills: list[Skill],
    folder: Root,
    server: LlmServer,
    answers: Answers,
    ledger: Ledger | None = None,
    **settings: Any,  # noqa: ANN401
) -> Growth:
    book = book_of(server.url, answers, ledger, **{"concurrency": 8, **settings})
    return write_requests(skills, folder, book, sampling=Sampling(max_tokens=2000))


def test_every_skill_gets_a_file_with_five_requests_side_by_side(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    server.delay = 0.05

    growth = write(SKILLS, folder, server, answers)

    assert (growth.asked, growth.kept, growth.unfinished) == (12, 0, Counter())
    assert server.requests == 12
    assert 4 <= server.most_at_once <= 8
    written = read_requests(folder)
    assert [w.skill for w in written] == sorted(SKILLS, key=lambda s: s.doc_id)
    assert {(len(w.queries), w.failed, w.model) for w in written} == {(5, None, "small-model")}
    assert len(folder.files("queries")) == 12


def test_what_is_written_is_a_bench_that_can_be_read(
    server: LlmServer, answers: Answers, folder: Root, tmp_path: Path
) -> None:
    odd = Skill("market/odd", 'say "no": \\never', "two\nlines --- # of it", "---\n\n" + SKILLS[0].body)
    write([odd, SKILLS[1]], folder, server, answers)
    written = read_requests(folder)

    write_lines(tmp_path / "d.jsonl", (document_line(w.skill) for w in written))
    write_lines(tmp_path / "q.jsonl", (query_line(q) for w in written for q in w.queries))
    texts, queries = read_paging_bench(tmp_path / "d.jsonl", tmp_path / "q.jsonl")

    assert queries == [q for w in written for q in w.queries]
    assert body_of(texts["market/odd"]).split() == odd.body.split()
    assert "say" not in body_of(texts["market/odd"])


def test_what_is_there_is_kept_and_asks_nothing(server: LlmServer, answers: Answers, folder: Root) -> None:
    write(SKILLS[:5], folder, server, answers)
    before = {file: folder.read(file) for file in folder.files("queries")}

    growth = write(SKILLS[:8], folder, server, answers)

    assert (growth.asked, growth.kept, server.requests) == (3, 5, 8)
    assert all(folder.read(file) == text for file, text in before.items())


def test_a_file_that_was_lost_is_made_again_from_the_kept_answer(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    write(SKILLS[:2], folder, server, answers)
    whole = read_requests(folder)
    folder.delete(folder.files("queries")[0])

    assert write(SKILLS[:2], folder, server, answers).asked == 1
    assert (read_requests(folder), server.requests) == (whole, 2)


def careless(asked: Asked) -> str:
    """Answer wrongly at first, in a way that depends on the skill, and rightly once the fault is named."""
    (record,) = asked.fragments
    entries = requests_about(record["body"], record["name"])
    kind = int(record["name"].removeprefix("mill")) % 4
    if asked.corrected:
        kind = -1
    if kind == 0:
        entries = entries[:3]
    if kind == 1:
        entries[4]["evidence"][2] = {"any_of": ["Grease the axle with lard on Sundays."]}
    text = json.dumps({"queries": entries})
    return f"Gladly! [see below]\n\n{text}\n\nShall I {{go on}}?" if kind == 2 else text


def test_short_lists_and_ungrounded_passages_are_asked_for_again_with_the_fault_named(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    server.say = careless

    write(SKILLS, folder, server, answers)

    assert {(len(w.queries), w.failed) for w in read_requests(folder)} == {(5, None)}
    again = [asked.prompt for asked in server.asked if asked.corrected]
    assert len(again) == 6
    assert sum("3 requests instead of 5" in prompt for prompt in again) == 3
    assert sum("'Grease the axle with lard on Sundays.' does not stand" in prompt for prompt in again) == 3


def test_of_the_third_answer_the_good_requests_are_kept_and_the_bad_counted(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    def stubborn(asked: Asked) -> str:
        (record,) = asked.fragments
        entries = requests_about(record["body"], record["name"])
        entries[3]["evidence"] = [{"any_of": ["Nobody ever wrote this."]}] * 2
        return json.dumps({"queries": entries})

    server.say = stubborn
    write(SKILLS[:1], folder, server, answers)

    [written] = read_requests(folder)
    assert server.requests == 3
    assert [q.query_id for q in written.queries] == [f"market/mill0/guide#{n}" for n in (1, 2, 3, 5)]
    assert (written.rejected, written.failed) == ({"ungrounded": 1}, None)


@pytest.mark.parametrize(
    ("fault", "failed", "requests"),
    [
        ("no-json", "rejected", 3),
        ("length", "rejected", 1),
        ("refused", "refused", 3),
        ("overflow", "too-long", 1),
    ],
)
def test_a_skill_that_gets_no_request_says_why_and_is_not_asked_about_again(
    server: LlmServer, answers: Answers, folder: Root, fault: str, failed: str, requests: int
) -> None:
    server.fault = lambda _: fault
    write(SKILLS[:1], folder, server, answers)

    [written] = read_requests(folder)
    assert (written.queries, written.failed) == ((), failed)
    assert written.detail
    assert server.requests == requests
    assert write(SKILLS[:1], folder, server, answers).kept == 1
    assert server.requests == requests


def test_429_and_errors_of_the_server_are_waited_out(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    mishaps = ("rate", "500", "cut", None)
    server.fault = lambda asked: mishaps[int(asked.key[:4], 16) % 4] if asked.before == 0 else None
    ledger = Ledger()

    write(SKILLS, folder, server, answers, ledger)

    assert {len(w.queries) for w in read_requests(folder)} == {5}
    assert set(server.answered().values()) == {1}
    assert ledger.report()["requests"] == server.requests > 12


def test_a_spent_budget_leaves_the_rest_for_the_next_run(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    server.usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
    ledger = Ledger(ceiling=Ceiling(tokens=8_000))

    growth = write(SKILLS, folder, server, answers, ledger, concurrency=1)

    assert growth.asked + growth.unfinished["budget"] == 12
    assert 0 < growth.asked < 12
    assert write(SKILLS, folder, server, answers).asked == 12 - growth.asked
    assert server.requests == 12


def test_a_denied_key_stops_at_once_and_writes_nothing(
    server: LlmServer, answers: Answers, folder: Root
) -> None:
    server.fault = lambda _: "401"
    with pytest.raises(LlmDenied):
        write(SKILLS, folder, server, answers)
    assert folder.files("queries") == []


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema_version": 9}', "not JSON"])
def test_a_damaged_file_is_named(folder: Root, text: str) -> None:
    folder.write("queries/spoilt.json", text.encode())
    with pytest.raises(StorageError, match=r"spoilt\.json"):
        read_requests(folder)
