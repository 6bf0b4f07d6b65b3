from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.commands.routing.searching import other_ranker
from flows.commands.routing.settings import SkillRouterSettings
from flows.settings import load, load_settings
from tasks.models.with_torch.reranker import CrossEncoder, load_reranker
from tasks.retrieve.baselines.skillrouter import flat_text
from tasks.retrieve.routing.reranker import REACHES, Reach
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.models.tiny_models import save_cross_encoder, save_qwen3
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

made = CrossEncoder.__init__
QUERY = "knead the dough before the oven is hot"


@pytest.fixture
def where(served_bakery: SkillRoot) -> list[str]:
    return ["--root", served_bakery.root.uri]


def ids(found: dict[str, Any]) -> list[str]:
    return [result["doc_id"] for result in found["results"]]


@pytest.mark.parametrize("method", ["bm25-full", "dense-description", "rrf"])
def test_a_plain_method_ranks_what_is_served_and_tells_no_fit(
    method: str, where: list[str], ask: Ask
) -> None:
    found = ask.told("search", QUERY, "-k", "2", "--method", method, *where)
    assert len(found["results"]) == min(2, len(SKILLS))
    assert found["nothing_fits"] is None
    assert all(result["fit"] is None and result["score"] is None for result in found["results"])


def test_of_a_method_without_parts_of_a_score_none_are_told(where: list[str], ask: Ask) -> None:
    plain = ask("search", QUERY, "--method", "bm25-full", *where)
    code, printed, told = ask("search", QUERY, "--method", "bm25-full", "--explain", *where)
    assert (code, plain[0]) == (0, 0), told
    assert printed.splitlines()[:3] == plain[1].splitlines()[:3]


def test_how_far_skills_are_read_is_asked_for_or_set(
    where: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*asked: str) -> list[float]:
        found = ask.told("search", QUERY, "--explain", *asked, *where)
        return [result["parts"]["reranker"] for result in found["results"]]

    monkeypatch.setitem(REACHES, "best", Reach(2, 96, 0.8))
    none, fast, best = (read("--rerank", how) for how in ("none", "fast", "best"))
    assert not any(none)
    assert any(fast)
    assert any(best)
    assert fast != best
    assert best == read()
    monkeypatch.setenv("SKILLERY_RERANK", "fast")
    assert read() == fast


@pytest.mark.parametrize("save", [save_cross_encoder, save_qwen3])
def test_a_reranker_puts_the_first_skills_in_its_order_and_leaves_their_fit(
    save: Callable[[Path], Path], where: list[str], served_bakery: SkillRoot, ask: Ask, tmp_path: Path
) -> None:
    folder = str(save(tmp_path / "model"))
    usual = ask.told("search", QUERY, "--rerank", "none", *where)
    found = ask.told("search", QUERY, "--rerank", folder, *where)
    model = load_reranker(
        folder, instruction=load(SkillRouterSettings).reranker_instruction, max_tokens=3500, device="cpu"
    )
    with served_bakery.ask().version() as now:
        searcher = now.searcher()
    skills = searcher.skills(searcher.places_of(ids(usual)))
    scores = model.score(QUERY, [flat_text(skill, (500, 3000), model) for skill in skills])
    assert ids(found) == [skills[i].doc_id for i in np.argsort(-scores, kind="stable")]
    fits, before = ({r["doc_id"]: r["fit"] for r in one["results"]} for one in (found, usual))
    assert fits == before
    assert [r["rank"] for r in found["results"]] == list(range(1, len(skills) + 1))


def test_the_language_model_that_judges_decides_which_skill_is_first(
    where: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *rest = ids(ask.told("search", QUERY, "--rerank", "none", *where))
    with llm_set_up(monkeypatch, say=lambda _: '{"selected": [2]}') as server:
        assert ids(ask.told("search", QUERY, "--rerank", "judge", *where)) == [second, first, *rest]
        assert server.requests == 1


def test_a_judge_that_does_not_answer_leaves_the_order_and_is_told_of(
    where: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ask.told("search", "bake a loaf", "--rerank", "none", *where)
    with llm_set_up(monkeypatch, say=lambda _: "I would rather not."):
        code, printed, told = ask("search", "bake a loaf", "--rerank", "judge", "--json", *where)
    assert (code, ids(json.loads(printed))) == (0, ids(usual))
    assert "no answer (1 x judge-skill-1: malformed): its step was left out there" in told


def test_filters_hold_and_a_batch_is_ranked_line_by_line(where: list[str], ask: Ask, tmp_path: Path) -> None:
    batch, out = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    batch.write_text("".join(json.dumps({"query": q, "k": 1}) + "\n" for q in (QUERY, "mend")), "utf-8")
    options = ["--method", "bm25-full", "--batch", str(batch), "--out", str(out), *where]
    assert ask("search", *options, "--kind", "skill").code == 0
    assert [len(line["results"]) for line in lines_of(out)] == [1, 1]
    assert "nothing served has it" in ask.refused(
        "search", QUERY, "--method", "bm25-full", "--licence", "WTFPL", *where
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "magic"], "unknown routing method 'magic'"),
        (["--method", "default-dense"], "ranks on benches alone: choose one of default, bm25"),
        (
            ["--method", "bm25-full", "--min-fit", "0.5"],
            "skillery: no least fit can be asked for: fit is known with the default encoder and method",
        ),
        (["--rerank", "judge"], "SKILLERY_LLM"),
        (["--rerank", "best", "--method", "bm25-full"], "--rerank best is for the default method"),
    ],
)
def test_what_cannot_rank_is_said_in_a_line(
    options: list[str], said: str, where: list[str], ask: Ask
) -> None:
    assert said in ask.refused("search", QUERY, *options, *where)


def test_a_reranker_that_is_not_there_is_named(where: list[str], ask: Ask, tmp_path: Path) -> None:
    code, _, told = ask("search", QUERY, "--rerank", str(tmp_path), *where)
    assert code == 1
    assert f"model {tmp_path} cannot be loaded" in told


def test_a_reranker_is_loaded_once_for_a_batch(
    served_bakery: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        CrossEncoder, "__init__", lambda self, name, **how: (loaded.append(name), made(self, name, **how))[1]
    )
    folder = str(save_cross_encoder(tmp_path / "model"))
    index = served_bakery.ask()
    with other_ranker(served_bakery.root, load_settings(), reranker=folder) as ranker:
        found = [index.search(query, 2, ranker=ranker) for query in (QUERY, "bake a loaf")]
    assert loaded == [folder]
    assert all(len(one["results"]) == min(2, len(SKILLS)) for one in found)
