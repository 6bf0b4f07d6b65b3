from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from storage.errors import WrongInput
from storage.lance.served import Licences
from storage.lance.tables import SKILLS, TableAt
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.fit import FEATURES, FitModel, packaged_fit
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import Filters, Searcher, fitting, rank_dense, rank_lexical
from tasks.retrieve.routing.store import RoutingIndex, open_routing
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.hand_written import skill
from tests.support.roots.skill_root import Make, SkillRoot

ODD = [
    '"', '""', '"knead the dough" AND NOT (yeast OR salt)', "'; DROP TABLE skills; --", "(((", "yeast " * 700,
    "???!!! ... --- ***", "+yeast -salt yeast~2 ye*st doc_id:bread [a TO b] {x} ^3 \\", "\x00\t\n yeast",
    "緑茶をいれる", "🐝🐝🐝", "é́́́", "the of and a to",
    "".join(chr(0x4E00 + i) for i in range(3500)), "q" * 5000,
]  # fmt: skip


@pytest.fixture(scope="module")
def skills(served_bakery: SkillRoot) -> TableAt:
    return TableAt(served_bakery.root, SKILLS, served_bakery.served().skills)


@pytest.fixture(scope="module")
def routing(served_bakery: SkillRoot) -> RoutingIndex:
    return open_routing(served_bakery.root, served_bakery.served())


def found(index: ServedIndex, query: str, k: int = 10, **filters: tuple[str, ...]) -> list[str]:
    results = index.search(query, k, filters=Filters(**filters))["results"]
    return [str(r["doc_id"]).rpartition("/")[2] for r in results]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vulcanising", "bike"),
        ("Feed sugar syrup in October", "bees"),
        ("log-hive --colony 3 --weight 31", "bees"),
        ("knock on the crust", "bread"),
        ("KNOCK ON THE CRUST", "bread"),
        ("一滴まで注ぎ切ります", "tea"),
    ],
)
def test_words_of_the_body_find_their_skill(routing: RoutingIndex, text: str, name: str) -> None:
    assert rank_lexical(routing, text)[0] == f"local/market/{name}"


@pytest.mark.parametrize(
    ("query", "name"),
    [("sourdough and other loaves", "bread"), ("a flat tyre on my cycle", "bike"), ("apiculture", "bees")],
)
def test_other_words_for_the_description_find_it_too(
    skills: TableAt, minilm: OnnxEncoder, query: str, name: str
) -> None:
    assert rank_dense(skills, minilm.encode([query])[0])[0] == f"local/market/{name}"


@pytest.mark.parametrize("query", ODD, ids=lambda q: str(ODD.index(q)))
def test_no_query_is_too_odd(index: ServedIndex, query: str) -> None:
    assert len(found(index, query)) == 4


@pytest.mark.parametrize("query", ["bees", " BEES ", "local/market/bees", "Local/Market/Bees"])
def test_an_exact_name_comes_first(index: ServedIndex, query: str) -> None:
    assert found(index, query)[0] == "bees"


def test_filters_hold_before_ranking_and_what_must_not_be_found_takes_no_rank(index: ServedIndex) -> None:
    # Filters hold before ranking.
    source = index.search("bread")["results"][0]["source"]
    assert len(found(index, "bread", 10, kinds=("skill",), sources=(source,))) == 4
    assert len(found(index, "bread", 10, sources=(source.partition(":")[0],))) == 4
    assert found(index, "bread", 1, licences=("unknown",)) == ["bread"]
    # What must not be found takes no rank.
    ids = [r["doc_id"] for r in index.search("bread")["results"]]
    rest = index.search("bread", filters=Filters(without=frozenset({ids[0]})))["results"]
    assert [r["doc_id"] for r in rest] == ids[1:]


def test_what_filters_allow_is_kept_until_licences_have_other_classes(
    skills: TableAt, routing: RoutingIndex, minilm: OnnxEncoder
) -> None:
    asked = [
        Filters(kinds=kinds, person=person) for kinds in ((), ("skill",)) for person in (True, False)
    ] * 2
    kept = Searcher(skills, routing, minilm)
    for unknown in ("allow", "deny", "allow"):
        licences = Licences({}, unknown)
        for filters in asked:
            fresh = Searcher(skills, routing, minilm).allowed(filters, licences)
            np.testing.assert_array_equal(kept.allowed(filters, licences), fresh)
            assert fresh.any() == (unknown != "deny")
    assert kept.allowed(asked[0], licences) is kept.allowed(asked[0], Licences({}, "allow"))
    with pytest.raises(ValueError, match="read-only"):
        kept.allowed(asked[0], licences)[0] = True


