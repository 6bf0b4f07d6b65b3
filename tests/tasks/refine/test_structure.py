from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DOCUMENTS, BundledFile
from tasks.refine.structure import MEASURES, QUALITY, measure, quality_frame

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


def test_fenced_share_is_that_of_characters_between_the_fences() -> None:
    assert measure("abcd\n```\nefghijkl\n```\n", None).fenced_share == 8 / 18
    assert measure("```\nabc", None).fenced_share == 3 / 6
    assert measure("no code", None).fenced_share == 0.0


def test_an_unknown_bundle_is_not_an_empty_one() -> None:
    unknown, empty = measure("text", None), measure("text", ())
    assert (unknown.bundled_files, unknown.scripts, unknown.reference_documents) == (None, None, None)
    assert (empty.bundled_files, empty.scripts, empty.reference_documents) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("Run scripts/a.py and scripts/a.py.", 1),
        ("Run ./scripts/a.py or ${ROOT}/scripts/b/c.sh", 2),
        ("Keep scripts in a folder: my-scripts/a.py, /", 0),
        ("The scripts/ folder", 0),
    ],
)
def test_paths_below_scripts_are_counted_once_each(text: str, scripts: int) -> None:
    assert measure(text, None).script_mentions == scripts


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
    assert frame.select(MEASURES).rows() == [tuple(getattr(q, m) for m in MEASURES) for q in expected]


def test_a_frame_without_documents_is_empty() -> None:
    documents = pl.DataFrame(schema={name: DOCUMENTS[name] for name in ("doc_id", "body", "files")})
    assert quality_frame(documents).schema == QUALITY
