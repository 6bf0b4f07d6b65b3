from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.retrieve.train.pairs.clauses import clause_pieces
from tasks.retrieve.train.pairs.names import Names
from tasks.retrieve.train.pairs.pieces import Piece
from tasks.retrieve.train.pairs.sections import section_pieces
from tasks.retrieve.train.pairs.texts import CHARACTERS, GRAM, SkillTexts, grams_of, without_grams

NONE = Names([])
WORDS = st.lists(
    st.sampled_from(["dough", "oven", "crust", "starter", "flour", "water", "salt", "rye"]), max_size=40
)
SEPARATOR = st.sampled_from([" ", "\n", ", ", ". "])


def texts_for(query: str, piece: Piece, description: str, body: str) -> dict[str, str | None]:
    return dict(SkillTexts.of(description, body, NONE).of_request(query, piece))


def test_the_clause_is_cut_from_the_description_and_from_wherever_it_stands_again() -> None:
    clause = "Use when rescuing a dough that ran over the bowl."
    description = f"Bakes rye bread at home in a very hot stone oven. {clause}"
    body = "Keep flour dry and away from steam, always. \n" * 40 + (
        f"{clause} Then fold the dough again and let it rest in the cold.\n"
    )
    (piece,) = clause_pieces(description)

    texts = texts_for("Rescue a dough that ran over the bowl", piece, description, body)

    assert texts["description"] == "Bakes rye bread at home in a very hot stone oven."
    assert texts["head"] is not None
    assert texts["head"].startswith("Keep flour dry")
    assert texts["window"] is not None
    assert "fold the dough again" in texts["window"]
    assert "ran over" not in texts["window"]


def test_the_window_is_the_part_after_the_head_that_says_most_of_the_request() -> None:
    lines = [f"Line {n} tells of flour and of water and of nothing else here.\n" for n in range(120)]
    lines[70] = "A pale crust wants more steam, and a hotter stone below the loaf.\n"

    texts = texts_for("Why is my crust pale?", Piece("user_turn", "", "body", 0, 0), "", "".join(lines))

    assert texts["window"] is not None
    assert "A pale crust" in texts["window"]


def test_a_text_of_which_nothing_is_left_is_none() -> None:
    description = "Use when rescuing a dough."
    (piece,) = clause_pieces(description)

    assert set(texts_for("Rescue a dough", piece, description, "Short.").values()) == {None}


def test_the_name_leaves_a_text_that_a_request_would_find_by_it() -> None:
    names = Names(["rye-bread"])
    body = "The rye bread skill bakes loaves in an oven that is very hot.\n"
    piece = Piece("user_turn", "", "body", 0, 0)

    texts = dict(SkillTexts.of("", body, names).of_request("Bake bread out of rye", piece))

    assert texts["head"] == "The  skill bakes loaves in an oven that is very hot."


@given(WORDS, WORDS, WORDS, SEPARATOR)
def test_no_run_of_the_request_stands_in_a_text_that_was_cut(
    before: list[str], asked: list[str], after: list[str], separator: str
) -> None:
    query = " ".join(asked)
    grams = grams_of(query)

    left = without_grams(separator.join([*before, *asked, *after]), grams)

    words = left.replace(",", " ").replace(".", " ").split()
    for gram in grams:
        n = len(gram)
        assert gram not in {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


@given(st.lists(st.text(alphabet="ab \n", max_size=900), max_size=8), st.integers(0, 7), WORDS)
def test_no_text_holds_the_clause_or_a_run_of_it(lines: list[str], place: int, asked: list[str]) -> None:
    assume(len(asked) >= 3)
    item = f"- Planning {' '.join(asked)}\n"
    listed = "".join(f"{line}\n" for line in lines[place:])
    body = "## When to use\n\n" + "".join(f"{line}\n" for line in lines[:place]) + item + listed
    pieces = [piece for piece in section_pieces(body) if piece.text == item[2:-1]]
    for piece in pieces:
        query = f"Plan {' '.join(asked)}"
        for text in texts_for(query, piece, "A description of eight words or a few more.", body).values():
            held = set() if text is None else grams_of(text)
            if len(query.split()) >= GRAM:
                assert not held & grams_of(query)
            assert text is None or len(text) <= CHARACTERS
            assert item.strip() not in (text or "")