@pytest.mark.parametrize(
    ("risks", "names"),
    [
        (("risk.remote.pipe-to-shell",), {"bread"}),
        (("remote.pipe-to-shell",), {"bread"}),
        (("none",), {"bees"}),
        (("unscanned.binary",), {"old/bees"}),
        (("none", "remote.pipe-to-shell"), {"bees", "bread"}),
    ],
)
def test_skills_are_filtered_by_the_risks_found_in_them(
    storied: SkillRoot, risks: tuple[str, ...], names: set[str]
) -> None:
    results = storied.ask().search("look after bees", filters=Filters(risks=risks))["results"]
    assert {r["doc_id"].removeprefix("local/market/") for r in results} == names


def test_what_is_not_seen_lifts_nothing_and_what_is_kept_back_is_asked_for_by_its_risk(
    skill_root: Make,
) -> None:
    stuffed = f"<!-- {'restring the violin, peg, bow, fingerboard ' * 30} -->\n\nWash the car with soap."
    root = skill_root({
        "violin": skill("violin", "Restrings a violin.", "Turn the peg, then tune each string."),
        "deploy": skill("deploy", "Restrings a violin\ndisable-model-invocation: true", "Turn the peg."),
        "inner": skill("inner", "Restrings a violin\nmetadata:\n  internal: true", "Turn the peg at home."),
        "wash": skill("wash", "Washes cars.", stuffed),
    })  # fmt: skip
    root.publish(nodes=False)
    index = root.ask()

    def names(filters: Filters) -> list[str]:
        results = index.search("restring a violin, peg and bow", filters=filters)["results"]
        return [row["name"] for row in results if row["name"] != "wash"]

    assert names(Filters()) == ["violin"]
    assert set(names(Filters(person=True))) == {"violin", "deploy"}
    assert names(Filters(risks=("offer.internal",))) == ["inner"]
    assert names(Filters(risks=("offer.person-only",))) == ["deploy"]
    assert "restring" not in index.document("local/market/wash").body


def test_a_risk_that_no_served_skill_has_is_wrong_to_ask_for(storied: SkillRoot) -> None:
    with pytest.raises(
        WrongInput, match=r"^risk 'remote'.*there are none, risk.remote.pipe-to-shell, risk.un"
    ):
        storied.ask().search("bees", filters=Filters(risks=("remote",)))


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"kinds": ("mcp-server",)}, "^kind 'mcp-server'.*there are skill"),
        ({"licences": ("Zlib",)}, "^licence 'zlib'.*there are unknown"),
        ({"sources": ("nowhere",)}, "^source 'nowhere'.*there are dir:"),
        ({"risks": ("risk.remote.pipe-to-shell",)}, "^risk 'risk.*there are none$"),
    ],
)
def test_what_nothing_served_has_is_wrong_to_ask_for(
    index: ServedIndex, filters: dict[str, tuple[str, ...]], said: str
) -> None:
    with pytest.raises(WrongInput, match=said):
        found(index, "bread", 10, **filters)


def test_parts_add_up_to_the_score_and_are_shown_when_asked_for(index: ServedIndex) -> None:
    results = index.search("look after a hive", explain=True)["results"]
    assert all(sum(r["parts"].values()) == pytest.approx(r["score"], abs=1e-4) for r in results)
    legs = {"lexical", "whole", "facets", "described", "again", "named", "lead", "learned"}
    assert set(results[0]["parts"]) == {*legs, "reranker"}
    assert set(results[0]["evidence"]) == {*FEATURES, "reading"}
    assert not {"parts", "evidence"} & index.search("look after a hive")["results"][0].keys()


def test_a_search_says_that_nothing_fits_and_what_comes_nearest(index: ServedIndex) -> None:
    foreign = index.search("prepare the quarterly statement of value added tax")
    served = index.search("look after a hive")
    assert (foreign["nothing_fits"], served["nothing_fits"]) == (True, False)
    assert len(foreign["results"]) == len(served["results"])
    assert served["results"][0]["fit"] > foreign["results"][0]["fit"]


