from __future__ import annotations

from xml.etree import ElementTree as Xml

import numpy as np

from storage.schemas import Node
from tasks.retrieve.graph.graph import SkillGraph, graph_of
from tasks.retrieve.graph.layout import lay_out
from tasks.retrieve.graph.svg import graph_svg
from tasks.retrieve.paging.types import PagedDocument
from tests.support.texts.nodes import document


def graph(nodes: list[Node]) -> SkillGraph:
    return graph_of(PagedDocument("d", "", nodes, np.eye(len(nodes), dtype=np.float32)))


def drawn(found: SkillGraph) -> Xml.Element:
    svg = graph_svg(found, lambda node: f"/skill?doc_id=d&q=#n{node.ordinal}")
    return Xml.fromstring(svg)  # noqa: S314 (ours)


def test_each_node_is_drawn_with_its_type_label_and_link_and_each_edge_with_its_type() -> None:
    rows = [("concept", "A", "Bread rises."), ("precondition", "A", "When hot:"), ("step", "A", "Bake.")]
    found = graph(document(*rows))
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
    svg = graph_svg(graph(document(("step", hostile, hostile))), lambda _: '/"><script>')
    assert "<script>" not in svg
    assert "\x1b" not in svg
    shown = Xml.fromstring(svg).findtext("a/text")  # noqa: S314 (ours)
    assert shown == "</text><script>alert(1)</script> \\x1b[31m & \\u202e"


def test_everything_lies_within_the_picture_also_over_several_columns() -> None:
    nodes = document(*[("step", f"Part {n // 9}", f"Step number {n} of many.") for n in range(90)])
    assert len({row.x for row in lay_out(nodes).rows}) > 1
    svg = drawn(graph(nodes))
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
