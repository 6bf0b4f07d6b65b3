from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.parquet import sealed_parquet
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.pairs.held_out import Bench
from tasks.retrieve.train.pairs.make import PAIRS, PairSet, PairSettings, PairSource, make_pairs
from tasks.retrieve.train.pairs.names import Names
from tasks.retrieve.train.pairs.pieces import words_of
from tasks.retrieve.train.pairs.texts import grams_of
from tests.support.models.training_material import trades

LOOSE = PairSettings(nats=1.0, validation=0.3)


def described(skill: Skill) -> Skill:
    """Return a trade's skill with requests in its description and its body."""
    words = skill.body.split()
    tool, material, care = words[4], words[6], words[-1].strip(".")
    return skill._replace(
        description=f"{skill.description}, from the first day of spring to the last day of autumn. "
        f"Use when repairing a broken {tool} or cleaning {material} at home.",
        body=f"{skill.body}\n## When to use\n\n- The user asks to compare two kinds of {material}\n\n"
        f'## Example prompts\n\n- "Why did my {care} crack near the {tool}?"\n- "Hire a {skill.name}"\n',
    )


SKILLS = [described(skill) for skill in trades()]


def sources(skills: Sequence[Skill] = SKILLS, repos: int = 6) -> list[PairSource]:
    return [
        PairSource(skill, f"guild/{n % repos}", (f"{skill.name}-skill",)) for n, skill in enumerate(skills)
    ]


def made(given_sources: Sequence[PairSource], benches: Sequence[Bench] = (), seed: int = 0) -> PairSet:
    return make_pairs(given_sources, benches, {}, LOOSE, seed)


@pytest.fixture(scope="module")
def whole() -> PairSet:
    return made(sources())


def test_each_request_is_paired_with_the_texts_of_its_skill(whole: PairSet) -> None:
    baker = whole.pairs.filter(pl.col("doc_id") == "guild/baker")

    assert whole.pairs.schema == PAIRS
    assert dict(baker.group_by("origin").agg(pl.col("query").unique().sort()).iter_rows()) == {
        "description_clause": ["Clean dough at home", "Repair a broken oven"],
        "body_list": ["Compare two kinds of dough"],
        "body_quote": ["Why did my oven crack near the oven?"],
    }
    assert set(baker["field"]) == {"description", "head"}


def test_no_text_holds_the_clause_its_request_or_a_run_of_it(whole: PairSet) -> None:
    by_id = {skill.doc_id: skill for skill in SKILLS}
    for row in whole.pairs.iter_rows(named=True):
        skill = by_id[row["doc_id"]]
        cut = getattr(skill, row["cut_field"])[row["cut_start"] : row["cut_end"]].strip()
        assert cut
        assert cut not in row["text"]
        words = words_of(row["text"])
        for gram in grams_of(row["query"]):
            assert gram not in {tuple(words[i : i + len(gram)]) for i in range(len(words))}


def test_no_request_names_its_skill(whole: PairSet) -> None:
    for query, doc_id in whole.pairs.select("query", "doc_id").iter_rows():
        name = doc_id.rpartition("/")[2]
        assert not Names([name, f"{name}-skill"]).within(query)
    assert whole.dropped["names_skill"] == len(SKILLS)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 9)), min_size=2, max_size=30), st.integers(0, 9))
def test_splits_share_no_repository_no_cluster_and_no_request(
    drawn: list[tuple[int, int]], seed: int
) -> None:
    given_sources = [
        PairSource(SKILLS[number]._replace(doc_id=f"id {n}"), f"repo {repo}")
        for n, (number, repo) in enumerate(drawn)
    ]

    pairs = made(given_sources, seed=seed).pairs

    train, validation = (pairs.filter(pl.col("split") == side) for side in ("train", "validation"))
    for column in ("repo", "cluster", "query", "doc_id"):
        assert set(train[column]).isdisjoint(validation[column])
    assert train.height + validation.height == pairs.height


def test_the_same_corpus_and_seed_give_the_same_bytes_and_another_seed_another_split() -> None:
    one, again, other = (made(sources(), seed=seed).pairs for seed in (3, 3, 4))

    assert set(one["split"]) == {"train", "validation"}
    assert sealed_parquet(one.to_arrow()) == sealed_parquet(again.to_arrow())
    assert not one.equals(other)


def test_what_a_bench_holds_its_copies_and_its_requests_are_kept_out_and_counted() -> None:
    copy = SKILLS[0]._replace(doc_id="else/baker", body=f"{SKILLS[0].body}\nOnce more.\n")
    bench = Bench("trades", {"guild/baker"}, ["Please repair a broken anvil before noon"])

    found = made([*sources(), PairSource(copy, "else")], [bench])

    assert not {"guild/baker", "else/baker"} & set(found.pairs["doc_id"])
    assert "Repair a broken anvil" not in set(found.pairs["query"])
    assert dict(found.benches["trades"]) == {"gold": 1, "copies": 1, "requests": 1}
    assert found.dropped["asked_by_a_bench"] == 1
    assert found.skills["on_a_bench"] == 2


def test_a_copy_of_a_skill_that_only_the_bench_has_is_kept_out() -> None:
    found = make_pairs(sources(), [Bench("b", {"gone"})], {"gone": SKILLS[0].body}, LOOSE, 0)

    assert "guild/baker" not in set(found.pairs["doc_id"])
    assert dict(found.benches["b"]) == {"gold": 0, "copies": 1, "requests": 0}


