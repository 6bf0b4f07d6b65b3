from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import TerminalError
from storage.schemas import EDGE_TYPES, NODE_TYPES, Edge, Node
from tasks.retrieve.graph.figure import FORMATS
from tasks.retrieve.graph.graph import SkillGraph, graph_of
from tasks.retrieve.graph.layout import lay_out, one_line
from tasks.retrieve.graph.picture import EDGE_STYLES, NODE_COLOURS, draw
from tasks.retrieve.paging.types import PagedDocument


def node(ordinal: int, text: str, kind: str = "concept", *path: str) -> Node:
    return Node(
        node_id=f"d#{ordinal}", doc_id="d", ordinal=ordinal, node_type=kind, heading_path=path, lead_in=None,
        block="prose", start=0, end=len(text), text=text, n_tokens=1, classifier="by-hand", confidence=0.5,
    )  # fmt: skip


NODES = [
    node(0, "Bread needs time.", "concept", "Bread"),
    node(1, "Only when the oven is hot:", "precondition", "Bread", "Baking"),
    node(2, "Slide the loaf in.", "step", "Bread", "Baking"),
    node(3, "As in **Baking**, mind the heat.", "concept", "Bread", "Notes"),
    node(4, "Slide the loaf into it.", "step", "Bread", "Notes"),
]
VECTORS = np.eye(5, dtype=np.float32)
VECTORS[4] = VECTORS[2]


@pytest.fixture(scope="module")
def graph() -> SkillGraph:
    return graph_of(PagedDocument("d", "", NODES, VECTORS))


