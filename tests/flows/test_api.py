"""The door for Python programs: typed answers, by threads, that follow what is published; and adapters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.api import SkillIndex, open_index
from storage.errors import NotPublished, UnknownDocument, WrongInput
from tests.support.command import Ask
from tests.support.paths import PROJECT
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]
MITES = "treat bees against varroa mites with oxalic acid"
BEES_ID = "local/market/bees"


@pytest.fixture(scope="module")
def index(served_bakery: SkillRoot) -> SkillIndex:
    return open_index(served_bakery.root.uri)


def test_answers_are_those_of_the_command(index: SkillIndex, ask: Ask, served_bakery: SkillRoot) -> None:
    at = ["--root", served_bakery.root.uri]
    hit = index.search(MITES, 1).results[0]
    told = ask.told("search", MITES, "-k", "1", *at)
    (row,) = told["results"]
    assert (hit.doc_id, hit.fit, hit.licence) == (row["doc_id"], row["fit"], row["licence"])
    page = ask.told("page", BEES_ID, MITES, "--budget", "60", *at)
    assert index.page(BEES_ID, MITES, 60).context == page["context"]
    plan = index.compose("treat the bees, then bake bread")
    assert plan.steps == ask.told("compose", "treat the bees, then bake bread", *at)["steps"]
    assert index.show("bees").body == ask.told("show", "bees", *at)["body"]


def test_mistakes_are_told_by_their_kind(index: SkillIndex, served_bakery: SkillRoot) -> None:
    with pytest.raises(UnknownDocument):
        index.show("nobody/knows/this")
    search = index.search
    for wrong in (lambda: search(" "), lambda: index.page(BEES_ID, "q", -1), lambda: search("q", 0)):
        with pytest.raises(WrongInput):
            wrong()
    with pytest.raises(WrongInput, match="learned"):
        index.suggest("a task", {"observation": "a page"})


def test_threads_share_an_index_which_follows_publications(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD})
    index = open_index(root.root.uri)
    with pytest.raises(NotPublished):
        index.search("bread")
    root.publish()
    with ThreadPoolExecutor(4) as pool:
        first = list(pool.map(lambda _: index.search("bread and bees").results, range(8)))
        assert {tuple(hit.doc_id for hit in hits) for hits in first} == {("local/market/bread",)}
        root.write("bees", BEES)
        root.publish()
        second = list(pool.map(lambda _: index.search("bread and bees").results, range(8)))
    assert {len(hits) for hits in second} == {2}


def test_a_retriever_of_langchain_returns_pages_with_whose_they_are(index: SkillIndex) -> None:
    pytest.importorskip("langchain_core", reason="the extra langchain is not installed")
    from flows.adapters.langchain import SkillRetriever

    documents = SkillRetriever(index=index, k=2).invoke(MITES)
    assert documents[0].id == documents[0].metadata["doc_id"] == BEES_ID
    assert "oxalic acid" in documents[0].page_content
    assert documents[0].metadata["source"] == index.search(MITES, 1).results[0].source
    assert SkillRetriever(index=index).invoke("zzz qqq xyzzy") == []


def test_a_retriever_of_llama_index_returns_pages_with_their_fit(index: SkillIndex) -> None:
    pytest.importorskip("llama_index.core", reason="the extra llama-index is not installed")
    from flows.adapters.llama_index import SkillNodeRetriever

    nodes = SkillNodeRetriever(index, k=2).retrieve(MITES)
    assert nodes[0].node.node_id == BEES_ID
    assert "oxalic acid" in nodes[0].get_content()
    assert nodes[0].score == index.search(MITES, 1).results[0].fit
    assert SkillNodeRetriever(index).retrieve("zzz qqq xyzzy") == []


README = (PROJECT / "README.md").read_text("utf-8")
DETAIL = (PROJECT / "flows/cli/README.md").read_text("utf-8")
(COMMAND,) = re.findall(r"^\.venv/bin/skillery (compose .*)$", README, re.MULTILINE)
(SHOWN,) = re.findall(r"^```\n( 1\. .*?)^```$", DETAIL, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def sample(shipped: SkillRoot) -> str:
    """Return a root that serves the skills that come with Skillery; no plan needs their nodes."""
    return str(shipped.root.folder)


def told(line: str) -> list[str]:
    """Return what a line of a step says that no weights decide."""
    return re.findall(r"^ ?\d+\. .*|^    (?:after [\d, ]+|local/\S+)$", line)


def test_the_example_answers_as_readme_shows_it(sample: str, ask: Ask) -> None:
    arguments = shlex.split(COMMAND)
    printed = ask(*arguments, "--root", sample)
    plan = ask.told(*arguments, "--root", sample)
    assert printed.code == 0, printed.stderr
    lines = [[part for line in text.splitlines() for part in told(line)] for text in (SHOWN, printed.stdout)]
    assert lines[0] == lines[1]
    assert [step["doc_id"] for step in plan["steps"]] == re.findall(r"^    (local/\S+)$", SHOWN, re.MULTILINE)
    assert [step["after"] for step in plan["steps"]] == [[], [1]]


def test_the_example_can_be_drawn_and_has_pages(sample: str, ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "plan.mmd"
    arguments = [*shlex.split(COMMAND), "--out", str(out), "--pages", "0.3"]
    plan = ask.told(*arguments, "--root", sample)
    for step in plan["steps"]:
        assert 0 < step["page"]["tokens"] <= 0.3 * step["page"]["document_tokens"]
        assert step["doc_id"] in out.read_text("utf-8")


def test_the_lines_of_python_run_and_readme_is_short(
    sample: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"^<!-- python -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert lines.count("\n") <= 10
    assert README.count("\n") < 150
    monkeypatch.chdir(Path(sample).parent)
    (Path(sample).parent / "data").symlink_to(sample)
    exec(compile(lines, "README.md", "exec"), {})  # noqa: S102 (our own)
    printed = capsys.readouterr().out
    assert "local/marketplace/data/csv-cleaning" in printed
    assert "compost" in printed
