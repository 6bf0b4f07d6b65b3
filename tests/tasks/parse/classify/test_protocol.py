from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.root import Root
from tasks.models.llm.budget import Carried, Ceiling, Prices
from tasks.models.llm.client import Endpoint
from tasks.models.llm.question import Sampling
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import (
    TypingOptions,
    classifier_name,
    everything,
    llm_report,
    open_classifier,
    typing_identity,
)
from tasks.parse.classify.protocol import FragmentInContext, Typed, read_fragments, write_typed

LINE = {
    "id": "kiln#3",
    "heading_path": ["Firing", "Before lighting"],
    "block": "list_item",
    "previous": "Stack the shelves.",
    "text": "Check the damper.",
    "next": None,
}


def lines_file(folder: Path, *lines: str) -> Path:
    path = folder / "fragments.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_line_becomes_a_fragment_in_its_context(tmp_path: Path) -> None:
    fragments = list(read_fragments(lines_file(tmp_path, json.dumps(LINE))))
    assert fragments == [
        FragmentInContext(
            fragment_id="kiln#3",
            heading_path=("Firing", "Before lighting"),
            block="list_item",
            previous="Stack the shelves.",
            text="Check the damper.",
            next=None,
        )
    ]


def test_neighbours_may_be_missing_and_other_keys_are_ignored(tmp_path: Path) -> None:
    short = {"id": "a", "heading_path": [], "block": "prose", "text": "x", "node_type": "step"}
    (fragment,) = read_fragments(lines_file(tmp_path, "", json.dumps(short), "  "))
    assert (fragment.previous, fragment.next) == (None, None)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "not JSON"),
        ('["a"]', "no object"),
        (json.dumps({**LINE, "id": 3}), "`id`"),
        (json.dumps({**LINE, "text": None}), "`text`"),
        (json.dumps({**LINE, "block": ["prose"]}), "`block`"),
        (json.dumps({**LINE, "next": 0}), "`next`"),
        (json.dumps({**LINE, "heading_path": "Firing"}), "`heading_path`"),
        (json.dumps({**LINE, "heading_path": [1]}), "`heading_path`"),
        (json.dumps({key: LINE[key] for key in LINE if key != "heading_path"}), "`heading_path`"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path: Path, line: str, complaint: str) -> None:
    path = lines_file(tmp_path, json.dumps(LINE), "", line)
    with pytest.raises(WrongInput, match=rf"fragments\.jsonl:3: .*{complaint}"):
        list(read_fragments(path))


@given(st.lists(st.tuples(st.text(), st.floats(0.01, 0.99))))
def test_answers_are_written_a_line_each_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float]]
) -> None:
    out = tmp_path_factory.mktemp("typed") / "out.jsonl"
    write_typed(out, ((name, Typed("step", sure), "rules-1") for name, sure in rows))
    read = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [record["id"] for record in read] == [name for name, _ in rows]
    assert all(record.keys() == {"id", "node_type", "confidence", "classifier"} for record in read)
    assert [record["confidence"] for record in read] == pytest.approx([s for _, s in rows], abs=5e-5)


LOCAL = LocalClassifier.name
ENDPOINT = Endpoint("http://127.0.0.1:9/v1", "small-model", "sk-hush")
LLM = TypingOptions(ENDPOINT, threshold=None)
HYBRID = TypingOptions(ENDPOINT, threshold=0.6)


@pytest.mark.parametrize(
    ("llm", "name"),
    [
        (None, LOCAL),
        (LLM, "classify-1@small-model"),
        (HYBRID, f"{LOCAL}<0.6:classify-1@small-model"),
        (everything(HYBRID), "classify-1@small-model"),
    ],
)
def test_the_name_that_is_told_is_the_one_that_is_opened(
    llm: TypingOptions | None, name: str, tmp_path: Path
) -> None:
    assert classifier_name(LOCAL, llm) == name
    with open_classifier(Root(tmp_path), LocalClassifier(), llm) as (opened, _):
        assert opened.name == name


def test_the_local_classifier_alone_leaves_nothing_below_the_root(tmp_path: Path) -> None:
    with open_classifier(Root(tmp_path / "root"), LocalClassifier(), None) as (opened, _):
        assert isinstance(opened, LocalClassifier)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"endpoint": replace(ENDPOINT, model="large-model")},
        {"threshold": 0.7},
        {"threshold": None},
        {"sampling": Sampling(temperature=0.5)},
        {"batch": 10},
        {"accuracy": 0.9},
    ],
)
def test_what_shapes_an_answer_is_part_of_the_identity(change: dict[str, Any]) -> None:
    assert typing_identity("rules-1", replace(HYBRID, **change)) != typing_identity("rules-1", HYBRID)


def test_another_prompt_or_local_classifier_is_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before = typing_identity("rules-1", LLM)
    assert typing_identity("rules-2", LLM) != before
    monkeypatch.setattr("tasks.parse.classify.llm.PROMPT.name", "classify-99")
    assert typing_identity("rules-1", LLM) != before


@pytest.mark.parametrize(
    "change",
    [
        {"endpoint": replace(ENDPOINT, base_url="http://127.0.0.1:10/v1", api_key="", timeout=5.0)},
        {"prices": Prices(1.0, 2.0)},
        {"ceiling": Ceiling(tokens=5)},
    ],
)
def test_where_it_is_asked_and_what_it_costs_is_not(change: dict[str, Any]) -> None:
    assert typing_identity("rules-1", replace(HYBRID, **change)) == typing_identity("rules-1", HYBRID)


def test_options_travel_to_another_process_and_show_no_key() -> None:
    assert pickle.loads(pickle.dumps(HYBRID)) == HYBRID  # noqa: S301 - our own bytes
    assert "sk-hush" not in repr(HYBRID)
    assert "sk-hush" not in typing_identity("rules-1", HYBRID)


def test_numbers_out_of_range_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    wrong = replace(HYBRID, threshold=1.5)
    with pytest.raises(WrongInput, match=r"1\.5"), open_classifier(Root(tmp_path), LocalClassifier(), wrong):
        pytest.fail("opened")


def test_the_report_adds_up_what_a_run_asked() -> None:
    typed = {"documents": 9, "asked": 7, "unfinished": 2, "fallbacks: budget": 3, "fallbacks: refused": 1}
    account = Carried({"requests": 4, "prompt_tokens": 1_000_000, "completion_tokens": 10}, spent=True)
    report = llm_report("x@m", replace(LLM, prices=Prices(prompt=2.0)), typed, account)
    assert report is not None
    assert report["fallbacks"] == {"budget": 3, "refused": 1}
    wanted = {"classifier": "x@m", "asked": 7, "unfinished": 2, "partial": True, "requests": 4, "cost": 2.0}
    assert {k: report[k] for k in wanted} == wanted
    assert llm_report("rules-1", None, typed, account) is None
