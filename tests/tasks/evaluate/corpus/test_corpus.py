from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS
from tasks.evaluate.corpus.compare import SHARES, compare
from tasks.evaluate.corpus.read import corpus_texts, load_corpus, read_categories
from tasks.evaluate.corpus.skill_sample import namespace_of, served_skill_ids, served_skills, stratified
from tasks.evaluate.measures.statistics import holm_bonferroni
from tasks.evaluate.paging.bench import body_of
from tasks.refine.structure import MEASURES, QUALITY, quality_frame
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

BODY = "# Knots\n\n1. Make a loop."
CONTENT = f"---\nname: knots\ndescription: Ties knots.\n---\n\n{BODY}\n"


def only(frame: pl.DataFrame) -> tuple[object, ...]:
    assert frame.schema == QUALITY
    return frame.select("doc_id", "characters", "headings", "ordered_items", "scripts").row(0)


@pytest.mark.parametrize("key", ["id", "doc_id"])
def test_a_parquet_file_of_whole_files_is_measured_below_the_front_matter(tmp_path: Path, key: str) -> None:
    path = tmp_path / "skills.parquet"
    pl.DataFrame({key: ["a/b"], "content": [CONTENT]}).write_parquet(path)
    assert only(load_corpus(str(path)).measures) == ("a/b", len(BODY), 1, 1, None)


def test_a_parquet_file_of_documents_is_measured_with_its_bundles(tmp_path: Path) -> None:
    path = tmp_path / "documents.parquet"
    files = [[{"path": "scripts/tie.sh", "size": 1, "sha256": "a"}]]
    columns = {"doc_id": ["a/b"], "body": [BODY], "files": files}
    pl.DataFrame(columns, schema={name: DOCUMENTS[name] for name in columns}).write_parquet(path)
    assert only(load_corpus(str(path)).measures) == ("a/b", len(BODY), 1, 1, 1)


def test_json_lines_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "skills.jsonl"
    path.write_text(json.dumps({"doc_id": "a/b", "content": CONTENT}) + "\n", "utf-8")
    assert only(load_corpus(str(path)).measures) == ("a/b", len(BODY), 1, 1, None)


def test_a_root_s_current_documents_are_measured(tmp_path: Path) -> None:
    row = {**dict.fromkeys(DOCUMENTS), "doc_id": "a/b", "body": BODY}
    table = PartitionedTable(Root(tmp_path), "documents", DOCUMENTS)
    table.replace(["a/b"], pl.DataFrame([row], schema=DOCUMENTS))
    assert only(load_corpus(str(tmp_path)).measures) == ("a/b", len(BODY), 1, 1, None)


def test_front_matter_that_is_never_closed_and_null_texts_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "skills.parquet"
    pl.DataFrame({"id": ["a", "b"], "content": ["---\nname: a\n", None]}).write_parquet(path)
    corpus = load_corpus(str(path))
    assert (corpus.measures["words"].to_list(), corpus.without_text) == ([3], 1)


def exported(folder: Path, form: str) -> Path:
    """Write two documents as an export does, the second without its text."""
    path = folder / f"documents.{form}"
    files = [{"path": "scripts/tie.sh", "size": 1, "sha256": "a"}]
    rows: list[dict[str, object]] = [
        {"doc_id": "a/b", "body": BODY, "files": files},
        {"doc_id": "c/d", "body": None, "files": None},
    ]
    if form == "parquet":
        pl.DataFrame(rows, schema={name: DOCUMENTS[name] for name in rows[0]}).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_is_measured_but_for_what_has_no_text(tmp_path: Path, form: str) -> None:
    path = exported(tmp_path, form)
    assert only(load_corpus(str(path)).measures) == ("a/b", len(BODY), 1, 1, 1)
    assert load_corpus(str(path)).without_text == 1
    assert only(load_corpus(str(tmp_path)).measures)[:2] == ("a/b", len(BODY))  # named by its folder


def test_a_folder_of_exported_skills_is_measured(tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_text('{"doc_id": "a/b"}\n', "utf-8")
    skill = tmp_path / "skills/a/b/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nname: b\ndescription: Ties.\n---\n{BODY}", "utf-8")
    assert only(load_corpus(str(tmp_path)).measures)[:2] == ("skills/a/b", len(BODY))


def test_a_corpus_without_any_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"doc_id": "a", "body": null}\n', "utf-8")
    with pytest.raises(WrongInput, match=r"holds no documents with text \(1 without\)"):
        load_corpus(str(path))


