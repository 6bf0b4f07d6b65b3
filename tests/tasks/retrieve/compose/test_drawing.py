"""A plan as Mermaid text and as an SVG file: both show what it says, and no text of others is obeyed."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.visible import visible
from tasks.retrieve.compose.dependencies import KINDS
from tasks.retrieve.compose.drawing import EDGE_LOOKS, as_mermaid, escaped, plan_file
from tests.support.hand_plans import hand_plan, party

# Whatever a line of ours may be; a label holds no sign but those of entities, and breaks of ours.
LABEL = r'\["((?:[\w ,/.-]|#\d+;|<br/>)*)"\]'
LINE = re.compile(
    rf"flowchart TD|\s*subgraph g\d+{LABEL}|\s*s\d+{LABEL}|\s*none{LABEL}|  end|"
    r"  s\d+ (?:-->|-\.->|==>)\|(?:data|order|condition)\| s\d+|  classDef [\w ,:#-]+|  class [s\d,]+ \w+"
)


def shown(label: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)


def labels(text: str) -> dict[str, list[str]]:
    """Return the lines of each step's label, as a reader sees them."""
    found = re.findall(rf"^\s*(s\d+){LABEL}$", text, re.MULTILINE)
    return {name: [shown(line) for line in label.split("<br/>")] for name, label in found}


def test_it_is_this_text() -> None:
    assert (
        as_mermaid(party())
        == """\
flowchart TD
  subgraph g1["group 1, side by side"]
    s1["step 1, fetch the guest list<br/>by shelf/skill-1, 70 percent sure"]
    s2["step 2, order flour<br/>by shelf/skill-2, 70 percent sure"]
    s3["step 3, look up the weather<br/>nothing served fits this step"]
  end
  s4["step 4, bake<br/>by shelf/skill-4, 70 percent sure"]
  s5["step 5, move it indoors<br/>only if it rains<br/>by shelf/skill-5, 70 percent sure"]
  s6["step 6, invite all<br/>by shelf/skill-6, 70 percent sure"]
  s2 -->|data| s4
  s3 ==>|condition| s5
  s4 -.->|order| s5
  s1 -->|data| s6
  s5 -.->|order| s6
  classDef gap fill:#fff,stroke:#a32020,stroke-width:2px,stroke-dasharray:5 3
  classDef served fill:#fff,stroke:#444
  class s1,s2,s4,s5,s6 served
  class s3 gap
"""
    )


def test_a_plan_without_steps_says_so() -> None:
    assert as_mermaid(hand_plan([])) == 'flowchart TD\n  none["no step, as nothing is asked for"]\n'


@pytest.mark.parametrize(
    "text",
    [
        '"]; s9["', "a\nend\nsubgraph x", "<b onclick=x>&lt;</b>", "#35; #quot; 50 #", "`code` **b** _i_",
        "1. - * +", "%%{init: {}}%%", "style s1 fill:#f00;", "www.example.org a@b.org https://x.org",
        "x --> y | z", "click s1 href", "{a}[b](c)", "\x1b[31m\u202e", "🥖 パン", "-a- --b",
    ],
)  # fmt: skip
def test_signs_of_mermaid_markdown_and_html_are_shown_as_they_are(text: str) -> None:
    drawn = as_mermaid(hand_plan([text], conditions={1: text}, ids={1: text}))
    said = visible(" ".join(text.split()))
    assert labels(drawn) == {"s1": [f"step 1, {said}", f"only {said}", f"by {said}, 70 percent sure"]}
    assert all(LINE.fullmatch(line) for line in drawn.splitlines())


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_leaves_its_label(one: str, other: str) -> None:
    drawn = as_mermaid(hand_plan([one, other], [(1, 2, "data")], gaps=[2], ids={1: other}))
    assert [line for line in drawn.split("\n")[:-1] if not LINE.fullmatch(line)] == []
    assert list(labels(drawn)) == ["s1", "s2"]
    assert drawn.encode()


@given(st.text(max_size=150))
def test_what_is_escaped_can_be_read_back(text: str) -> None:
    assert shown(escaped(text)) == visible(" ".join(text.split()))


def texts(svg: bytes) -> list[str]:
    return ["".join(e.itertext()) for e in Xml.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def classed(svg: bytes, name: str) -> list[Xml.Element]:
    return [e for e in Xml.fromstring(svg).iter() if e.get("class", "") == name]  # noqa: S314


def test_a_file_shows_title_legend_groups_steps_conditions_and_gaps() -> None:
    shown = texts(plan_file(party()))
    assert shown[0].endswith(": 6 steps, 1 gap")
    assert {"data 2", "order 2", "condition 1", "served 5", "nothing served fits 1"} <= set(shown)
    order = [
        "group 1, side by side", "1. fetch the guest list", "shelf/skill-1", "3. look up the weather",
        "nothing served fits this step", "group 2", "5. move it indoors", "only: if it rains",
        "shelf/skill-5",
    ]  # fmt: skip
    assert [text for text in shown if text in order] == order
    assert shown.count("70% sure") == 5


def test_a_gap_is_drawn_unlike_a_step_and_edges_by_their_type() -> None:
    picture = plan_file(party())
    assert (len(classed(picture, "node served")), len(classed(picture, "node gap"))) == (
        6,
        2,
    )  # one: the legend
    assert set(EDGE_LOOKS) == set(KINDS)
    for kind, count in (("data", 2), ("order", 2), ("condition", 1)):
        assert len(classed(picture, f"edge {kind}")) == count + 1
        assert EDGE_LOOKS[kind][0] in picture.decode()
    assert len(set(EDGE_LOOKS.values())) == len(KINDS)


@pytest.mark.parametrize("plan", [party(), hand_plan([]), hand_plan(["bake"])])
def test_a_plan_of_any_size_is_drawn_and_the_same_plan_gives_the_same_bytes(plan: dict[str, object]) -> None:
    assert plan_file(plan).startswith(b"<?xml")
    assert plan_file(plan) == plan_file(plan)


def test_a_long_text_goes_on_in_further_lines_and_ends_in_an_ellipsis() -> None:
    shown = texts(plan_file(hand_plan(["word " * 100, "面包需要" * 40])))
    assert len([text for text in shown if "word" in text]) == 4  # the title, and three lines
    assert [text for text in shown if text.endswith("word …")]
    assert len([text for text in shown if "面包" in text]) >= 2
