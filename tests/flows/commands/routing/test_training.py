from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from flows.commands.routing.training import ship
from storage.errors import StorageError
from storage.jsonl import write_lines
from storage.usage import UsageLog, served_searches
from tasks.evaluate.routing.data import skill_of
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.paging.terms import words_of
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.retrieve.routing.tuned import FILE as TUNED_FILE
from tasks.retrieve.routing.tuned import read_tuned
from tasks.train.queries import PAIRS_FILE, read_pairs
from tasks.train.search.own_requests import Tuning
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import settings_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.models.routing_material import Set
from tests.support.models.tiny_models import save_bi_encoder, save_qwen3
from tests.support.models.training_material import pairs_of, tools, trades
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import Export, SkillRoot


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "trades.jsonl"
    records = ({"doc_id": s.doc_id, "content": skill(s.name, s.description, s.body)} for s in trades())
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Train as little as can be, beginning with a tiny encoder."""
    encoder = save_bi_encoder(tmp_path / "tiny", words_of(" ".join(s.body for s in trades())))
    monkeypatch.setenv("SKILLERY_ENCODER", str(encoder))
    least = {"TOKENS": 16, "BATCH": 4, "HELD_OUT": 0.3, "CLUSTERS": 3, "CANDIDATES": 4, "FALSE_EMBEDDING": 1}
    for name, value in least.items():
        monkeypatch.setenv(f"SKILLERY_TRAINING_{name}", str(value))


def test_a_model_is_trained_by_skillrouter_s_recipe_measured_on_skills_it_never_saw_and_not_trained_twice(
    ask: Ask, root: str, served_bakery: SkillRoot, corpus: Path, short: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tiny, out = str(save_qwen3(tmp_path / "qwen3")), tmp_path / "trained"
    small = {"TOKENS": 40, "DRAWN": 2, "BATCH": 2, "ACCUMULATION": 2, "RERANKER_BATCH": 4, "LISTS": 4}
    # Heads that the tiny encoder takes for equal have a cosine of 1, but for its last bit.
    small |= {"RERANKER_TOKENS": 60, "FALSE_BODY": 1, "FALSE_EMBEDDING": 0.999999}
    for name, value in small.items():
        monkeypatch.setenv(f"SKILLERY_TRAINING_{name}", str(value))
    command = ["train", "routing", "--corpus", str(corpus), "--out", str(out), "--root", root, "--pairs"]
    command += ["8", "--reranker", tiny, "--preset", "skillrouter"]
    encoder = out / "encoder" / "model.safetensors"
    with patch.dict(os.environ, {"SKILLERY_ENCODER": tiny}):
        code, printed, told = ask(*command, "--json")
        assert code == 0, told
        found: dict[str, Any] = json.loads(printed)
        written = encoder.stat().st_mtime_ns
        assert ask.told(*command) == found
        (out / "training.json").unlink()  # as of a run that was cut off after its encoder was trained
        code, shown, _ = ask(*command)
        assert (code, encoder.stat().st_mtime_ns) == (0, written)
        assert "8 queries on 17 of 24 skills" in shown
        assert "against default, task by task" in shown
        again = command[:-2]  # what the preset set stays set
        assert "holds a training with another seed" in ask.refused(*again, "--seed", "1")
        monkeypatch.setenv("SKILLERY_TRAINING_EPOCHS", "2")
        assert "holds a training with another settings" in ask.refused(*again)
        monkeypatch.delenv("SKILLERY_TRAINING_EPOCHS")
    material, training = found["material"], found["training"]
    assert (material["skills"], material["train"], material["held_out"]) == (24, 17, 7)
    assert (material["queries"], material["held_out_queries"]) == (8, 7)
    assert "  SKILLERY_TRAINING_BATCH=2 (yours; the paper's is 8)\n" in told
    assert (training["updates"], found["reranker"]["updates"]) == (2, 1)
    # Seconds are told to a tenth, and two updates can take one tenth.
    least, most = max(training["seconds"] - 0.05, 1e-9), training["seconds"] + 0.05
    assert training["tokens"] / most - 1 <= training["tokens_per_second"] <= training["tokens"] / least + 1
    assert [row["method"] for row in found["methods"]] == [
        "default", "default, trained", "dense", "dense, trained", "scorer, trained", "reranked, trained",
    ]  # fmt: skip
    assert {c["baseline"] for c in found["contests"]} == {"default"}
    assert set(found["scorer"]["weights"]) >= {"lexical"}
    assert isinstance(found["helps"], bool)
    pairs = lines_of(out / "pairs.jsonl")
    assert {len(pair["negatives"]) for pair in pairs} == {2, 10}
    assert all(pair["query_id"] not in {n["doc_id"] for n in pair["negatives"]} for pair in pairs)
    for name in ("encoder", "reranker"):
        monkeypatch.setenv(f"SKILLERY_SKILLROUTER_{name.upper()}", str(out / name))
    monkeypatch.delenv("SKILLERY_ENCODER")
    where = ["--root", served_bakery.root.uri, "--json"]
    answer = ask.told("search", "bake bread", "--method", "skillrouter", *where)
    scores = [row["score"] for row in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


def test_a_language_model_writes_the_requests_that_are_trained_on(
    ask: Ask, corpus: Path, tmp_path: Path, environment: Set
) -> None:
    out = tmp_path / "pairs"
    command = ["bench", "requests", "--corpus", str(corpus), "--out", str(out), "--root", str(tmp_path)]

    def say(asked: Asked) -> str:
        (record,) = asked.fragments
        told = "mentions the skill's name" in json.dumps(asked.body["messages"])
        named = "the thing" if told else record["name"]
        return f"Please help me with {named}: I have two of them here and want it done by noon today."

    with LlmServer(say=say) as server:
        environment(settings_of(server))
        found = ask.told(*command, "--pairs", "9")
        sent = server.requests
        assert ask.told(*command, "--pairs", "9")["kept"] == 9
        assert server.requests == sent
    assert (found["asked"], found["pairs"], sum(found["split"].values())) == (9, 9, 9)
    skills = {
        one.doc_id: one for one in (Skill(*skill_of(r["doc_id"], r["content"])) for r in lines_of(corpus))
    }
    for query, doc_id, digest in read_pairs(out / PAIRS_FILE).select("query", "doc_id", "skill").iter_rows():
        assert digest == digest_of(skills[doc_id])
        assert query.startswith("Please help me with the thing")


@pytest.mark.slow
def test_an_encoder_is_trained_on_what_authors_ask(
    ask: Ask, root: str, short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, pairs = tmp_path / "tools.jsonl", tmp_path / "pairs"
    write_lines(corpus, tools(occasions=2))
    pairs.mkdir()
    made = pairs_of([Skill(*skill_of(record["doc_id"], record["content"])) for record in lines_of(corpus)])
    made.write_parquet(pairs / "pairs.parquet")
    monkeypatch.setenv("SKILLERY_TRAINING_DROP_FALSE", "false")  # of skills that are much alike
    command = ["train", "routing", "--corpus", str(corpus), "--out", str(tmp_path / "out"), "--root", root]
    command += ["--requests", str(pairs), "--pairs", "400"]
    found = ask.told(*command)
    assert found["material"]["queries"] == 400 > found["material"]["train"]
    assert 0 < found["material"]["held_out_queries"] <= 300
    asked = set(made.filter(split="train")["query"])
    assert {pair["text"] for pair in lines_of(tmp_path / "out" / "pairs.jsonl")} < asked
    assert "pairs.parquet cannot be read as pairs" in ask.refused(
        *command, "--requests", str(tmp_path / "none")
    )


def test_a_folder_that_holds_something_else_is_left_alone(
    ask: Ask, root: str, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("mine", "utf-8")
    assert "holds other files" in ask.refused(
        "train", "routing", "--corpus", str(corpus), "--out", str(tmp_path / "out"), "--root", root
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["letters.txt"]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"doc_id": "a", "content": "# Tea\n\nPour."}], "1 skills are too few to train with"),
        (
            [{"doc_id": f"d{n}", "content": f"# Tea {n}\n\nPour {n}.\n"} for n in range(30)],
            "no skill has sentences in its body that its description lacks",
        ),
    ],
)
def test_a_corpus_that_is_too_small_or_says_nothing_is_told(
    records: list[dict[str, str]], said: str, ask: Ask, root: str, tmp_path: Path
) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    assert said in ask.refused(
        "train", "routing", "--corpus", str(path), "--out", str(tmp_path / "out"), "--root", root
    )


@pytest.mark.parametrize(
    ("name", "value"), [("BATCH", "0"), ("FALSE_EMBEDDING", "1.5"), ("TEXT", "body"), ("HELD_OUT", "1")]
)
def test_a_setting_that_cannot_be_used_is_named(
    name: str, value: str, ask: Ask, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SKILLERY_TRAINING_{name}", value)
    assert f"SKILLERY_TRAINING_{name}='{value}'" in ask.refused(
        "train", "routing", "--corpus", str(corpus), "--out", str(tmp_path / "out")
    )


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
    plain = ask.told(*search)
    assert "tuned" not in plain
    ship(served.root, "best", Tuning(0.2, packaged.reading / 2, 0.01), 48)
    tuned = ask.told(*search)
    assert (tuned["tuned"]["requests"], tuned["least_fit"]) == (48, 0.01)
    for key in ("fit", "score"):
        assert tuned["results"][0][key] != plain["results"][0][key]
    assert "tuned" not in ask.told(*search, "--rerank", "fast")
    monkeypatch.setenv("SKILLERY_RERANK", "fast")
    assert "tuned for best, not in use: SKILLERY_RERANK is fast" in ask("status", "--root", root).stdout
    monkeypatch.delenv("SKILLERY_RERANK")
    for command in (["search", "flat loaf"], ["status"], ["doctor"]):
        assert "tuned on 48 requests of this root" in ask(*command, "--root", root).stdout
    remove = ["train", "requests", "--remove", "--root", root]
    assert [ask(*remove).stdout for _ in range(2)] == ["removed\n", "nothing was tuned here\n"]
    again = ask.told(*search)
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
    assert "`skillery run` makes them" in ask.refused(
        "train", "requests", str(asked(tmp_path, 1)), "--root", served.root.uri
    )


def test_without_a_file_the_log_of_usage_is_read(served: SkillRoot, ask: Ask) -> None:
    assert "SKILLERY_QUERY_LOG=texts" in ask.refused("train", "requests", "--root", served.root.uri)
    log = UsageLog(served.root, "texts", str)
    log.note("http", "search", ["local/market/hive", "local/market/pot"], query="mites", fits=True)
    log.note("mcp", "search", ["local/market/pot"], query="a guest", fits=True)
    log.note("http", "page", ["local/market/pot"], query="what to do")
    log.flush()
    # The page came the same way as the first search, which found it second.
    assert served_searches(served.root, datetime.now(UTC), 1) == [("mites", "local/market/pot")]
    assert "1 requests were kept by a served skill" in ask.refused(
        "train", "requests", "--root", served.root.uri
    )
    assert "--remove takes no FILE" in ask.refused(
        "train", "requests", "asked.jsonl", "--remove", "--root", served.root.uri
    )