def texts(svg: bytes) -> list[str]:
    return ["".join(e.itertext()) for e in Xml.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def test_a_graph_counts_its_nodes_and_edges_by_type(graph: SkillGraph) -> None:
    assert graph.node_counts() == {
        "step": 2, "example": 0, "param": 0, "precondition": 1, "error_handling": 0, "concept": 2
    }  # fmt: skip
    assert graph.edge_counts() == {"sequence": 4, "semantic": 1, "reference": 1, "condition": 1}
    # The condition joins neighbours, which their sequence has joined already.
    assert graph.density() == 6 / 20


@pytest.mark.parametrize("count", [0, 1])
def test_a_document_of_no_pairs_has_a_graph_too(count: int) -> None:
    found = graph_of(PagedDocument("d", "", NODES[:count], VECTORS[:count]))

    assert (found.density(), found.edges) == (0.0, [])
    assert draw(found, "svg").startswith(b"<?xml")


def test_as_a_dict_it_names_every_node_and_edge(graph: SkillGraph) -> None:
    found = graph.as_dict()

    assert [n["node_id"] for n in found["nodes"]] == [n.node_id for n in NODES]
    semantic = [e for e in found["edges"] if e["edge_type"] == "semantic"]
    assert semantic == [{"src_id": "d#2", "dst_id": "d#4", "edge_type": "semantic", "weight": 1.0}]


def test_the_picture_shows_title_legend_headings_and_texts(graph: SkillGraph) -> None:
    shown = texts(draw(graph, "svg"))

    assert "d: 5 nodes, 7 edges" in shown
    assert {f"{kind} {n}" for kind, n in {**graph.node_counts(), **graph.edge_counts()}.items()} <= set(shown)
    # A heading stands once, above the first node below it.
    order = [
        "Bread",
        NODES[0].text,
        "Baking",
        NODES[1].text,
        NODES[2].text,
        "Notes",
        "As in Baking, mind the heat.",
    ]
    assert [text for text in shown if text in order] == order


def test_nodes_and_edges_have_the_colour_of_their_type(graph: SkillGraph) -> None:
    picture = draw(graph, "svg").decode().lower()
    without = draw(SkillGraph("d", NODES[:1], []), "svg").decode().lower()

    for colour in [*NODE_COLOURS.values(), *(colour for colour, _ in EDGE_STYLES.values())]:
        assert colour.lower() in picture
    step, concept = NODE_COLOURS["step"].lower(), NODE_COLOURS["concept"].lower()
    assert picture.count(step) - without.count(step) >= 2
    assert without.count(concept) > without.count(NODE_COLOURS["param"].lower())
    assert (set(NODE_COLOURS), set(EDGE_STYLES)) == (set(NODE_TYPES), set(EDGE_TYPES))


def test_the_same_graph_gives_the_same_bytes(graph: SkillGraph) -> None:
    assert draw(graph, "svg") == draw(graph, "svg")


@pytest.mark.parametrize(
    "text", ["</text><script>alert(1)</script>", "<!-- -->&amp; ]]>", "$x_$ costs $5", "$\\frac$"]
)
def test_text_of_a_skill_is_shown_and_never_obeyed(text: str) -> None:
    picture = draw(SkillGraph(text, [node(0, text, "step", text)], []), "svg")

    assert [t for t in texts(picture) if t == text] == [text, text]
    assert not [e for e in Xml.fromstring(picture).iter() if e.tag.endswith("script")]  # noqa: S314


@pytest.mark.parametrize("text", ["面包需要时间", "الخبز", "a\x00b\x0b\x1b[31m\ud800c\u202e"])
def test_any_script_and_any_control_character_can_be_drawn(text: str) -> None:
    for form in FORMATS:
        assert draw(SkillGraph("d", [node(0, text, "step", text)], []), form)


def test_without_matplotlib_the_error_says_what_to_install(
    graph: SkillGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("matplotlib.figure")
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(TerminalError, match=r"pip install '\.\[draw\]'"):
        draw(graph, "svg")


def test_matplotlib_is_loaded_by_drawing_alone() -> None:
    script = (
        "import sys, flows.commands.corpus;"
        "print([m for m in ('matplotlib', 'prefect', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_no_edge_runs_through_the_legend_or_out_of_the_picture() -> None:
    nodes = [node(k, f"node {k}", "step", f"h{k // 3}") for k in range(60)]
    pairs = itertools.permutations(range(0, 60, 3), 2)
    edges = [Edge(f"d#{a}", f"d#{b}", "reference", 1.0) for a, b in pairs]
    edges += [Edge(f"d#{k}", f"d#{k + 1}", "sequence", 1.0) for k in range(59)]

    picture = Xml.fromstring(draw(SkillGraph("d", nodes, edges), "svg"))  # noqa: S314

    width, height = (float(size) for size in picture.attrib["viewBox"].split()[2:])
    drawn = [e for e in picture.iter() if e.get("id", "").startswith("edge ")]
    points = np.array([point for edge in drawn for point in curve(edge[0].attrib["d"])])
    assert len(drawn) == len(edges)
    assert (points >= [0, 0.75 * 72]).all(), "the legend ends 0.75 inches below the top"
    assert (points <= [width, height]).all()


def curve(path: str) -> list[list[float]]:
    """Return points of an SVG's path of straight lines and quadratic curves, in the picture's units."""
    points: list[list[float]] = []
    for kind, *numbers in (word.split() for word in re.findall(r"[MLQ][^A-Z]*", path)):
        ends = np.array(numbers, float).reshape(-1, 2)
        for t in np.linspace(0.1, 1, 10) if kind == "Q" else []:
            points.append(
                list((1 - t) ** 2 * np.array(points[0]) + 2 * t * (1 - t) * ends[0] + t**2 * ends[1])
            )
        points.append(list(ends[-1]))
    return points


@pytest.mark.parametrize(
    ("block", "text", "label"),
    [
        ("list_item", "- **Seeds.** Up to *20 %*", "- Seeds. Up to 20 %"),
        ("prose", "Run `ls -l` in [the folder](https://a.example).", "Run ls -l in the folder."),
        ("prose", "**Never do this.", "Never do this."),
        ("prose", "2**3 is 8, and \\*.py names files", "2**3 is 8, and *.py names files"),
        ("prose", "`a**b`", "a**b"),
        ("table", "| Time | What |\n|---|:-:|\n| 8:00 | **feed** |", "Time | What; 8:00 | feed"),
        ("code", "```sh\nls **/*.py\n```", "ls **/*.py"),
        ("code", "```\n```", "``` ```"),
    ],
)
def test_a_label_shows_words_without_the_marks_of_markdown(block: str, text: str, label: str) -> None:
    (row,) = lay_out([replace(node(0, text), block=block)]).rows

    assert row.label == label


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), max_size=140))
def test_a_heading_is_never_the_last_line_of_a_column(headings: list[str]) -> None:
    rows = lay_out([node(k, "text", "step", heading) for k, heading in enumerate(headings)]).rows

    assert not [row for row, below in pairwise(rows) if row.node is None and row.x != below.x]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.lists(st.sampled_from("abc"), max_size=3)), max_size=90))
def test_lines_stand_in_order_and_never_on_each_other(rows: list[tuple[str, list[str]]]) -> None:
    nodes = [node(k, text, "step", *path) for k, (text, path) in enumerate(rows)]

    layout = lay_out(nodes)

    assert [row.node for row in layout.rows if row.node] == nodes
    places = [(row.x, -row.y) for row in layout.rows]
    assert places == sorted(set(places))
    assert all(0 < x < layout.width and 0 < -y <= layout.height for x, y in places)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n  b\tc", "a b c"),
        ("exactly 10", "exactly 10"),
        ("more than 10", "more than…"),
        ("面包需要", "面包需要"),
        ("面包需要时间", "面包需要…"),
        ("\x00\x1b", r"\x00\x1b"),
    ],
)
def test_a_label_is_cut_by_the_width_of_its_characters(text: str, shown: str) -> None:
    assert one_line(text, 10) == shown
