from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.schemas import EDGE_TYPES, NODE_TYPES, Edge, Node
from tasks.retrieve.graph.graph import SkillGraph, graph_of
from tasks.retrieve.graph.layout import Layout, lay_out, node_lines, one_line
from tasks.retrieve.graph.svg import EDGE_LOOKS, NODE_LOOKS, graph_file, graph_svg
from tasks.retrieve.paging.types import PagedDocument
from tests.support.texts.fragments import document


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


def laid_out(nodes: Sequence[Node]) -> Layout:
    return lay_out(node_lines(nodes))


def texts(svg: bytes) -> list[str]:
    return ["".join(e.itertext()) for e in Xml.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def test_a_graph_counts_its_nodes_and_edges_by_type_and_names_each(graph: SkillGraph) -> None:
    # A graph counts its nodes and edges by type.
    assert graph.node_counts() == {
        "step": 2, "example": 0, "param": 0, "precondition": 1, "error_handling": 0, "concept": 2
    }  # fmt: skip
    assert graph.edge_counts() == {"sequence": 4, "semantic": 1, "reference": 1, "condition": 1}
    # The condition joins neighbours, which their sequence has joined already.
    assert graph.density() == 6 / 20
    # As a dict it names every node and edge.
    found = graph.as_dict()
    assert [n["node_id"] for n in found["nodes"]] == [n.node_id for n in NODES]
    semantic = [e for e in found["edges"] if e["edge_type"] == "semantic"]
    assert semantic == [{"src_id": "d#2", "dst_id": "d#4", "edge_type": "semantic", "weight": 1.0}]


@pytest.mark.parametrize("count", [0, 1])
def test_a_document_of_no_pairs_has_a_graph_too(count: int) -> None:
    found = graph_of(PagedDocument("d", "", NODES[:count], VECTORS[:count]))
    assert (found.density(), found.edges) == (0.0, [])
    assert graph_file(found).startswith(b"<?xml")


def test_the_picture_shows_title_legend_headings_and_texts(graph: SkillGraph) -> None:
    shown = texts(graph_file(graph))
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
    picture = graph_file(graph).decode().lower()
    without = graph_file(SkillGraph("d", NODES[:1], [])).decode().lower()
    for colour in [look[0] for look in (*NODE_LOOKS.values(), *EDGE_LOOKS.values())]:
        assert colour.lower() in picture
    # One of each is the legend's.
    assert (picture.count('"node step"'), picture.count('"node concept"')) == (
        3,
        3,
    )
    assert (without.count('"node step"'), without.count('"node concept"')) == (1, 2)
    assert (set(NODE_LOOKS), set(EDGE_LOOKS)) == (set(NODE_TYPES), set(EDGE_TYPES))


def test_no_edge_runs_through_the_legend_or_out_of_the_picture() -> None:
    nodes = [node(k, f"node {k}", "step", f"h{k // 3}") for k in range(60)]
    pairs = itertools.permutations(range(0, 60, 3), 2)
    edges = [Edge(f"d#{a}", f"d#{b}", "reference", 1.0) for a, b in pairs]
    edges += [Edge(f"d#{k}", f"d#{k + 1}", "sequence", 1.0) for k in range(59)]
    picture = Xml.fromstring(graph_file(SkillGraph("d", nodes, edges)))  # noqa: S314
    width, height = (float(size) for size in picture.attrib["viewBox"].split()[2:])
    ways = [e.attrib["d"] for e in picture.iter() if e.get("class", "").startswith("edge ")]
    points = np.array([point for way in ways if " H" not in way for point in curve(way)])
    assert len(ways) == len(edges) + len(EDGE_LOOKS)  # the legend has one of each
    assert (points >= [0, 75]).all(), "the legend ends 75 units below the top"
    assert (points <= [width, height]).all()


def curve(path: str) -> list[list[float]]:
    """Return points of an SVG's path of straight lines and quadratic curves, in the picture's units."""
    points: list[list[float]] = []
    for word in re.findall(r"[MLQ][^A-Z]*", path):
        kind, numbers = word[0], word[1:].split()
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
    (row,) = laid_out([replace(node(0, text), block=block)]).rows
    assert row.label == label


@settings(max_examples=60)
@given(st.lists(st.sampled_from("abcdef"), max_size=140))
def test_a_heading_is_never_the_last_line_of_a_column(headings: list[str]) -> None:
    rows = laid_out([node(k, "text", "step", heading) for k, heading in enumerate(headings)]).rows
    assert not [row for row, below in pairwise(rows) if row.heading and row.x != below.x]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=20), st.lists(st.sampled_from("abc"), max_size=3)), max_size=90))
def test_lines_stand_in_order_and_never_on_each_other(rows: list[tuple[str, list[str]]]) -> None:
    nodes = [node(k, text, "step", *path) for k, (text, path) in enumerate(rows)]
    layout = laid_out(nodes)
    assert [row.key for row in layout.rows if row.key] == [node.node_id for node in nodes]
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


def graph_in(nodes: list[Node]) -> SkillGraph:
    return graph_of(PagedDocument("d", "", nodes, np.eye(len(nodes), dtype=np.float32)))


def drawn(found: SkillGraph) -> Xml.Element:
    svg = graph_svg(found, lambda node: f"/skill?doc_id=d&q=#n{node.ordinal}")
    return Xml.fromstring(svg)  # noqa: S314 (ours)


def test_each_node_is_drawn_with_its_type_label_and_link_and_each_edge_with_its_type() -> None:
    rows = [("concept", "A", "Bread rises."), ("precondition", "A", "When hot:"), ("step", "A", "Bake.")]
    found = graph_in(document(*rows))
    svg = drawn(found)
    links = svg.findall("a")
    assert [(a.get("class"), a.findtext("text"), a.get("href")) for a in links] == [
        ("node concept", "Bread rises.", "/skill?doc_id=d&q=#n0"),
        ("node precondition", "When hot:", "/skill?doc_id=d&q=#n1"),
        ("node step", "Bake.", "/skill?doc_id=d&q=#n2"),
    ]
    classes = sorted(str(path.get("class")).split()[1] for path in svg.findall("path"))
    assert classes == sorted(edge.edge_type for edge in found.edges)


def test_texts_are_escaped_and_visible() -> None:
    hostile = "</text><script>alert(1)</script> \x1b[31m & \u202e"
    svg = graph_svg(graph_in(document(("step", hostile, hostile))), lambda _: '/"><script>')
    assert "<script>" not in svg
    assert "\x1b" not in svg
    shown = Xml.fromstring(svg).findtext("a/text")  # noqa: S314 (ours)
    assert shown == "</text><script>alert(1)</script> \\x1b[31m & \\u202e"


def test_everything_lies_within_the_picture_also_over_several_columns() -> None:
    nodes = document(*[("step", f"Part {n // 9}", f"Step number {n} of many.") for n in range(90)])
    assert len({row.x for row in lay_out(node_lines(nodes)).rows}) > 1
    svg = drawn(graph_in(nodes))
    _, _, width, height = map(float, str(svg.get("viewBox")).split())
    dots = [(float(str(dot.get("cx"))), float(str(dot.get("cy")))) for dot in svg.iter("circle")]
    assert len(dots) == 90
    assert dots[0][1] < dots[1][1]  # downwards
    begins = {
        tuple(map(float, str(path.get("d"))[1:].split(" Q")[0].split()))
        for path in svg.findall("path")
        if " Q" in str(path.get("d"))
    }
    assert begins <= set(dots)
    assert all(5 < x < width and 5 < y < height - 5 for x, y in dots)
