from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
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


def test_bytes_that_are_no_utf8_are_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b'\n{"id": "\xe9"}\n')
    with pytest.raises(WrongInput, match=":2: not UTF-8"):
        list(read_fragments(path))


def test_a_missing_file_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="nowhere"):
        list(read_fragments(tmp_path / "nowhere.jsonl"))


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


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("old")

    def rows() -> Iterator[tuple[str, Typed, str]]:
        yield "a", Typed("step", 0.5), "rules-1"
        raise WrongInput("line 2")

    with pytest.raises(WrongInput, match="line 2"):
        write_typed(out, rows())
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert out.read_text() == "old"


@pytest.mark.parametrize("place", ["missing/out.jsonl", "."])
def test_a_place_that_cannot_be_written_is_wrong_input(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(WrongInput, match="give a file"):
        write_typed(folder / place, [])
    assert list(folder.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
