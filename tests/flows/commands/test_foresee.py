from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.commands.foresee import _stage_seconds, foresee, foresee_days, foreseen_of
from flows.commands.runs import foresee_backfill
from flows.settings import load_settings
from storage.errors import WrongInput
from storage.root import Root
from storage.state import (
    SEEN,
    documents_table,
    nodes_table,
    parsed_table,
    seen_table,
    write_run,
    write_source,
)
from tasks.crawl.source.identity import SAMPLE
from tests.support.command import Ask
from tests.support.processes import slow_but
from tests.support.roots.skill_root import SkillRoot

if TYPE_CHECKING:
    from flows.settings import Stage

CORPORA = ("served_bakery", "storied", "shipped")
NAMES = [f"2026020{day}T021500-abcdef" for day in range(1, 6)]


def within(factor: float, found: float, truth: float) -> bool:
    return truth / factor <= found <= truth * factor


@pytest.mark.parametrize("corpus", slow_but({"served_bakery", "storied"}, CORPORA))
def test_what_is_made_is_foreseen_within_a_factor_of_two(
    corpus: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: SkillRoot = request.getfixturevalue(corpus)
    nodes = nodes_table(made.root).read(columns=["text", "n_tokens"])
    texts = nodes["text"].n_unique() + documents_table(made.root).read(columns=["doc_id"]).height
    spec = SAMPLE if corpus == "shipped" else f"dir:{made.market}"
    for foreseen in (
        foresee(Root(tmp_path), load_settings(), [spec]),
        foresee(made.root, load_settings(), (), again=True),
    ):
        assert within(2, foreseen["nodes"], nodes.height), foreseen
        assert within(2, foreseen["texts"], texts), foreseen
        assert within(2, foreseen["tokens"], nodes["n_tokens"].sum() + 30 * texts / 10), foreseen
    seen = seen_table(made.root).read().filter(pl.col("retired_at").is_null())
    assert foreseen["documents"] == seen["doc_id"].n_unique()
    kept = foresee(made.root, load_settings(), (), again=True, keep_vectors=True)
    assert (kept["texts"], kept["tokens"]) == (0, 0)


def night(root: Root, name: str, changed: int, refine: float, crawl: float, vectors: int) -> None:
    """Leave the record of a night that found so many changed documents of 1,000."""
    source = {"source": "github:a/b", "state": "complete", "listed": 1000, "new": 0, "changed": changed}
    seconds = {"crawl": crawl, "refine": refine, "parse": 1 + vectors / 100, "index": 2.0}
    record: dict[str, Any] = {
        "run_id": name, "flow": "nightly", "state": "complete", "specs": ["github:a/b"], "llm": None,
        "sources": [source], "seconds": seconds, "vectors_new": vectors, "documents": 1000,
        "started_at": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    write_run(root, record)
    read = {"last_read": "2026-02-05T02:15:00+00:00", "requests": 3, "quota_left": 57, "in_list": True}
    write_source(root, "github:a/b", {**source, **read})


def test_a_night_is_foreseen_by_the_nights_before_and_its_seconds_by_their_rates(
    tmp_path: Path, ask: Ask
) -> None:
    root = Root(tmp_path)
    for name, changed, refine, vectors in zip(
        NAMES, (1000, 0, 20, 0, 40), (51.0, 1.0, 2.0, 1.0, 3.0), (9000, 0, 100, 0, 200), strict=True
    ):
        night(root, name, changed, refine, 4.0, vectors)
    found = foresee(root, load_settings(), ["github:a/b", "git+https://git.example/x"])
    known, unknown = found["sources"]
    assert (known["documents"], known["requests"], known["quota_left"]) == (15, 3, 57)
    assert (unknown["documents"], unknown["requests"]) == (None, None)
    assert found["texts"] == 15 + 15 * 5
    assert within(1.2, found["seconds"]["refine"], 1 + 15 * 0.05)
    assert within(1.2, found["seconds"]["crawl"], 4.0)
    low, high = found["range"]
    assert low < sum(found["seconds"].values()) < high
    printed = ask("run", "--dry-run", "--root", str(tmp_path)).stdout
    assert "github:a/b: new or changed 15, requests 3 of 57 that are left" in printed
    assert printed.endswith("nothing was done\n")


def test_of_a_folder_that_was_read_whole_what_was_written_since_is_foreseen(
    served_bakery: SkillRoot, tmp_path: Path
) -> None:
    market = shutil.copytree(served_bakery.market, tmp_path / "market")
    spec, root = f"dir:{market}", Root(tmp_path / "root")
    read = {"source": spec, "state": "complete", "in_list": True, "listed": 3, "requests": 0}
    time.sleep(0.05)  # a file's time is that of the kernel's last tick
    now = datetime.now(UTC).isoformat()
    write_source(root, spec, {**read, "last_read": now, "last_complete": now})
    assert foresee(root, load_settings(), [spec])["documents"] == 0
    next(market.rglob("SKILL.md")).touch()
    assert foresee(root, load_settings(), [spec])["documents"] == 1
    now = datetime.now(UTC).isoformat()
    limited = {"state": "limited", "last_read": now, "last_complete": None, "limit": 2}
    write_source(root, spec, {**read, **limited})
    told = [foresee(root, load_settings(), [spec], limit=limit)["documents"] for limit in (2, 1, None)]
    # Other limits than the last have it read again.
    assert told == [0, 1, len(list(market.rglob("SKILL.md")))]


def test_a_damaged_source_is_not_foreseen_and_an_estimate_that_fails_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for left in (b"", b"PAR1 not a parquet", b"PAR1" + bytes(40) + b"PAR1"):
        (tmp_path / "x.parquet").write_bytes(left)
        spec = f"parquet:{tmp_path}/x.parquet"
        (source,) = foresee(Root(tmp_path / "root"), load_settings(), [spec])["sources"]
        assert (source["documents"], source["bytes"]) == (None, 0)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/sources.json").write_text("{")
    assert foreseen_of(Root(tmp_path), load_settings(), ["dir:a"]) is None
    assert "nothing is foreseen" in caplog.text


def hold(root: Root, documents: int) -> None:
    """Let a root have seen so many documents."""
    now = datetime.now(UTC)
    times = {"first_seen_at": now, "last_seen_at": now, "stale_since": None, "retired_at": None}
    ids = [f"d{i}" for i in range(documents)]
    rows = [{"doc_id": name, "source": "s", "digest": "x", "raw_part": "y", **times} for name in ids]
    seen_table(root).replace(ids, pl.DataFrame(rows, schema=SEEN))


def test_what_waits_is_looked_for_after_a_failed_night_whatever_ran_since(tmp_path: Path) -> None:
    root = Root(tmp_path)
    hold(root, 5)
    for name, flow, state in zip(NAMES, ("nightly", "rollback"), ("failed", "complete"), strict=False):
        night(root, name, 0, 1.0, 1.0, 0)
        record = root.read_json(f"state/runs/{name}.json") or {}
        write_run(root, {**record, "flow": flow, "state": state})
    assert foresee(root, load_settings(), [])["documents"] == 5


def test_what_a_killed_night_refined_and_did_not_parse_is_foreseen(
    served_bakery: SkillRoot, tmp_path: Path
) -> None:
    root = Root(shutil.copytree(served_bakery.root.uri, tmp_path / "root"))
    parsed = parsed_table(root).read()
    first = parsed.sort("n_nodes")[-1:]
    parsed_table(root).replace(first["doc_id"].to_list(), first.with_columns(digest=pl.lit("")))
    for state, documents in (("complete", 0), ("died", 1)):
        night(root, NAMES[0], 0, 1.0, 1.0, 0)
        write_run(root, {**(root.read_json(f"state/runs/{NAMES[0]}.json") or {}), "state": state})
        found = foresee(root, load_settings(), [])
        assert (found["documents"], found["texts"] > 0) == (documents, documents > 0)


def test_a_rebuild_is_foreseen_by_the_first_build_and_not_by_nights_of_one_document(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for name, changed, refine in zip(NAMES, (1000, 1, 0, 2, 1), (51.0, 4.0, 0.3, 3.0, 5.0), strict=True):
        night(root, name, changed, refine, 4.0, 9 * changed)
    hold(root, 1000)
    found = foresee(root, load_settings(), (), again=True)
    assert within(1.3, found["seconds"]["refine"], 51)
    assert found["range"][0] > 20
    (day,) = foresee_days(root, [f"{datetime.now(UTC):%Y-%m-%d}"])
    assert day["documents to make"] == 1000
    assert day["range"][0] < day["seconds"] < day["range"][1]
    assert within(1.5, foresee(root, load_settings(), ["github:a/b"])["seconds"]["refine"], 4)


@given(
    st.lists(st.tuples(st.integers(0, 10**5), st.floats(0, 10**4)), max_size=6),
    st.integers(0, 10**6), st.integers(0, 10**6),
)  # fmt: skip
def test_more_work_never_takes_less_and_the_likely_lies_between_least_and_most(
    known: list[tuple[float, float]], one: int, other: int
) -> None:
    few, many = (_stage_seconds(known, 0.005, max(amount, 1)) for amount in sorted((one, other)))
    assert few[1] <= many[1]
    for least, likely, most in (few, many):
        assert 0 <= least <= likely <= most < 10**13


@pytest.mark.parametrize("known", [[(2, 0.9)], [(12, 0.5), (12, 0.51)], [(0, 0.2), (100, 0.6)]])
def test_small_nights_of_less_than_a_second_do_not_say_that_work_takes_nothing(
    known: list[tuple[float, float]],
) -> None:
    least, likely, most = _stage_seconds(known, 0.005, 20_000)
    assert within(3, likely, 100)
    assert least < 100 < most
    assert within(1.1, _stage_seconds([(20_000, 0.9)], 0.005, 20_000)[1], 0.9)


def test_an_llm_is_foreseen_by_the_length_of_its_questions_and_then_by_what_it_was_asked(
    served_bakery: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LLM_BASE_URL": "http://127.0.0.1:9/v1", "LLM_MODEL": "m", "CLASSIFIER": "llm", "LLM_BATCH": "5",
        "LLM_PROMPT_PRICE": "2", "LLM_COMPLETION_PRICE": "8",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"SKILLERY_{name}", value)
    nodes = foresee(served_bakery.root, load_settings(), (), again=True)
    asked = nodes["llm"]
    assert asked["questions"] == -(-nodes["nodes"] // 5)
    assert asked["cost"] > 2e-6 * asked["tokens"] / 2


def test_a_dry_run_writes_nothing_and_a_limit_counts(tmp_path: Path, ask: Ask) -> None:
    told: Callable[..., Any] = lambda *more: ask("run", "--dry-run", "--root", str(tmp_path / "no"), *more)  # noqa: E731
    assert "sample: new or changed 3, requests 0\n" in told("--limit", "3").stdout
    assert "--dry-run" in ask("rebuild", "--help").stdout
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("stages", [["refine"], ["parse"], ["parse", "parse"]])
def test_a_day_is_not_served_of_which_not_all_is_done(tmp_path: Path, stages: list[Stage]) -> None:
    from flows.backfill import backfill

    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        backfill.fn(date(2026, 3, 1), date(2026, 3, 2), str(tmp_path), publish=True, stages=stages)
    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        foresee_backfill(Root(tmp_path), "2026-03-01", "2026-03-02", publish=True, stages=stages)
    assert not list(tmp_path.iterdir())


def test_what_a_backfill_would_do_is_told_without_a_contradiction(tmp_path: Path, ask: Ask) -> None:
    for day in ("2026-03-01", "2026-03-02"):
        file = tmp_path / f"raw/documents/date={day}/run=r/part-0.parquet"
        file.parent.mkdir(parents=True)
        file.touch()
    dry = ("backfill", "--from", "2026-03-01", "--to", "2026-03-02", "--dry-run", "--root", str(tmp_path))
    said = " ".join(ask(*dry, "--publish").stdout.split())
    assert "nothing was done" in said
    assert "that of 2026-03-02 would be served if it passed the gate" in said
    assert "what is served stays" in " ".join(ask(*dry).stdout.split())
    assert "refine and parse, not refine alone" in ask.refused(*dry, "--publish", "--stage", "refine")
