from __future__ import annotations

import json

import pytest

from tasks.retrieve.train.pairs.evals import eval_pieces


def prompts(held: object) -> list[str]:
    return [piece.text for piece in eval_pieces(json.dumps(held).encode())]


@pytest.mark.parametrize(
    "held",
    [
        {"skill_name": "bread", "evals": [{"id": 1, "prompt": "Rescue my dough"}]},
        [{"query": "Rescue my dough", "should_trigger": True}],
        {"cases": [{"question": "Rescue my dough"}, {"name": "no prompt"}, "no object"]},
        {"tests": [{"prompt": 3, "input": "Rescue my dough"}]},
    ],
)
def test_prompts_of_the_known_forms_are_read(held: object) -> None:
    assert prompts(held) == ["Rescue my dough"]


def test_an_eval_that_must_not_trigger_the_skill_is_passed_over() -> None:
    assert prompts([{"query": "Fry an egg", "should_trigger": False}, {"query": "Bake a loaf"}]) == [
        "Bake a loaf"
    ]


@pytest.mark.parametrize(
    "content", [b"", b"no JSON", b"\xff\xfe", b'"a text"', b"[1, null]", b'{"evals": 3}']
)
def test_what_is_no_file_of_evals_has_no_requests(content: bytes) -> None:
    assert list(eval_pieces(content)) == []


def test_a_piece_cuts_nothing_because_it_stands_in_another_file() -> None:
    (piece,) = eval_pieces(b'[{"prompt": "Rescue my dough"}]')

    assert (piece.origin, piece.start, piece.end) == ("evals", 0, 0)
