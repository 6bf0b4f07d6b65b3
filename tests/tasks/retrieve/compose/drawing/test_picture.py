"""The picture of a plan: what it shows, in which colours, and that it obeys no text."""

from __future__ import annotations

import importlib
import subprocess
import sys
from xml.etree import ElementTree as Xml

import pytest

from storage.errors import TerminalError
from tasks.retrieve.compose.drawing.picture import EDGE_LOOKS, draw_plan
from tasks.retrieve.compose.plan import KINDS
from tasks.retrieve.graph.figure import FORMATS
from tests.support.hand_plans import hand_plan, party


def texts(svg: bytes) -> list[str]:
    return ["".join(e.itertext()) for e in Xml.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def marked(svg: bytes, name: str) -> list[str]:
    """Return the SVG text of the shapes with a name."""
    found = [e for e in Xml.fromstring(svg).iter() if e.get("id", "").startswith(name)]  # noqa: S314
    return [Xml.tostring(e, "unicode") for e in found]


def test_it_shows_title_legend_groups_steps_conditions_and_gaps() -> None:
    shown = texts(draw_plan(party(), "svg"))

    assert [text for text in shown if text.endswith(": 6 steps, 1 gap")]
    assert {"data 2", "order 2", "condition 1", "nothing served fits 1"} <= set(shown)
    assert {"group 1, side by side", "group 2", "1. fetch the guest list", "shelf/skill-1"} <= set(shown)
    assert {"only: if it rains", "nothing served fits this step"} <= set(shown)


def test_a_gap_is_drawn_unlike_a_step_and_edges_by_their_type() -> None:
    picture = draw_plan(party(), "svg")

    dashed = ["stroke-dasharray" in box for box in marked(picture, "step ")]
    assert dashed == [False, False, True, False, False, False]
    assert set(EDGE_LOOKS) == set(KINDS)
    for kind, count in (("data", 2), ("order", 2), ("condition", 1)):
        edges = marked(picture, f"edge {kind}")
        assert len(edges) == count
        assert all(EDGE_LOOKS[kind][0].lower() in edge.lower() for edge in edges)
    assert len({str(look) for look in EDGE_LOOKS.values()}) == len(KINDS)


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert draw_plan(party(), "svg") == draw_plan(party(), "svg")


@pytest.mark.parametrize("plan", [party(), hand_plan([]), hand_plan(["bake"])])
def test_every_form_is_drawn_of_plans_of_any_size(plan: dict[str, object]) -> None:
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}

    assert all(draw_plan(plan, form).startswith(starts[form]) for form in FORMATS)


@pytest.mark.parametrize(
    "text", ["</text><script>x</script>", "<!-- &amp; ]]>", "$x_$ costs", "$\\frac$", "パン", "\x1b[1m\u202e"]
)
def test_texts_of_others_are_shown_and_never_obeyed(text: str) -> None:
    plan = hand_plan([text], conditions={1: text}, ids={1: text})
    picture = draw_plan({**plan, "query": text}, "svg")

    assert not [e for e in Xml.fromstring(picture).iter() if e.tag.endswith("script")]  # noqa: S314
    assert len([shown for shown in texts(picture) if text.isprintable() and text in shown]) in {0, 4}
    assert [shown for shown in texts(picture) if text in shown] or not text.isprintable()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("matplotlib.figure")
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(TerminalError, match=r"pip install '\.\[draw\]'"):
        draw_plan(party(), "svg")


def test_matplotlib_is_loaded_by_drawing_alone() -> None:
    script = (
        "import sys, flows.commands.queries, tasks.retrieve.compose.drawing.picture,"
        "tasks.retrieve.compose.drawing.mermaid;"
        "print([m for m in ('matplotlib', 'prefect', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
