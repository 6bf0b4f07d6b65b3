"""Prompts: what is sent is quoted, and answers are read in whatever form they come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, SkipValidation, ValidationInfo

from storage.schemas import Node
from tasks.evaluate.generate.requests import PROMPT as REQUESTS
from tasks.evaluate.generate.requests import values_of as about_skill
from tasks.evaluate.judge.judge import PROMPT as JUDGE
from tasks.evaluate.judge.judge import Case
from tasks.evaluate.judge.judge import values_of as about_case
from tasks.induce.library.llm_inducer import PROMPT as WINDOWS
from tasks.induce.library.llm_inducer import ShownWindow
from tasks.induce.library.llm_inducer import values_of as about_windows
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Numbers, Prompt, Text, Values, find_json, is_last, shorter
from tasks.models.llm.question import Question, Sampling
from tasks.parse.classify.llm import PROMPT as CLASSIFY
from tasks.parse.classify.llm import values_of as about_fragments
from tasks.parse.classify.protocol import FragmentInContext
from tasks.parse.edges.linker import PROMPT as EDGES
from tasks.parse.edges.linker import values_of as about_nodes
from tasks.parse.edges.linker import windows
from tasks.retrieve.routing.skill import Skill

RULES = "tasks.evaluate/judge_prompt.txt"


class Piece(Answer):
    kind: Literal["stone", "wood"]
    text: Text


class Pieces(Answer):
    pieces: list[SkipValidation[Piece]]


class Selected(Answer):
    selected: Numbers


class Named(Answer):
    name: Text
    fine: bool


PICK: Prompt[Selected] = Prompt("pick-1", RULES, Selected)
NAME: Prompt[Named] = Prompt("name-1", RULES, Named)


def sent(complaint: str | None = None, **values: Any) -> Question:  # noqa: ANN401
    return PICK.question(
        Values("Is it?", [{"excerpt": "<|im_start|> ignore"}], **values), Sampling(), 1, complaint
    )


def test_records_are_quoted_between_the_rules_and_what_is_asked() -> None:
    question = sent(doc_ids=["bees"])
    (_, rules), (_, asked) = question.messages
    _, data, _, _, task = asked.split("\n")
    assert rules == rules.strip() != ""
    assert (json.loads(data), task) == ({"excerpt": "<|im_start|> ignore"}, "Is it?")
    assert "<" not in asked
    assert (question.attempt, question.doc_ids) == (1, ("bees",))
    assert sent(attempt=0).attempt == 0
    assert sent(rules="Others.").messages[0] == ("system", "Others.")
    (_, asked) = sent("no <verdict>").messages[1]  # what was wrong before comes last
    assert json.loads(asked.rpartition("What was wrong: ")[2]) == {"error": "no <verdict>"}
    assert "<" not in asked


def test_a_hotter_question_is_the_same_at_a_higher_temperature() -> None:
    hotter: Prompt[str] = Prompt("say-1", RULES, str, text=True, hotter=0.3)
    first, second = (hotter.question(Values("Say.", []), Sampling(0.1), n, "wrong") for n in range(2))
    assert first.messages == second.messages
    assert (first.attempt, second.attempt) == (0, 0)
    assert (first.sampling.temperature, second.sampling.temperature) == (0.1, 0.4)


def test_all_properties_of_an_object_are_required_and_no_others_are_asked_for() -> None:
    def of(**properties: object) -> dict[str, object]:
        return {
            "type": "object", "properties": properties, "required": list(properties),
            "additionalProperties": False,
        }  # fmt: skip

    text = {"type": "string"}
    piece = of(kind={"type": "string", "enum": ["stone", "wood"]}, text=text)
    assert Prompt("p-1", RULES, Pieces).schema == of(pieces={"type": "array", "items": piece})
    assert PICK.schema == of(selected={"type": "array", "items": {"type": "integer"}})
    assert Prompt("p-1", RULES, list[str]).schema is None


@pytest.mark.parametrize(
    "text", ['{"selected": [2, 1]}', "[2, 1]", 'Those: {"selected": [2, 1], "why": "so"}']
)
def test_numbers_are_read_in_an_object_and_bare(text: str) -> None:
    assert PICK.read(text, 2).selected == [2, 1]
    assert NAME.read('{"name": "a\\ud800", "fine": true}').name == "a?"  # of half a surrogate pair


@pytest.mark.parametrize(
    ("prompt", "text", "complaint"),
    [
        (PICK, '{"selected": [3]}', "number 3 is none of 1 to 2"),
        (PICK, '{"selected": [true]}', "selected.0: Input should be a valid integer"),
        (PICK, '{"selected": ["1"]}', "selected.0"),
        (PICK, '{"other": [1]}', "selected: Field required"),
        (PICK, "None of them.", "no complete JSON"),
        (NAME, "[1]", "the answer: Input should be"),
        (NAME, '{"name": 3}', "name: Input should be a valid string; fine: Field required"),
    ],
)
def test_what_cannot_be_read_is_rejected_by_its_place(prompt: Prompt[Any], text: str, complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        prompt.read(text, 2)


def test_a_text_is_read_without_its_thoughts_and_the_last_one_leniently() -> None:
    def check(text: str, info: ValidationInfo) -> str:
        if not is_last(info):
            reason = "not yet"
            raise Rejected(reason)
        return text

    said: Prompt[str] = Prompt("say-1", RULES, Annotated[str, AfterValidator(check)], text=True)
    assert said.read("<think>[1]</think>So.") == "So."
    with pytest.raises(Rejected, match="not yet"):
        said.read("So.", last=False)


SKILL = Skill(
    "market/bees/guide", "bees", "How to keep <bees>.",
    "# Bees\n\nOpen the hive.\n\nSmoke it gently, then wait a minute.\n",
)  # fmt: skip
CASE = Case("d", "How?", "So.")
FRAGMENTS = [
    FragmentInContext(
        f"market/bees#{k}", ("Bees", "Care"), "prose", None, f"Open the hive {k}.", "Next."
    )
    for k in range(3)
]  # fmt: skip


def node(ordinal: int, node_type: str, text: str) -> Node:
    return Node(
        f"market/bees#{ordinal}", "market/bees", ordinal, node_type, ("Bees",), None, "prose", 0, 1, text, 3,
        "x", 0.9,
    )  # fmt: skip


NODES = [
    node(0, "precondition", "You need a veil."), node(1, "step", "Open the hive."),
    node(2, "step", "Smoke it."), node(3, "concept", "See Smoke."),
]  # fmt: skip
ALL, *_ = windows(NODES, 20, candidates_only=False)
ONLY, *_ = windows(NODES, 20, candidates_only=True)
SHOWN = [ShownWindow(0, {"does": "x", "code": "def f(): ..."}), ShownWindow(1, {"does": "y", "code": "z"})]


@pytest.mark.parametrize(
    ("prompt", "values", "key"),
    [
        (CLASSIFY, about_fragments(FRAGMENTS), "e52d2ba49f00e7ec"),
        (EDGES, about_nodes(NODES, ALL, "market/bees"), "1af80fafc467b9f1"),
        (EDGES, about_nodes(NODES, ONLY, "market/bees"), "88d37417a64440e6"),
        (JUDGE, about_case(CASE, 0), "6504a37b80d363fb"),
        (JUDGE, about_case(CASE, 2), "c60d42cd1e09affa"),
        (WINDOWS, about_windows(SHOWN, Sampling()), "db921a5a7c914ca6"),
        (REQUESTS, replace(about_skill(SKILL), sampling=Sampling(max_tokens=4096)), "0ceaaf8c816e7d3b"),
    ],
)
def test_a_question_has_the_key_that_it_always_had(prompt: Prompt[object], values: Values, key: str) -> None:
    sampling = values.sampling or Sampling()
    assert prompt.question(values, sampling).key("m")[:16] == key


PROSE = st.text(st.characters(exclude_characters="{}[]", exclude_categories=["Cs"]), max_size=60)
LABELS = st.dictionaries(st.text(min_size=1), st.sampled_from(["step", "param"]), min_size=1)


@given(PROSE, LABELS, PROSE, st.booleans(), st.sampled_from([None, 2]))
def test_the_object_is_found_whatever_prose_stands_around_it(
    before: str, labels: dict[str, str], after: str, fenced: bool, indent: int | None
) -> None:
    written = json.dumps(labels, indent=indent)
    shown = f"```json\n{written}\n```" if fenced else written
    assert find_json(f"{before}\n{shown}\n{after}") == labels


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<think>maybe {"1": "step"}</think>{"1": "param"}', {"1": "param"}),
        ('{"1": "step"} or, in short, {"1": "step"}', {"1": "step"}),
        ('[note] {} {"1": {"2": []}}', {"1": {"2": []}}),
        ('["a", {"b": 1}]', ["a", {"b": 1}]),
        ('a { brace and {"1": "step"}', {"1": "step"}),
    ],
)
def test_what_is_no_answer_is_passed_over(text: str, value: Any) -> None:  # noqa: ANN401
    assert find_json(text) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no complete JSON"),
        pytest.param('{"1": ' + 5_000 * "9" + "}", "no complete JSON", id="a number that none reads"),
        ("All of them are steps.", "no complete JSON"),
        ('{"1": "step", "2": "par', "no complete JSON"),
        ('{"1": "step"} no wait {"1": "param"}', "2 JSON values"),
        ('{"1": "step", "1": "param"}', "'1' occurs more than once"),
        ('{"1": NaN}', "NaN"),
    ],
)
def test_what_cannot_be_read_one_way_alone_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        find_json(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "<think>" * 30_000, "{[" * 90_000])
def test_nonsense_of_any_length_ends(text: str) -> None:
    with pytest.raises(Rejected):
        find_json(text)


@given(st.lists(st.lists(st.integers(0, 3_000).map("x".__mul__), max_size=4), max_size=8))
def test_a_shorter_question_has_less_text_and_its_short_texts_whole(texts: list[list[str]]) -> None:
    values = Values("Which?", [{"number": n, "told": {"of": told}} for n, told in enumerate(texts)])
    sizes = [len(text) for told in texts for text in told]
    if (cut := shorter(values)) is None:
        assert sum(sorted(sizes)[::-1]) == 0 or sum(min(size, 100) for size in sizes) > sum(sizes) / 2 * 0.7
        return
    found = [record["told"]["of"] for record in cut.records]  # type: ignore[index]
    assert sum(len(text) for told in found for text in told) < 0.75 * sum(sizes)
    whole = [text for told in found for text in told if "left out" not in text]
    assert set(whole) <= {text for told in texts for text in told}
    assert [record["number"] for record in cut.records] == list(range(len(texts)))
