from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.train.pairs.verbs import base_of_gerunds, base_of_thirds
from tasks.retrieve.train.pairs.wording import plain, requests_of


@pytest.mark.parametrize(
    ("piece", "requests"),
    [
        ("when writing tests for a parser", ["Write tests for a parser"]),
        ("Planning a bake, shaping the loaf, and cleaning the oven",
         ["Plan a bake", "Shape the loaf", "Clean the oven"]),
        ("when writing, reviewing, or debugging shell scripts", ["Write, review, or debug shell scripts"]),
        ("for building ovens, chimneys, or tiled stoves", ["Build ovens, chimneys, or tiled stoves"]),
        ("when the user asks to bake a loaf", []),
        ("when the user asks to plan a bake", ["Plan a bake"]),
        ("if the user wants help with their starter", ["Help me with my starter"]),
        ("when users ask about oven temperatures", ["Tell me about oven temperatures"]),
        ("when you need a schedule for two loaves", ["I need a schedule for two loaves"]),
        ("User asks how to rescue a dough", ["How do I rescue a dough?"]),
        ("when you're planning a bake for guests", ["Plan a bake for guests"]),
        ("when encountering cracks in the crust", ["I am encountering cracks in the crust"]),
        ("when working with rye starters", ["Help me with rye starters"]),
        ("- **Check** the `oven` of the [house](https://a.example)", ["Check the oven of the house"]),
        ("Analyzes the crumb of a loaf", ["Analyze the crumb of a loaf"]),
        ("Ovens - Cleaning a stone oven", []),
        ("Oven care: Cleaning a stone oven", ["Clean a stone oven"]),
        ("when the oven smokes", []),
        ("when the user mentions rye", []),
        ("Wet doughs and old ovens", []),
        ("tagging every loaf of a batch", ["Tag every loaf of a batch"]),
        ("Tag lines on paper bags", []),
        ("Testing strategies for old ovens", []),
        ("Cleaning/repairing the oven door", ["Clean/repair the oven door"]),
        ("Getting odd errors from the oven", ["I am getting odd errors from the oven"]),
        ("Helping users plan a bake", ["Help me plan a bake"]),
        ("for test kitchens", []),
        ("Use this to clean the oven", ["Clean the oven"]),
        ("Planning a bake, cleaning", ["Plan a bake, cleaning"]),
        ("Cleaning ovens (scraping and fixing the stone) at home",
         ["Clean ovens (scraping and fixing the stone) at home"]),
        ("when you want to plan their bake", ["Plan their bake"]),
        ("when the user wants to plan their bake", ["Plan my bake"]),
        ("when the user wants to feed rye", []),
        ("Cleaning the oven - once a month", ["Clean the oven"]),
        ("when cleaning the user's oven", ["Clean my oven"]),
        ("when the user has a cold oven", ["I have a cold oven"]),
        ("when users ask about cleaning an oven", ["Clean an oven"]),
    ],
)  # fmt: skip
def test_what_is_told_of_a_user_becomes_what_a_user_asks(piece: str, requests: list[str]) -> None:
    assert requests_of(piece, spoken=False) == requests


def test_the_words_of_a_user_stay_as_they_are_but_for_markup() -> None:
    assert requests_of("> **why** is their crust so pale?", spoken=True) == ["Why is their crust so pale?"]
    assert requests_of("clean my oven (stone)", spoken=True) == ["Clean my oven (stone)"]


@pytest.mark.parametrize(
    ("form", "verb"),
    [("writing", "write"), ("running", "run"), ("opening", "open"), ("modelling", "model"), ("seeing", None)],
)
def test_gerunds_lead_to_their_verbs(form: str, verb: str | None) -> None:
    assert base_of_gerunds().get(form) == verb


@pytest.mark.parametrize(("form", "verb"), [("fixes", "fix"), ("applies", "apply"), ("deploys", "deploy")])
def test_third_persons_lead_to_their_verbs(form: str, verb: str) -> None:
    assert base_of_thirds()[form] == verb


@given(st.text(alphabet=st.sampled_from("ab *_`[]()-,.:>\n✅→"), max_size=60))
def test_plain_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    once = plain(text)

    assert "\n" not in once
    assert "*" not in once
    assert "`" not in once


@given(st.lists(st.sampled_from(["writing old letters", "cleaning the oven", "planning a bake"]), min_size=1))
def test_a_list_of_wishes_is_a_request_each(wishes: list[str]) -> None:
    assert len(requests_of(f"when {', '.join(wishes)}", spoken=False)) == len(wishes)
