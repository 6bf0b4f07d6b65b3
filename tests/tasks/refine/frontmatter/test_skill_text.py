from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.frontmatter.description import MAX_DESCRIPTION_CHARS, description_of, first_prose
from tasks.refine.frontmatter.skill_text import folder_of, name_of
from tasks.refine.text.strict_yaml import Value


@pytest.mark.parametrize(
    ("doc_id", "path", "folder"),
    [
        ("ann/pots/skills/kiln", "skills/kiln/SKILL.md", "kiln"),
        ("ann/pots/skills/kiln", "skills/kiln", "kiln"),
        ("ann/pots/skills/kiln", "skills\\kiln\\skill.md", "kiln"),
        ("ann/pots", "SKILL.md", "pots"),
        ("ann/pots", ".", "pots"),
        ("ann/pots/kiln", None, "kiln"),
        ("ann--pots--kiln", None, "kiln"),
        ("ann--", None, "ann--"),
    ],
)
def test_the_folder_comes_from_the_path_else_from_the_id(doc_id: str, path: str | None, folder: str) -> None:
    assert folder_of(doc_id, path) == folder


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("kiln-2", []),
        ("töpferei", ["name.not-ascii"]),
        ("技能", ["name.not-ascii"]),
        ("Kiln", ["name.pattern"]),
        ("kiln--fire", ["name.pattern"]),
        ("-kiln", ["name.pattern"]),
        ("kiln fire", ["name.pattern"]),
        ("k" * 64, []),
        ("k" * 65, ["name.too-long"]),
    ],
)
def test_a_name_is_judged_by_the_specification(name: str, codes: list[str]) -> None:
    kept, inferred, found = name_of(name, name)
    assert (kept, inferred) == (name, False)
    assert [f.code for f in found] == codes


def test_a_name_that_differs_from_its_folder_is_found() -> None:
    (found,) = name_of("kiln", "oven")[2]
    assert found.code == "name.folder"
    assert "oven" in found.message


@pytest.mark.parametrize("value", [None, "", " \n", ["kiln"], {"kiln": "x"}])
def test_a_missing_name_is_inferred_from_the_folder(value: Value | None) -> None:
    name, inferred, found = name_of(value, "kiln")
    assert (name, inferred, [f.code for f in found]) == ("kiln", True, ["name.missing"])


def test_a_name_is_kept_on_one_line() -> None:
    assert name_of(" Kiln\n fire\x00 ", "kiln")[0] == "Kiln fire"


SENTENCE = "Fire the pots slowly over two days."


@pytest.mark.parametrize(
    "body",
    [
        f"# Kiln\n\n{SENTENCE}\n\nMore about glazes follows here.",
        f"Kiln\n====\n{SENTENCE}",
        f"```sh\nkiln --all of the pots.\n```\n{SENTENCE}",
        f"- check the cones and shelves first.\n\n{SENTENCE}",
        f"> A potter once said so to me.\n\n{SENTENCE}",
        f"| cone | heat |\n|---|---|\n\n{SENTENCE}",
        f"<!-- a remark for the editor. -->\n\n{SENTENCE}",
        f"Use this whenever you have:\n- wet pots of any kind.\n- dry pots of any kind.\n\n{SENTENCE}",
        f"**Last fired**: 2024-01-02\n\n{SENTENCE}",
        "**Fire** the [pots](https://example.org/pots) `slowly`\nover __two__ *days*.",
    ],
    ids=["heading", "underlined", "code", "list", "quote", "table", "comment", "lead-in", "label", "markup"],
)
def test_the_first_prose_is_found_and_made_plain(body: str) -> None:
    assert first_prose(body) == SENTENCE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("# Kiln\n\n- Check the cones before firing", "Check the cones before firing"),
        ("Use it for:\n- cups\n- bowls", "Use it for: cups bowls"),
        ("# Kiln\n\n```\nfire --now\n```", "Kiln fire --now"),
        ("# Kiln\n\nHot.", "Kiln Hot."),
        ("***\n\n---", ""),
        ("Keep `_id` and `a_b` and 2 * 3 * 4 as they are.", "Keep _id and a_b and 2 * 3 * 4 as they are."),
        (
            "把陶器慢慢地烧制两天，直到全部完成为止，不要着急打开。",
            "把陶器慢慢地烧制两天，直到全部完成为止，不要着急打开。",
        ),
    ],
    ids=["only a list", "lead-in with its list", "only code", "short", "no letter", "not markup", "Chinese"],
)
def test_where_there_is_no_sentence_the_next_best_text_stands_in(body: str, expected: str) -> None:
    assert first_prose(body) == expected


def test_an_inferred_description_is_cut_at_a_words_end() -> None:
    text = first_prose("kiln " * 400)
    assert len(text) <= MAX_DESCRIPTION_CHARS
    assert set(text.split()) == {"kiln"}
    assert len(first_prose("窯" * 3_000)) == MAX_DESCRIPTION_CHARS


@given(st.text())
def test_an_inferred_description_is_one_line_within_the_limit(body: str) -> None:
    text = first_prose(body)
    assert len(text) <= MAX_DESCRIPTION_CHARS
    assert text == " ".join(text.split())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["Fires clay.", "Cools it."], "Fires clay., Cools it."),
        ({"Use when": "cold", "not": ["hot", "wet"]}, "Use when: cold; not: hot, wet"),
    ],
)
def test_lists_and_mappings_become_text(value: list[str] | dict[str, str | list[str]], expected: str) -> None:
    text, inferred, found = description_of(value, "x")  # type: ignore[arg-type]
    assert (text, inferred, [f.code for f in found]) == (expected, False, ["description.not-text"])


@pytest.mark.parametrize("value", [None, "", " \n", []])
def test_a_missing_description_is_inferred(value: str | None) -> None:
    text, inferred, found = description_of(value, SENTENCE)
    assert (text, inferred) == (SENTENCE, True)
    assert "description.missing" in [f.code for f in found]


def test_a_description_of_nothing_but_boilerplate_is_missing() -> None:
    text, inferred, found = description_of("Use when this capability is needed.", SENTENCE)
    assert (text, inferred) == (SENTENCE, True)
    assert [f.code for f in found] == ["boilerplate.removed", "description.missing"]


def test_a_long_description_is_found_and_never_cut() -> None:
    stated = "clay " * 300 + "end"
    text, _, found = description_of(stated, "x")
    assert text == stated
    assert [f.code for f in found] == ["description.too-long"]
