from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train import fragments as self_training
from tasks.train.fragments import Labelled, draw_by_type, draw_fragments, draw_unlabelled, hidden


def skill(name: str, lines: int = 60) -> str:
    body = "\n".join(f"- Stir the {name} batter {n} times with a wooden spoon." for n in range(lines))
    return f"---\nname: {name}\n---\n# {name}\n\n## Steps\n\n{body}\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    ids = [f"shelf/{name}" for name in ("rye", "spelt", "oat", "tiny")]
    texts = [skill("rye"), skill("spelt"), skill("oat"), skill("tiny", 3)]
    path = tmp_path / "skills.parquet"
    pl.DataFrame({"id": ids, "content": texts}).write_parquet(path)
    return path


def test_no_document_gives_more_than_its_share_and_short_ones_none(corpus: Path) -> None:
    found = draw_fragments(corpus)
    owners = Counter(fragment.fragment_id.split("#")[0] for fragment in found)
    assert owners == dict.fromkeys(("shelf/rye", "shelf/spelt", "shelf/oat"), self_training.EACH)
    assert all(fragment.heading_path[-1] == "Steps" for fragment in found)
    assert not any("name:" in fragment.text for fragment in found)


def test_documents_that_are_to_be_left_out_are_whatever_stands_before_their_name(corpus: Path) -> None:
    found = draw_fragments(corpus, without=["pool/Rye", "oat"])
    assert {fragment.fragment_id.split("#")[0] for fragment in found} == {"shelf/spelt"}


def owners(fragments: list[FragmentInContext]) -> set[str]:
    return {fragment.fragment_id.split("#")[0] for fragment in fragments}


def test_a_copy_under_another_name_is_left_out_too(corpus: Path, tmp_path: Path) -> None:
    every = draw_fragments(corpus)
    spelt, oat = (next(f for f in every if name in f.text) for name in ("spelt", "oat"))
    row = Labelled(replace(spelt, text=f" {spelt.text}\n"), "pool/other", "step", doubted=False)
    assert owners(draw_unlabelled(corpus, [row])) == {"shelf/rye", "shelf/oat"}
    gold = tmp_path / "gold.jsonl"
    lines = [{"doc_id": "gold/a", "text": oat.text}, {"doc_id": "gold/b", "text": "rye"}, {"doc_id": "c"}]
    gold.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert owners(draw_unlabelled(corpus, [row], gold)) == {"shelf/rye"}


def test_a_corpus_of_which_nothing_may_be_drawn_is_refused(corpus: Path) -> None:
    with pytest.raises(WrongInput, match=r"skills\.parquet: no document"):
        draw_fragments(corpus, without=["rye", "oat", "spelt"])


def test_ids_may_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbered.parquet"
    pl.DataFrame({"id": [7], "content": [skill("rye")]}).write_parquet(path)
    assert owners(draw_fragments(path)) == {"7"}


def test_a_seed_draws_the_same(corpus: Path) -> None:
    assert draw_fragments(corpus, seed=3) == draw_fragments(corpus, seed=3)
    assert draw_fragments(corpus, seed=3) != draw_fragments(corpus, seed=4)


def test_no_type_has_more_than_its_quota_and_rare_ones_come_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "QUOTA", dict.fromkeys(NODE_TYPES, 5))
    best = [0] * 20 + [1] * 5 + [5] * 2
    drawn = draw_by_type(np.eye(6)[best])
    assert Counter(best[k] for k in drawn.tolist()) == {0: 5, 1: 5, 5: 2}
    assert len(set(drawn.tolist())) == 12


def test_what_is_hidden_is_context_and_never_the_fragment(corpus: Path) -> None:
    shown = draw_fragments(corpus)
    given = hidden(shown)
    assert [one.text for one in given] == [one.text for one in shown]
    paths = Counter(len(before.heading_path) - len(after.heading_path)
                    for before, after in zip(shown, given, strict=True))  # fmt: skip
    assert set(paths) == {0, 1, 2}
    assert paths[0] > paths[1] > paths[2]
    missed = sum(after.next is None and before.next is not None
                 for before, after in zip(shown, given, strict=True))  # fmt: skip
    assert 0 < missed < len(shown) / 2


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pl.DataFrame({"id": ["a"], "title": ["b"]}).write_parquet(other)
    for path in (other, tmp_path / "none.parquet"):
        with pytest.raises(WrongInput, match=rf"{path.name}: give a Parquet file"):
            draw_fragments(path)