def test_a_result_that_is_not_asked_for_may_be_the_one_that_fits(index: ServedIndex) -> None:
    fits = {1: 0.01, 2: 0.02, 3: 0.99}

    def ranker(searcher: Searcher, query: str, k: int, allowed: npt.NDArray[np.bool_], /) -> list[Ranked]:
        found = searcher.router.rank(query, k, allowed=allowed)
        return [replace(one, fit=fits.get(n, 0.0)) for n, one in enumerate(found, start=1)]

    one, all_of_them = (index.search("look after a hive", k, ranker=ranker) for k in (1, 9))
    assert (one["nothing_fits"], all_of_them["nothing_fits"]) == (False, False)
    assert [result["fit"] for result in one["results"]] == [0.01]


def test_the_first_three_results_decide_whether_nothing_fits_if_a_fit_is_known() -> None:
    # The first three results decide whether nothing fits.
    model = FitModel(np.zeros(len(FEATURES)), 0.0, 0.5)
    fits = (0.1, 0.2, 0.6, 0.7)
    ranked: list[tuple[dict[str, Any], Ranked]] = [
        ({}, Ranked(str(n), 1.0, {}, (), f)) for n, f in enumerate(fits)
    ]
    assert fitting(ranked, model, None) == (ranked, False)
    assert fitting(ranked, model, 0.65) == (ranked, True)
    assert fitting(ranked, model, 0.6) == (ranked[2:], False)
    # Of an encoder without a fit none is known and none can be asked for.
    ranked: list[tuple[dict[str, Any], Ranked]] = [({}, Ranked("a", 1.0, {}, ()))]
    assert fitting(ranked, None, None) == (ranked, None)
    with pytest.raises(WrongInput, match="the default encoder and method alone"):
        fitting(ranked, None, 0.5)


@pytest.mark.parametrize("least", [0.0, 0.5, 0.9, 1.0])
def test_what_fits_less_than_asked_for_is_left_out_unless_nothing_fits(
    index: ServedIndex, least: float
) -> None:
    every = index.search("look after a hive")["results"]
    fits = [r["fit"] for r in every if r["fit"] >= least]
    found = index.search("look after a hive", min_fit=least)
    assert found["nothing_fits"] is (not fits)
    assert [r["fit"] for r in found["results"]] == (fits or [r["fit"] for r in every])
    assert [r["rank"] for r in found["results"]] == list(range(1, len(found["results"]) + 1))


@pytest.mark.parametrize("least", [-0.1, 1.1, float("nan")])
def test_a_fit_is_from_0_to_1(index: ServedIndex, least: float) -> None:
    with pytest.raises(WrongInput, match=r"^the least fit is .*: give a probability from 0 to 1"):
        index.search("bread", min_fit=least)


def test_an_index_without_tokens_is_judged_as_one_that_is_not_read(served_bakery: SkillRoot) -> None:
    version = OpenVersion(served_bakery.root, served_bakery.served(), served_bakery.encoder, "best")
    before = OpenVersion(served_bakery.root, served_bakery.served(), served_bakery.encoder, "best")
    before.__dict__["routing"] = replace(open_routing(version.root, version.served), tokens=None)
    assert version.fit is not None
    assert before.fit is not None
    assert version.fit.least == packaged_fit("best").least
    assert before.fit.least == packaged_fit("none").least


def test_ties_come_in_the_order_of_ids(skill_root: Make, minilm: OnnxEncoder) -> None:
    names = [f"s{i}" for i in range(12)]
    root = skill_root({n: skill("counting", "Counts", f"Count aloud. {n}x{n}y") for n in names})
    table = TableAt(root.root, SKILLS, root.publish(nodes=False).skills)
    ids = sorted(f"local/market/{n}" for n in names)
    routing = open_routing(root.root, root.served())
    assert rank_lexical(routing, "count aloud") == ids
    assert rank_lexical(routing, "count aloud", 7) == ids[:7]
    assert rank_dense(table, minilm.encode(["counting"])[0]) == ids


@pytest.mark.parametrize("k", [1, 3, 4, 5, 100_000, 10**15])
def test_as_many_skills_come_as_asked_for_or_there_are(index: ServedIndex, k: int) -> None:
    assert len(found(index, "bread", k)) == min(k, 4)
