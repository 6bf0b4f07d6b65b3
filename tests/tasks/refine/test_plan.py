from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DOCUMENTS, BundledFile
from tasks.refine import plan
from tasks.refine.filters import MAX_PARTS, FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.structure import MEASURES, QUALITY, measure, quality_frame
from tasks.refine.text import rules as rules_data
from tests.support.roots.nights import HandSource, Nights, raw

DATA = Path(plan.__file__).parent / "data"
TEXT = b"---\nname: bread\ndescription: Bakes bread.\n---\nLet it rise.\n"


def todo(nights: Nights) -> int:
    plan.rule_digests.cache_clear()
    return plan_refine(nights.root, FilterLimits()).todo


@pytest.mark.parametrize("name", ["licences.yaml", "placeholders.yaml"])
def test_another_rule_or_limit_refines_what_was_refined_by_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    nights = Nights(tmp_path / "root")
    nights.run(HandSource("dir:d", raw("o/r/bread", TEXT)))
    assert todo(nights) == 0
    copy = tmp_path / "rules" / "data"
    copy.mkdir(parents=True)
    for file in DATA.glob("*.yaml"):
        (copy / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(rules_data, "files", lambda _: copy.parent)
    assert todo(nights) == 0
    with (copy / name).open("a", encoding="utf-8") as rules:
        rules.write("# another rule\n")
    assert todo(nights) == 1
    monkeypatch.undo()
    assert todo(nights) == 0
    monkeypatch.setattr(plan, "BOILERPLATE", plan.BOILERPLATE[:-1])
    assert todo(nights) == 1
    monkeypatch.undo()
    assert todo(nights) == 0
    assert plan_refine(nights.root, FilterLimits(max_parts=MAX_PARTS)).todo == 0
    assert plan_refine(nights.root, FilterLimits(max_parts=5)).todo == 1


def test_the_digest_of_a_root_made_before_is_still_that_of_the_default_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "STAGE_VERSION", 3)
    monkeypatch.setattr(plan, "rule_digests", lambda: {"risk rules": "3c7c1fd88365"})
    assert plan.digest_of_rules(FilterLimits()) == "d34cef26a7fc"


def test_the_rules_are_those_by_which_roots_were_refined() -> None:
    # Who edits a rule changes its digest here, and knows that every document is refined again.
    plan.rule_digests.cache_clear()
    assert plan.rule_digests() == {
        "risk rules": "683ad71d8ed9",
        "licences": "2b7fa3811d87",
        "placeholders": "aa6fa77fbf88",
        "boilerplate": "3959ada1de69",
    }


BODY = """# Knots

Ties [knots](https://knots.example/guide), see references/bends.md and references/hitches.md.

## Steps

1. Make a loop.
2. Pull.
   - gently
* Done.

| knot | use |
| --- | --- |
| bowline | loops |

```bash
# no heading
1. no item
scripts/tie.sh bowline
```

```text
[no](language)
```

Run `python scripts/check.py`, then scripts/tie.sh again. ![picture](knot.png)
"""

BUNDLE = (
    BundledFile("SKILL.md", 1, "a"),
    BundledFile("LICENSE.txt", 1, "b"),
    BundledFile("scripts/tie.sh", 1, "c"),
    BundledFile("check.py", 1, "d"),
    BundledFile("references/bends.md", 1, "e"),
    BundledFile("assets/knot.png", 1, "f"),
)


def test_each_measure_counts_its_own() -> None:
    quality = measure(BODY, BUNDLE)
    assert quality.characters == len(BODY)
    assert quality.lines == 19
    assert quality.words == len(BODY.split())
    assert (quality.headings, quality.heading_depth) == (2, 2)
    assert (quality.code_blocks, quality.runnable_blocks) == (2, 1)
    assert (quality.ordered_items, quality.bullet_items, quality.table_rows) == (2, 2, 3)
    assert quality.links == 1
    assert (quality.script_mentions, quality.reference_mentions) == (2, 2)
    assert (quality.bundled_files, quality.scripts, quality.reference_documents) == (5, 2, 1)
    for text, scripts in {
        "Run scripts/a.py and scripts/a.py.": 1, "Run ./scripts/a.py or ${ROOT}/scripts/b/c.sh": 2,
        "Keep scripts in a folder: my-scripts/a.py, /": 0, "The scripts/ folder": 0,
    }.items():  # fmt: skip
        assert measure(text, None).script_mentions == scripts, text
    unknown, empty = measure("text", None), measure("text", ())  # which is not the same
    assert (unknown.bundled_files, unknown.scripts, unknown.reference_documents) == (None, None, None)
    assert (empty.bundled_files, empty.scripts, empty.reference_documents) == (0, 0, 0)
    assert measure("abcd\n```\nefghijkl\n```\n", None).fenced_share == 8 / 18
    assert measure("```\nabc", None).fenced_share == 3 / 6
    assert empty.fenced_share == 0.0


@given(st.text(alphabet="#`~*-|1.) \nab[](<>:/", max_size=200))
def test_measures_of_any_text_are_within_their_ranges(text: str) -> None:
    quality = measure(text, None)
    assert 0 <= quality.fenced_share <= 1
    assert quality.runnable_blocks <= quality.code_blocks
    assert (quality.headings == 0) == (quality.heading_depth == 0)
    assert quality.heading_depth <= 6
    assert quality.headings + quality.ordered_items + quality.table_rows <= quality.lines


@pytest.mark.parametrize("lazy", [False, True])
def test_a_frame_has_a_row_a_document_with_the_same_measures(lazy: bool) -> None:
    files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in BUNDLE]
    columns = {"doc_id": ["a/b", "c/d"], "body": [BODY, "text"], "files": [files, None]}
    documents = pl.DataFrame(columns, schema={name: DOCUMENTS[name] for name in columns})
    frame = quality_frame(documents.lazy() if lazy else documents).sort("doc_id")
    assert frame.schema == QUALITY
    assert frame["doc_id"].to_list() == ["a/b", "c/d"]
    expected = [measure(BODY, BUNDLE), measure("text", None)]
    assert quality_frame(documents.clear()).schema == QUALITY
    assert frame.select(MEASURES).rows() == [tuple(getattr(q, m) for m in MEASURES) for q in expected]
