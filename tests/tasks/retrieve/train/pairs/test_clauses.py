from __future__ import annotations

import pytest

from tasks.retrieve.train.pairs.clauses import clause_pieces, sentences


def found(description: str) -> list[tuple[str, str]]:
    return [(piece.origin, piece.text) for piece in clause_pieces(description)]


@pytest.mark.parametrize(
    ("description", "pieces"),
    [
        (
            "Bakes rye bread. Use when shaping wet dough or cleaning a stone oven.",
            [("description_clause", "when shaping wet dough or cleaning a stone oven.")],
        ),
        (
            "Bakes bread. This skill should be used when the user asks to feed a starter.",
            [("description_clause", "when the user asks to feed a starter.")],
        ),
        (
            'Bakes bread. Use when the user says "my crust is too pale" or "feed the starter".',
            [("description_quote", "my crust is too pale"), ("description_quote", "feed the starter")],
        ),
        (
            "Bakes bread. Triggers: shape a wet dough, feed a starter",
            [("description_trigger", "shape a wet dough"), ("description_trigger", "feed a starter")],
        ),
        (
            "Bakes bread. Triggers: shape a wet dough, feed a starter.",
            [("description_trigger", "shape a wet dough"), ("description_trigger", "feed a starter")],
        ),
        (
            'Bakes bread. Triggers: "shape a wet dough", "feed a starter"',
            [("description_quote", "shape a wet dough"), ("description_quote", "feed a starter")],
        ),
        (
            'Bakes bread. Use for shaping the "classic boule" of rye.',
            [("description_clause", "for shaping")],
        ),
        (
            "Use when shaping a loaf, or the user wants to score its crust.",
            [
                ("description_clause", "when shaping a loaf"),
                ("description_clause", "when the user wants to score its crust."),
            ],
        ),
        (
            "Use when the user wants a schedule, asks for a recipe, or needs to feed a starter.",
            [
                ("description_clause", "when the user wants a schedule"),
                ("description_clause", "when asks for a recipe"),
                ("description_clause", "when needs to feed a starter."),
            ],
        ),
    ],
)
def test_clauses_triggers_and_quoted_requests_are_found(
    description: str, pieces: list[tuple[str, str]]
) -> None:
    assert found(description) == pieces


@pytest.mark.parametrize(
    "description",
    [
        "Bakes rye bread in a stone oven.",
        "Bakes rye bread. Do not use when shaping pastry.",
        "",
    ],
)
def test_a_description_that_says_no_occasion_has_no_requests(description: str) -> None:
    assert found(description) == []


def test_a_piece_cuts_the_whole_sentence_that_it_stands_in() -> None:
    description = "Bakes rye bread. Use when shaping wet dough. Works in any oven."

    (piece,) = clause_pieces(description)

    assert description[: piece.start] + description[piece.end :] == "Bakes rye bread.  Works in any oven."


def test_an_abbreviation_ends_no_sentence() -> None:
    text = "Use for doughs, e.g. Rye or spelt. Bakes them too."

    assert [text[a:b] for a, b in sentences(text)] == [
        "Use for doughs, e.g. Rye or spelt.",
        "Bakes them too.",
    ]
