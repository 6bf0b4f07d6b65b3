from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import DOCUMENTS
from tasks.evaluate.corpus.read import corpus_texts, load_corpus, read_categories
from tasks.evaluate.paging.bench import body_of
from tasks.refine.structure import QUALITY
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


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_s_folder_is_measured_as_its_documents_are(tmp_path: Path, form: str) -> None:
    exported(tmp_path, form)
    assert only(load_corpus(str(tmp_path)).measures)[:2] == ("a/b", len(BODY))


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


def test_a_parquet_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pl.DataFrame({"id": ["a"], "text": ["b"]}).write_parquet(path)
    with pytest.raises(WrongInput, match="none of content and body; found id, text"):
        load_corpus(str(path))


def test_a_folder_that_is_no_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no root"):
        load_corpus(str(tmp_path))


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


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{\n", "utf-8")
    with pytest.raises(WrongInput, match=r"bad\.jsonl:1"):
        read_categories([tmp_path / "bad.jsonl"])


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
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no Parquet", "utf-8")
    pl.DataFrame({"title": ["a"]}).write_parquet(tmp_path / "other.parquet")
    pl.DataFrame({"id": [], "body": []}, schema={"id": pl.String, "body": pl.String}).write_parquet(
        tmp_path / "none.parquet"
    )
    for name, said in {
        "nowhere": "not found",
        "empty": "no root",
        "text.parquet": "cannot be read as Parquet",
        "other.parquet": "has no column",
        "none.parquet": "holds no text",
    }.items():
        with pytest.raises(WrongInput, match=said):
            corpus_texts(str(tmp_path / name))
