"""`skillery train requests`: from a user's own requests to what search uses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.commands.routing.own_requests import ship
from storage.errors import StorageError
from storage.usage import UsageLog, served_searches
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.fit import TUNED_FILE, packaged_fit, read_tuned
from tasks.train.search.own_requests import Tuning
from tests.support.command import Ask
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot

# By their ids two of these teach and two decide.
NAMES = {"loaf": "bread", "hive": "bees", "cycle": "bike", "pot": "tea"}
# None of them says a word of its skill.
WORDS = {
    "loaf": "guests say that it is heavy like a brick", "hive": "they crawl about with crippled wings",
    "cycle": "it grinds whenever I go uphill", "pot": "my visitor left half of the cup",
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    root = SkillRoot.below(
        tmp_path_factory.mktemp("own"), minilm_export, {own: SKILLS[name] for own, name in NAMES.items()}
    )
    root.publish()
    return root


def asked(folder: Path, times: int) -> Path:
    """Return a file of requests, each kept by its skill, and one whose skill is not served."""
    lines = [
        {"query": f"{words}, case {n}", "doc_id": f"local/market/{name}", "kept": True}
        for name, words in WORDS.items()
        for n in range(times)
    ]
    file = folder / "asked.jsonl"
    file.write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {**lines[0], "doc_id": "gone/gone"}])
    )
    return file


@pytest.mark.slow
def test_own_requests_are_measured_beside_the_packages_and_change_nothing_if_these_lose(
    served: SkillRoot, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.train.search.own_requests.LEAST", 6)
    file = str(asked(tmp_path, 3))
    done = ask("train", "requests", file, "--root", served.root.uri)
    assert done.code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "12 requests, 12 of them kept; 1 of skills not served" in done.stdout
    for told in ("your requests, tuned", "the package's, before", "mrr@3", "not better beyond chance"):
        assert told in done.stdout
    assert read_tuned(served.root) is None


def test_what_is_shipped_is_used_and_said_until_it_is_removed(
    served: SkillRoot, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, packaged = served.root.uri, packaged_fit("best")
    assert packaged.reading is not None
    search = ["search", "the loaf stays flat", "--root", root, "--json"]
    plain = json.loads(ask(*search).stdout)
    assert "tuned" not in plain
    ship(served.root, "best", Tuning(0.2, packaged.reading / 2, 0.01), 48)
    tuned = json.loads(ask(*search).stdout)
    assert (tuned["tuned"]["requests"], tuned["least_fit"]) == (48, 0.01)
    for key in ("fit", "score"):
        assert tuned["results"][0][key] != plain["results"][0][key]
    assert "tuned" not in json.loads(ask(*search, "--rerank", "fast").stdout)
    monkeypatch.setenv("SKILLERY_RERANK", "fast")
    assert "tuned for best, not in use: SKILLERY_RERANK is fast" in ask("status", "--root", root).stdout
    monkeypatch.delenv("SKILLERY_RERANK")
    for command in (["search", "flat loaf"], ["status"], ["doctor"]):
        assert "tuned on 48 requests of this root" in ask(*command, "--root", root).stdout
    remove = ["train", "requests", "--remove", "--root", root]
    assert [ask(*remove).stdout for _ in range(2)] == ["removed\n", "nothing was tuned here\n"]
    again = json.loads(ask(*search).stdout)
    assert {**again, "took_ms": 0} == {**plain, "took_ms": 0}


WRONG = [
    ("{", "is not JSON"),
    ({"reading": [1, 2, 3]}, "is damaged"),
    ({"weight": "0.8"}, "is damaged"),
    ({"weight": float("nan")}, "is damaged"),
    ({"least": 1.5}, "is damaged"),
    ({"requests": "<b>"}, "is damaged"),
    ({"package": "of before"}, "another version of the packaged model"),
]


def test_wrong_numbers_are_not_used_and_status_and_doctor_say_what_to_do(served: SkillRoot, ask: Ask) -> None:
    root, reading = served.root, packaged_fit("best").reading
    assert reading is not None
    ship(root, "best", Tuning(0.2, reading, 0.01), 48)
    held = root.read_json(TUNED_FILE) or {}
    for wrong, why in WRONG:
        root.write(TUNED_FILE, (wrong if isinstance(wrong, str) else json.dumps({**held, **wrong})).encode())
        with pytest.raises(StorageError, match=why):
            read_tuned(root)
    found = ask("search", "flat loaf", "--root", root.uri, "--json")
    assert (found.code, "tuned" in json.loads(found.stdout)) == (0, False)
    for command in ("status", "doctor"):
        done = ask(command, "--root", root.uri)
        said = " ".join(done.stdout.split())
        assert done.code == 0
        assert "another version of the packaged model" in said
        assert "`skillery train requests` learns anew, with --remove the file goes" in said
        assert "Traceback" not in done.stderr
    assert ask("train", "requests", "--remove", "--root", root.uri).stdout == "removed\n"


def test_an_index_without_tokens_says_what_makes_them(
    served: SkillRoot, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = SimpleNamespace(tokens=None)
    monkeypatch.setattr(OpenVersion, "routing", property(lambda _: without))
    done = ask("train", "requests", str(asked(tmp_path, 1)), "--root", served.root.uri)
    assert done.code == 2
    assert "`skillery run` makes them" in done.stderr


def test_without_a_file_the_log_of_usage_is_read(served: SkillRoot, ask: Ask) -> None:
    none = ask("train", "requests", "--root", served.root.uri)
    assert none.code == 2
    assert "SKILLERY_QUERY_LOG=texts" in none.stderr
    log = UsageLog(served.root, "texts", str)
    log.note("http", "search", ["local/market/hive", "local/market/pot"], query="mites", fits=True)
    log.note("mcp", "search", ["local/market/pot"], query="a guest", fits=True)
    log.note("http", "page", ["local/market/pot"], query="what to do")
    log.flush()
    # The page came the same way as the first search, which found it second.
    assert served_searches(served.root, datetime.now(UTC), 1) == [("mites", "local/market/pot")]
    few = ask("train", "requests", "--root", served.root.uri)
    assert few.code == 2
    assert "1 requests were kept by a served skill" in few.stderr
    both = ask("train", "requests", "asked.jsonl", "--remove", "--root", served.root.uri)
    assert (both.code, "--remove takes no FILE" in both.stderr) == (2, True)