def test_a_request_that_two_skills_share_is_trained_with_or_validated_on() -> None:
    shared = '\n## Example prompts\n\n- "Show me a daily plan of the old guild hall"\n'
    skills = [skill._replace(body=skill.body + shared) for skill in SKILLS[:2]]
    found = [made(sources([*skills, *SKILLS[2:]]), seed=seed) for seed in range(6)]

    for one in found:
        asked = one.pairs.filter(pl.col("query") == "Show me a daily plan of the old guild hall")
        assert asked["split"].n_unique() == 1
        assert asked["doc_id"].n_unique() == 2 - one.dropped["asked_in_train"]
    assert {one.dropped["asked_in_train"] for one in found} == {0, 1}


def test_triggers_are_worded_repeated_requests_counted_and_other_names_taken_out() -> None:
    said = (
        "\n## When to use\n\n- The kitchen smokes\n- Repairing a broken oven\n"
        '\n## Example prompts\n\n- "Ask the loaf doctor about dough"\n'
    )
    first = SKILLS[0]._replace(
        description=f"{SKILLS[0].description} Triggers: cleaning a dark oven", body=SKILLS[0].body + said
    )
    given, calls = (
        [PairSource(first, "guild/0", ("loaf-doctor",)), *sources(SKILLS[1:])],
        list[tuple[int, int]](),
    )

    found = make_pairs(given, [], {}, LOOSE, 0, lambda done, total: calls.append((done, total)))

    asked = found.pairs.filter(pl.col("origin") == "description_trigger")
    assert set(asked["query"]) == {"Clean a dark oven"}
    assert (found.dropped["no_request_form"], found.dropped["repeated_in_skill"]) == (1, 1)
    assert found.dropped["names_skill"] == len(SKILLS) + 1
    assert calls == [(n, len(SKILLS)) for n in range(1, len(SKILLS) + 1)]


def test_copies_ask_once_and_what_many_skills_share_is_dropped() -> None:
    shared = '\n## Example prompts\n\n- "Show me a daily plan of the old guild hall"\n'
    skills = [skill._replace(body=skill.body + shared) for skill in SKILLS[:3]]
    copy = PairSource(SKILLS[5]._replace(doc_id="else/copy"), "else")

    found = made([*sources(skills), *sources(SKILLS[3:]), copy])

    assert "Show me a daily plan of the old guild hall" not in set(found.pairs["query"])
    assert found.dropped["many_skills"] == 3
    assert found.dropped["copy"] == 4
    assert "else/copy" not in set(found.pairs["doc_id"]) or "guild/tanner" not in set(found.pairs["doc_id"])


def test_skills_in_another_language_are_counted_and_evals_are_requests() -> None:
    german = Skill(
        "de/brot", "brot", "Backt Brot.", "Der Teig ruht über Nacht, und am Morgen wird er gebacken. " * 9
    )
    evals = b'{"evals": [{"prompt": "My loaf came out flat, help me save the next one"}]}'
    first = sources()[0]._replace(evals=evals)

    found = made([first, *sources()[1:], PairSource(german, "de/brot")])

    assert found.skills["not_english"] == 1
    asked = found.pairs.filter(pl.col("origin") == "evals")
    assert set(asked["query"]) == {"My loaf came out flat, help me save the next one"}


def test_a_task_that_a_language_model_wrote_is_a_request_as_it_stands() -> None:
    task = (
        "My aunt left me forty jars of honey and a scale (an old one), and the fair is soon: I want labels "
        "for all of them, a price for each size, and a list of what they sold for last year, in /home/fair."
    )
    first = sources()[0]._replace(written=task)

    found = made([first, *sources()[1:]])

    asked = found.pairs.filter(pl.col("origin") == "written")
    assert set(asked["query"]) == {task}
    assert set(asked["doc_id"]) == {first.skill.doc_id}


def test_a_request_in_the_body_that_shares_no_word_with_name_and_description_is_dropped() -> None:
    far = SKILLS[0]._replace(
        body=f"{SKILLS[0].body}\n## Use cases\n\n- Comparing ripe pumpkins with the marrows of a village\n"
    )

    found = made([*sources([far]), *sources(SKILLS[1:])])

    assert found.dropped["off_topic"] == 1
    assert not [query for query in found.pairs["query"] if "pumpkins" in query]


def test_counts_add_up(whole: PairSet) -> None:
    counts = whole.counts()

    assert counts["pairs"] == whole.pairs.height == sum(row["pairs"] for row in counts["by_origin"])
    assert counts["pairs"] == sum(counts["by_field"].values()) == sum(counts["by_split"].values())
    assert counts["requests"] == sum(row["requests"] for row in counts["by_origin"])
    # The bodies are shorter than a head.
    assert whole.dropped["no_window_text"] == counts["requests"]


def test_requests_of_a_skill_stand_in_the_order_of_their_words(whole: PairSet) -> None:
    rows = whole.pairs.group_by("doc_id", maintain_order=True).agg(
        pl.col("query").unique(maintain_order=True)
    )

    assert rows["doc_id"].to_list() == [skill.doc_id for skill in SKILLS]
    for queries in rows["query"]:
        assert queries.to_list() == sorted(queries, key=lambda query: " ".join(words_of(query)))


def test_a_request_that_tells_too_little_is_dropped() -> None:
    strict = make_pairs(sources(), [], {}, PairSettings(nats=99.0), 0)

    assert strict.pairs.is_empty()
    assert strict.dropped["too_general"] > 0
