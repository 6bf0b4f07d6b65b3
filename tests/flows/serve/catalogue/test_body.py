from __future__ import annotations

import time

from hypothesis import given

from flows.serve.catalogue.body import Block, blocks_of
from storage.schemas import Node
from tasks.parse.segment.segment import Fragment, segment
from tests.support.texts.markdown_bodies import bodies


def nodes_of(body: str) -> list[Node]:
    return [_node(fragment) for fragment in segment(body).fragments]


def _node(found: Fragment) -> Node:
    return Node(
        node_id=f"d#{found.ordinal}", doc_id="d", ordinal=found.ordinal, node_type="step", n_tokens=1,
        heading_path=found.heading_path, lead_in=found.lead_in, block=found.block, start=found.start,
        end=found.end, text=found.text, classifier="none", confidence=1.0,
    )  # fmt: skip


def shown(body: str) -> list[Block]:
    return blocks_of(body, nodes_of(body), lambda _: None)


@given(bodies)
def test_every_node_and_heading_is_shown_once_in_order(body: str) -> None:
    blocks = shown(body)
    ordinals = [part.ordinal for block in blocks for part in block.parts if part.ordinal is not None]
    nodes = nodes_of(body)
    if nodes:
        assert ordinals == [node.ordinal for node in nodes]
        titles = [heading.title for heading in segment(body).headings]
        assert [block.title for block in blocks if block.kind == "heading"] == titles
    else:
        assert not ordinals


def test_sentences_of_a_paragraph_stand_in_one_and_other_blocks_apart() -> None:
    blocks = shown("# Bread\n\nMix it. Knead it.\n\nLet it rest.\n\n- flour\n  - rye\n\n```sh\nbake\n```\n")
    assert [(b.kind, b.depth, [str(p.html).strip() for p in b.parts]) for b in blocks] == [
        ("heading", 3, ["Bread"]),
        ("paragraph", 0, ["Mix it.", "Knead it."]),
        ("paragraph", 0, ["Let it rest."]),
        ("block", 0, ["<ul>\n<li>flour</li>\n</ul>"]),
        ("block", 1, ["<ul>\n<li>rye</li>\n</ul>"]),
        ("block", 0, ["<p><em>sh</em></p><pre><code>bake\n</code></pre>"]),
    ]


def test_a_heading_knows_the_nodes_of_its_section_and_those_below_it() -> None:
    blocks = shown("First.\n\n# A\n\nOne.\n\n## B\n\nTwo.\n\n# C\n\nThree.\n")
    assert {b.title: b.inside for b in blocks if b.kind == "heading"} == {"A": {1, 2}, "B": {2}, "C": {3}}


def test_a_deep_item_is_no_code_and_a_body_without_nodes_is_one_block() -> None:
    blocks = shown("1. one\n\n   - two\n\n     - three\n\n       goes on\n")
    assert [(b.depth, "<code>" in b.parts[0].html) for b in blocks] == [(0, False), (1, False), (2, False)]
    (block,) = blocks_of("Serves **maps**.", [], lambda _: None)
    assert (block.kind, block.parts[0].html.strip()) == ("block", "Serves <strong>maps</strong>.")
    assert blocks_of(" \n", [], lambda _: None) == []


def test_a_long_body_is_shown_whole_though_not_rendered_to_its_end() -> None:
    body = "".join(f"- **item** {number}\n" for number in range(4_000))
    began = time.process_time()
    blocks = shown(body)
    assert time.process_time() - began < 5
    assert len(blocks) == 4_000
    assert "<strong>" in blocks[0].parts[0].html
    assert blocks[-1].parts[0].html == "<pre>- **item** 3999</pre>"
