"""Known files: what a skill's card, benchmark and tests say, in `show` and in an export."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.lance.served import Licences, write_licences
from tasks.evaluate.routing.data import read_qrels, read_tasks
from tasks.refine.export.export import export_corpus
from tasks.refine.known_files import eval_requests, known_facts, routing_lines
from tasks.retrieve.revisions.show import open_edition, shown
from tests.support.roots.nights import HandSource, Nights, raw, with_files

EVALS = [
    {"id": "a", "question": "When does the tide turn?", "expected_skill": "tide"},
    {"id": "b", "question": "Bake a cake.", "expected_skill": None},
    {"id": "a", "question": "Again", "expected_skill": "tide"},
    {"question": " "},
    "no object",
]
FILES = {
    "evals/evals.json": json.dumps(EVALS).encode(),
    "skill-card.md": b"# Tide\n\n## Owner\nAnn,\nof the sea\n\n## Empty\n\n## License\nMIT\n",
    "BENCHMARK.md": b"## Results\n| agent | passed |\n|---|---|\n| one | 9 |\n",
    "scripts/tide.py": b"print(1)\n",
}
TEXT = b"---\nname: tide\ndescription: Reads tide tables.\nlicense: MIT\n---\nLook it up.\n"


def test_show_and_export_have_the_facts_of_known_files(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "root")
    skill = with_files(raw("o/r/tide", TEXT), FILES)
    nights.run(HandSource("git+https://example.org/o/r", skill))
    write_licences(nights.root, Licences({"MIT": "allow"}, "deny"))
    assert shown(*open_edition(nights.root, "o/r/tide"))["known_files"] == {
        "evals": {"queries": 1, "negatives": 1},
        "card": {"Owner": "Ann, of the sea", "License": "MIT"},
        "benchmark": {"Results": "| agent | passed | |---|---| | one | 9 |"},
    }
    export_corpus(nights.root, tmp_path / "out", now=nights.now)
    bench = tmp_path / "out/routing"
    (task,) = read_tasks(bench / "queries.jsonl")
    (qrel,) = read_qrels(bench / "qrels.jsonl")
    (negative,) = read_tasks(bench / "negatives.jsonl")
    assert (task.text, qrel.query_id, qrel.doc_id) == ("When does the tide turn?", task.query_id, "o/r/tide")
    assert (negative.text, negative.not_doc_id) == ("Bake a cake.", "o/r/tide")


def test_without_known_files_there_are_no_facts_and_no_bench(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "root")
    nights.run(HandSource("git+https://example.org/o/r", raw("o/r/tide", TEXT)))
    write_licences(nights.root, Licences({"MIT": "allow"}, "deny"))
    assert shown(*open_edition(nights.root, "o/r/tide"))["known_files"] == {}
    export_corpus(nights.root, tmp_path / "out", now=nights.now)
    assert not (tmp_path / "out/routing").exists()


@given(st.binary(max_size=200))
def test_any_bytes_have_facts_or_none(content: bytes) -> None:
    files = dict.fromkeys(FILES, content)
    assert set(known_facts(files)) <= {"evals", "card", "benchmark"}
    assert eval_requests({"evals/evals.json": b"[" * 10_000}) == []
    half = b'[{"id": "\\ud800", "question": "x \\ud800", "expected_skill": "a"}]'
    (line,) = routing_lines("d", {"evals/evals.json": half})["queries.jsonl"]
    assert json.dumps(line, ensure_ascii=False).encode()
