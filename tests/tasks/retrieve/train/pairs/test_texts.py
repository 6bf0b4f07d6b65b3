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


def test_a_rare_word_of_the_request_counts_for_more_than_two_that_every_window_holds() -> None:
    lines = [f"Line {n} tells of flour and of water and of nothing else here.\n" for n in range(120)]
    lines[60] = "Here a crust is what matters, " * 33 + "\n"  # a window of its own

    texts = texts_for("Mix flour, water, crust", Piece("user_turn", "", "body", 0, 0), "", "".join(lines))

    assert texts["window"] is not None
    assert "crust" in texts["window"]


def test_a_window_shares_a_word_with_its_request_that_is_no_function_word() -> None:
    lines = "This is the line that says what my oven is and where it is.\n" * 40

    assert (
        texts_for("Is it the crust of my loaf?", Piece("user_turn", "", "body", 0, 0), "", lines)["window"]
        is None
    )


def test_where_the_best_window_is_nothing_but_the_clause_the_next_is_taken() -> None:
    lines = [f"Line {n} tells of flour and of water and of nothing else here.\n" for n in range(120)]
    lines[30] = "- Rescuing a pale crust that cracked over the whole of its width\n"
    lines[90] = "A crust wants steam, and a hotter stone below the loaf.\n"
    body = "".join(lines)
    start = body.index(lines[30])
    piece = Piece("body_list", lines[30][2:-1], "body", start, start + len(lines[30]))

    texts = texts_for("Rescue a pale crust that cracked over the whole of its width", piece, "", body)

    assert texts["window"] is not None
    assert "A crust wants steam" in texts["window"]


def test_the_whole_line_of_a_piece_goes_and_so_do_its_own_words_elsewhere() -> None:
    row = '| "Feed my starter" | each single morning |\n'
    told = "Flour and water are all that a starter eats, and it is never full.\n"
    again = "Whenever bakers ask us to feed my starter early, stay calm.\n"
    body = told * 20 + row + told + again
    start = body.index(row)
    piece = Piece("body_quote", "whenever bakers ask us to feed my starter", "body", start, start + len(row))

    texts = texts_for("Feed my starter", piece, "", body)

    assert texts["window"] is not None
    assert "morning" not in texts["window"]
    assert "bakers" not in texts["window"]
    assert "early, stay calm" in texts["window"]


def test_words_that_meet_when_a_name_or_a_run_between_them_goes_are_cut_again() -> None:
    body = "Our bread made rye-bread of rye is what the guests of this house like best.\n"
    piece = Piece("user_turn", "", "body", 0, 0)

    texts = dict(SkillTexts.of("", body, Names(["rye-bread"])).of_request("bread made of rye", piece))

    assert texts["head"] == "Our  is what the guests of this house like best."
    assert without_grams("dough dough oven oven rises", grams_of("dough oven")).strip() == "rises"


def test_a_line_longer_than_a_text_is_cut_and_a_text_has_eight_words_or_more() -> None:
    piece = Piece("user_turn", "", "body", 0, 0)
    long = texts_for("Bake an oven", piece, "", "oven " * 700)
    seven, eight = (texts_for("Bake an oven", piece, "", "loaf " * n)["head"] for n in (7, 8))

    assert {name: text and len(text) <= CHARACTERS for name, text in long.items()} == {
        "description": None, "head": True, "window": True,
    }  # fmt: skip
    assert (seven, eight) == (None, ("loaf " * 8).strip())


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