def test_an_aggregator_s_trailer_is_nobody_s_structure(tmp_path: Path) -> None:
    path = tmp_path / "skills.parquet"
    trailer = "\n\n---\n> Source: [a](https://a.example) distributed by [TomeVault](https://t.example).\n"
    pl.DataFrame({"id": ["a"], "content": [CONTENT + trailer]}).write_parquet(path)
    frame = load_corpus(str(path)).measures
    assert (frame["links"].item(), frame["characters"].item()) == (0, len(BODY))


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("none.parquet", None, "not found"),
        ("bad.parquet", b"no parquet", "cannot be read as Parquet"),
        ("empty.jsonl", b"", "holds no documents"),
        ("other.jsonl", b'{"doc_id": "a"}', "`content` is missing"),
        ("number.jsonl", b'{"doc_id": "a", "body": 1}', "`body` is missing or no text"),
        ("files.jsonl", b'{"doc_id": "a", "body": "b", "files": ["c"]}', "`files` is no list of objects"),
    ],
)
def test_what_is_no_corpus_is_refused_by_name(
    tmp_path: Path, name: str, data: bytes | None, complaint: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(WrongInput, match=complaint) as refused:
        load_corpus(str(path))
    assert str(path) in str(refused.value)


def test_other_columns_and_a_folder_that_is_no_root_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no root"):
        load_corpus(str(tmp_path))
    pl.DataFrame({"id": ["a"], "text": ["b"]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(WrongInput, match="none of content and body; found id, text"):
        load_corpus(str(tmp_path / "other.parquet"))


def lines(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_categories_come_from_parquet_and_json_lines_and_the_first_counts(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["a", "b", "c"], "content": ["", "", ""], "category": ["food", None, "  "]})
    frame.write_parquet(tmp_path / "one.parquet")
    pl.DataFrame({"doc_id": ["z"], "content": [""]}).write_parquet(tmp_path / "bare.parquet")
    other = lines(
        tmp_path / "two.jsonl",
        {"doc_id": "a", "content": "", "category": "metal"},
        {"id": "c", "content": "", "category": " wood "},
        {"doc_id": "d", "content": "", "category": 7},
        {"doc_id": "e", "content": ""},
    )
    found = read_categories([tmp_path / "one.parquet", tmp_path / "bare.parquet", other])
    assert found == {"a": "food", "c": "wood"}


def test_a_corpus_is_a_parquet_file_of_contents_or_bodies(tmp_path: Path) -> None:
    path = tmp_path / "corpus.parquet"
    pl.DataFrame({"id": ["a", "b"], "content": ["---\nname: a\n---\nText.", None]}).write_parquet(path)
    assert {k: body_of(v) for k, v in corpus_texts(str(path)).items()} == {"a": "Text."}
    pl.DataFrame({"doc_id": ["a"], "body": ["---\nnot: front\n---\nText."]}).write_parquet(path)
    assert body_of(corpus_texts(str(path))["a"]) == "---\nnot: front\n---\nText."


def test_texts_are_read_from_json_lines_and_from_parquet_by_another_name(tmp_path: Path) -> None:
    path = lines(tmp_path / "corpus.jsonl", {"id": "a", "content": "Text."}, {"doc_id": "b", "body": None})
    assert corpus_texts(str(path)) == {"a": "Text."}
    pl.DataFrame({"id": ["a"], "content": ["Text."]}).write_parquet(tmp_path / "corpus.pq")
    assert corpus_texts(str(tmp_path / "corpus.pq")) == {"a": "Text."}


def test_the_texts_of_a_root_are_those_of_its_skills(served_bakery: SkillRoot) -> None:
    texts = corpus_texts(served_bakery.root.uri)
    assert "local/market/bread" in texts
    assert body_of(texts["local/market/bread"]).startswith("# Bread\n")


def test_a_corpus_without_texts_is_refused(tmp_path: Path) -> None:
    none = pl.DataFrame(schema={"id": pl.String, "body": pl.String})
    none.write_parquet(tmp_path / "none.parquet")
    for name, said in {"nowhere": "not found", "none.parquet": "holds no text"}.items():
        with pytest.raises(WrongInput, match=said):
            corpus_texts(str(tmp_path / name))


CODE = "# A\n\nRun it.\n\n```bash\nmake knots\nmake bends\n```\n"
PROSE = "# A\n\n1. Take a rope.\n2. Tie it.\n3. Pull.\n"
PLAIN = "Nothing but prose here."


def corpus(*bodies: str, scripts: int | None = None) -> pl.DataFrame:
    files = (
        None
        if scripts is None
        else [{"path": f"scripts/{i}.sh", "size": 1, "sha256": "a"} for i in range(scripts)]
    )
    columns = {
        "doc_id": [f"o/{i}" for i in range(len(bodies))],
        "body": bodies,
        "files": [files] * len(bodies),
    }
    schema = {name: DOCUMENTS[name] for name in columns}
    return quality_frame(pl.DataFrame(columns, schema=schema))


def contrast(a: pl.DataFrame, b: pl.DataFrame, measure: str) -> dict[str, Any]:
    return next(c for c in compare(a, b)["contrasts"] if c["measure"] == measure)


def test_every_measure_and_share_is_compared_once() -> None:
    compared = [c["measure"] for c in compare(corpus(CODE), corpus(PROSE))["contrasts"]]
    assert sorted(compared) == sorted([*MEASURES, *SHARES])


def test_u_and_effect_are_those_of_counted_pairs() -> None:
    # Of the nine pairs A is above B in six (2 and 4 against 0, 0 and 1) and ties in one of the others.
    a = corpus(*["```\n" + "x\n" * n + "```" if n else PLAIN for n in (0, 2, 4)]).with_columns(
        words=pl.Series([0, 2, 4])
    )
    b = a.with_columns(words=pl.Series([0, 1, 2]))
    found = contrast(a, b, "words")
    assert found["u"] == 0.5 + (2 + 0.5) + 3
    assert found["effect"] == pytest.approx(2 * 6.0 / 9 - 1)


def test_p_is_two_sided_by_the_normal_approximation() -> None:
    a = pl.DataFrame(
        {"doc_id": [str(i) for i in range(20)], **{m: range(20) for m in MEASURES}}, schema=QUALITY
    )
    b = a.with_columns(words=pl.Series(range(10, 30)))
    found, mirrored = contrast(a, b, "words"), contrast(b, a, "words")
    # Untied by hand: mean n²/2, variance n²(2n + 1)/12, half a step of continuity; ten ties of two.
    ties = 10 * (2**3 - 2)
    spread = math.sqrt(400 / 12 * (41 - ties / (40 * 39)))
    z = (abs((found["u"] or 0) - 200) - 0.5) / spread
    assert found["p"] == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert mirrored["p"] == pytest.approx(found["p"])
    assert mirrored["effect"] == pytest.approx(-(found["effect"] or 0))


def test_p_values_are_adjusted_over_the_measures_that_both_know() -> None:
    comparison = compare(corpus(*[CODE] * 8), corpus(*[PROSE] * 9))
    tested = [c for c in comparison["contrasts"] if c["p"] is not None]
    assert len(tested) == len(MEASURES) + len(SHARES) - 5
    assert [c["p_adjusted"] for c in tested] == holm_bonferroni([c["p"] or 0.0 for c in tested])
    assert [c["p"] for c in tested] == sorted(c["p"] or 0.0 for c in tested)


def test_an_unknown_bundle_is_not_compared_and_comes_last() -> None:
    comparison = compare(corpus(CODE, scripts=2), corpus(PROSE))
    found = comparison["contrasts"][-5:]
    assert {c["measure"] for c in found} == {
        "bundled_files", "scripts", "reference_documents", "any_script", "any_reference_document",
    }  # fmt: skip
    assert all(
        (c["p"], c["p_adjusted"], c["effect"], c["median_b"]) == (None, None, None, None) for c in found
    )
    assert next(c for c in found if c["measure"] == "scripts")["median_a"] == 2


def test_a_corpus_does_not_differ_from_itself() -> None:
    same = corpus(CODE, PROSE, PLAIN)
    assert {(c["effect"], c["p"]) for c in compare(same, same)["contrasts"] if c["p"] is not None} == {(0, 1)}


IDS = st.sets(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 30)).map(lambda pair: f"{pair[0]}/repo/{pair[1]}")
)


def test_a_namespace_is_owner_and_repository_and_the_host_where_there_is_one() -> None:
    assert namespace_of("ann/tools/bees") == "ann/tools"
    assert namespace_of("ann/tools") == "ann/tools"
    assert namespace_of("gitlab.com/ann/tools/bees") == "gitlab.com/ann/tools"
    assert namespace_of("bees") == "bees"


@given(IDS, st.integers(0, 40), st.sampled_from([namespace_of, lambda doc_id: doc_id[-1]]))
def test_no_stratum_is_drawn_from_twice_before_every_other_had_its_turn(
    doc_ids: set[str], count: int, stratum: Callable[[str], str]
) -> None:
    drawn = stratified(doc_ids, count, stratum=stratum)
    assert len(drawn) == len(set(drawn)) == min(count, len(doc_ids))
    taken, there = (Counter(map(stratum, ids)) for ids in (drawn, doc_ids))
    most = max(taken.values(), default=0)
    assert all(taken[name] >= min(there[name], most - 1) for name in there)


@given(IDS, st.integers(0, 40), st.integers(0, 1000))
def test_a_sample_is_the_beginning_of_a_larger_one_whatever_the_order(
    doc_ids: set[str], count: int, seed: int
) -> None:
    whole = stratified(sorted(doc_ids), len(doc_ids), seed)
    assert stratified(sorted(doc_ids, reverse=True), count, seed) == whole[:count]


def test_served_skills_are_read_as_they_are_served(served_bakery: SkillRoot) -> None:
    held = served_skill_ids(served_bakery.root)
    ids = list(held)
    assert sorted(ids) == sorted(f"local/market/{name}" for name in SKILLS)
    for skill in served_skills(served_bakery.root, ids):
        text = SKILLS[skill.doc_id.rpartition("/")[2]]
        assert f"description: {skill.description}\n" in text
        assert text.rstrip().endswith(skill.body.rstrip())
    assert [s.doc_id for s in served_skills(served_bakery.root, ids[::-1])] == ids[::-1]
