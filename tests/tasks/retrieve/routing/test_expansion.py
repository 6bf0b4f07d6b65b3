"""Requests foretold by a scripted model: what is asked, kept, indexed and found, and what goes again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
from storage.partitions import partition_of
from storage.root import Root
from storage.state import expansions_table
from tasks.models.llm.budget import Ceiling, Ledger, Prices
from tasks.models.llm.errors import Rejected
from tasks.retrieve.index.build import Built
from tasks.retrieve.routing.expansion import PROMPT, expand
from tasks.retrieve.routing.store import FOLDER, open_routing
from tasks.retrieve.versions.doctor import examine
from tasks.retrieve.versions.forget import forget
from tasks.retrieve.versions.publish import roll_back
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer, Say
from tests.support.roots.hand_written import skill
from tests.support.roots.skill_root import SkillRoot

FLAT = "I ride to work and it hisses and wobbles, help."
TOLD = [
    "my tyre is flat",
    "patch a bicycle tube",
    "The tube lost its air. How is it mended?",
    FLAT,
    "Ride on.",
]


def says(asked: Asked) -> str:
    name = asked.fragments[0]["name"]
    return json.dumps({"requests": TOLD if name == "bike" else [f"{name} number {k}" for k in range(5)]})


@pytest.fixture
def root(skill_root: Callable[[dict[str, str]], SkillRoot]) -> SkillRoot:
    made = skill_root(
        {
            "bread": skill("bread", "Bakes loaves", "Knead the dough and knock on the crust."),
            "bees": skill("bees", "Looks after a hive", "Treat the colony with oxalic acid in winter."),
            "bike": skill("bike", "Mends a vehicle", "Use vulcanising glue."),
        }
    )
    made.publish(nodes=False)
    return made


def told(root: Root, say: Say = says, *, ceiling: Ceiling | None = None) -> tuple[dict[str, Any], LlmServer]:
    with LlmServer(say=say) as server, Answers(root) as answers:
        return expand(root, llm_of(server.url, answers, Ledger(Prices(), ceiling or Ceiling()))), server


def files(root: SkillRoot) -> dict[str, bytes]:
    """Return the files of the routing index that is served, without what names the versions."""
    served = root.served()
    folder = Path(root.root.at(FOLDER)) / f"{served.version}.{served.skills}"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def index(root: SkillRoot) -> Built:
    """Index as the next night does on which no text changed."""
    root.night += 1
    return root.index(nodes=False)


def found(root: SkillRoot, query: str) -> dict[str, Any]:
    first: dict[str, Any] = root.ask().search(query, explain=True)["results"][0]
    return first


def test_a_skill_is_found_by_what_was_foretold_of_it_and_everything_is_asked_once(root: SkillRoot) -> None:
    before, parts = files(root), found(root, FLAT)["parts"]
    assert "foretold" not in parts
    first, server = told(root.root)
    assert (first["asked"], first["written"], first["requests"], first["partial"]) == (3, 15, 3, False)
    assert "vulcanising" in server.asked[0].prompt + server.asked[1].prompt + server.asked[2].prompt
    assert index(root).changed
    assert (found(root, FLAT)["name"], found(root, FLAT)["parts"]["foretold"] > 1) == ("bike", True)
    again, server = told(root.root)
    assert (again["asked"], server.requests, index(root).changed) == (0, 0, False)

    with_it = files(root)
    expansions_table(root.root).drop()
    index(root)
    assert files(root) == before
    roll_back(root.root)
    assert files(root) == with_it, "of an earlier version nothing is made anew"
    roll_back(root.root)
    assert files(root) == before
    index(root)
    told_anew, server = told(root.root)  # by the answers kept
    assert (told_anew["cached"], server.requests) == (3, 0)


def test_a_changed_text_alone_is_asked_about_and_one_that_is_gone_goes(root: SkillRoot) -> None:
    told(root.root)
    root.write("bike", skill("bike", "Mends a vehicle", "Use rubber glue."))
    root.remove("bees")
    root.crawl()
    second, _ = told(root.root)
    held = sorted(expansions_table(root.root).read()["doc_id"])
    assert (second["asked"], held) == (1, ["local/market/bike", "local/market/bread"])
    root.parse(vectors=False)
    index(root)
    foretold = open_routing(root.root, root.served()).foretold
    assert foretold is not None
    assert foretold.any(axis=1).tolist() == [True, True]


def test_what_the_ceiling_leaves_is_asked_later_and_what_is_useless_never_again(
    root: SkillRoot,
) -> None:
    none, server = told(root.root, ceiling=Ceiling(0))
    assert (none["unfinished"], none["partial"], server.requests) == (3, True, 0)
    assert expansions_table(root.root).read().is_empty()
    useless, server = told(root.root, lambda _: "I would rather not.")
    assert (useless["fallbacks"], server.requests) == ({"expansion-3: malformed": 3}, 6)
    again, server = told(root.root)
    assert (again["asked"], server.requests) == (0, 0)
    index(root)
    assert found(root, FLAT)["parts"]["foretold"] == 0


@pytest.mark.parametrize("injure", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_what_is_lost_of_it_is_asked_for_again(root: SkillRoot, injure: Callable[[Path], object]) -> None:
    told(root.root)
    injure(Path(root.root.at(expansions_table(root.root).file(partition_of("local/market/bike")))))
    (defect,) = examine(root.root)
    again, server = told(root.root)
    assert (defect.mended, again["asked"], again["cached"], server.requests) == (True, 1, 1, 0)
    assert examine(root.root) == []


def test_forgetting_a_skill_forgets_what_was_foretold_of_it(root: SkillRoot) -> None:
    told(root.root)
    index(root)
    forget(root.root, "local/market/bike", run_id="f", now=datetime.now(UTC))
    assert "local/market/bike" not in expansions_table(root.root).read()["doc_id"]
    foretold = open_routing(root.root, root.served()).foretold
    assert foretold is not None
    assert foretold.shape[0] == 2


def test_a_request_that_names_the_skill_is_not_taken() -> None:
    said = json.dumps({"requests": ["What is the bike-repair skill?", "my tyre is flat", "Bike Repair!"]})
    assert PROMPT.read(said, known="bike-repair").requests == ["my tyre is flat"]
    with pytest.raises(Rejected, match="1 requests can be used"):
        PROMPT.read(said, known="bike-repair", last=False)
    assert len(PROMPT.read(said, known="bike").requests) == 3


@given(said=st.lists(st.text()), last=st.booleans())
def test_requests_that_are_taken_are_short_texts_that_differ(said: list[str], last: bool) -> None:
    try:
        good = PROMPT.read(json.dumps({"requests": said}), last=last).requests
    except Rejected:
        return
    assert len(set(good)) == len(good) <= 5
    assert len(good) == 5 or last
    assert all(6 <= len(text) <= 500 and text == " ".join(text.split()) for text in good)
