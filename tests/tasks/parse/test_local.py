from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.schemas import BLOCKS, NODE_TYPES
from tasks.parse import fit
from tasks.parse.classify import FragmentInContext
from tasks.parse.cues import find_cues
from tasks.parse.local import RuleClassifier, packaged_weights

NODES = Path(__file__).resolve().parents[4] / "shared" / "bench" / "nodes"


def fragment(
    text: str, *, heading: str = "", block: str = "prose", previous: str | None = None
) -> FragmentInContext:
    path = ("Beekeeping", heading) if heading else ()
    return FragmentInContext("f", path, block, previous, text, None)


CLEAR = [
    ("step", fragment("Open the hive and lift the lid.", heading="Step 2: Inspect")),
    ("step", fragment("[ ] Every frame is back", heading="Checklist", block="list_item")),
    ("example", fragment("```python\nhive = Hive()\nhive.weigh()\n```", block="code", heading="Usage")),
    (
        "param",
        fragment("| Flag | Default |\n|---|---|\n| `--frames` | 10 |", block="table",
                 heading="Options"),
    ),
    ("param", fragment("`--frames` (int): how many", block="list_item", heading="Parameters")),
    ("precondition", fragment("A veil and gloves", block="list_item", heading="Prerequisites")),
    ("precondition", fragment("The user asks for advice", block="list_item", heading="When to use")),
    ("precondition", fragment("Never open the hive in rain.", heading="Constraints")),
    (
        "error_handling",
        fragment("**Cause**: the count fails", block="list_item", heading="Troubleshooting"),
    ),
    ("concept", fragment("A colony is a family of bees that lives around one queen.", heading="Overview")),
    ("concept", fragment("[Queen rearing](queens.md)", block="list_item", heading="References")),
]  # fmt: skip


@pytest.mark.parametrize(("node_type", "given"), CLEAR, ids=lambda part: getattr(part, "text", part))
def test_clear_cases_are_typed_as_the_guide_says(node_type: str, given: FragmentInContext) -> None:
    assert RuleClassifier().classify([given])[0].node_type == node_type


def test_a_list_marker_changes_nothing() -> None:
    bare, marked = (
        RuleClassifier().classify([fragment(text, block="list_item", heading="Steps")])[0]
        for text in ("Lift the lid.", "  3. Lift the lid.")
    )
    assert bare == marked


def test_the_lead_in_of_a_fragment_counts() -> None:
    led = find_cues(fragment("A veil", block="list_item", previous="Prerequisites:"))
    assert "previous:leads:prerequisite" in led
    assert "previous:leads:prerequisite" not in find_cues(fragment("A veil", previous="Prerequisites"))


@pytest.mark.parametrize("character", ["[", "`", "*", '"', "-", "a", " ", "\n", ":", "```\n", "|"])
@pytest.mark.parametrize("block", BLOCKS)
def test_no_text_keeps_the_classifier_busy(character: str, block: str) -> None:
    hostile = character * 300_000
    started = time.process_time()
    RuleClassifier().classify([FragmentInContext("f", (hostile,), block, hostile, hostile, hostile)] * 2)
    assert time.process_time() - started < 2


fragments = st.builds(
    FragmentInContext,
    fragment_id=st.text(max_size=3),
    heading_path=st.lists(st.text(max_size=30), max_size=4).map(tuple),
    block=st.sampled_from([*BLOCKS, "unknown"]),
    previous=st.none() | st.text(max_size=60),
    text=st.text(max_size=120),
    next=st.none() | st.text(max_size=60),
)


@given(st.lists(fragments, max_size=6))
def test_any_text_gets_a_type_and_a_confidence_whatever_stands_around_it_in_the_batch(
    batch: list[FragmentInContext],
) -> None:
    classifier = RuleClassifier()
    typed = classifier.classify(batch)
    assert len(typed) == len(batch)
    assert all(answer.node_type in NODE_TYPES and 1 / 6 - 1e-9 <= answer.confidence < 1 for answer in typed)
    alone = [classifier.classify([one])[0] for one in batch]
    assert [answer.node_type for answer in alone] == [answer.node_type for answer in typed]
    assert [answer.confidence for answer in alone] == pytest.approx([answer.confidence for answer in typed])


def test_scores_are_sums_of_the_weights_of_the_cues_found() -> None:
    cue = "heading:prerequisite"
    votes = [0.0, 0.0, 0.0, 3.0, 0.0, 0.0]
    (answer,) = RuleClassifier({cue: votes}).classify([fragment("x", heading="Prerequisites")])
    assert answer.node_type == "precondition"
    assert answer.confidence == pytest.approx(20.0855 / 25.0855, abs=1e-4)
    (nothing,) = RuleClassifier({cue: votes}).classify([fragment("x")])
    assert nothing.confidence == pytest.approx(1 / 6)


def test_every_packaged_weight_belongs_to_a_type() -> None:
    weights = packaged_weights()
    assert len(weights) > 100
    assert all(len(row) == len(NODE_TYPES) for row in weights.values())


def labelled_file(folder: Path) -> Path:
    path = folder / "train.jsonl"
    rows = [
        {"id": f"{k}-{copy}", "doc_id": f"doc{copy}",
         "heading_path": list(given.heading_path), "block": given.block,
         "text": given.text, "node_type": node_type,
         "confidence": "low" if copy == 0 else "high"}
        for copy in range(6)
        for k, (node_type, given) in enumerate(CLEAR)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_fitting_learns_its_rows_and_writes_the_same_file_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, out = labelled_file(tmp_path), tmp_path / "weights.json"
    fit.main([str(train), "--out", str(out)])
    first = out.read_text(encoding="utf-8")
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
    fit.main([str(train), "--out", str(out)])
    assert out.read_text(encoding="utf-8") == first
    fitted = RuleClassifier(json.loads(first))
    assert [answer.node_type for answer in fitted.classify([g for _, g in CLEAR])] == [t for t, _ in CLEAR]


def test_a_row_without_a_known_type_cannot_be_fitted(tmp_path: Path) -> None:
    path = labelled_file(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('"concept"', '"idea"'), encoding="utf-8")
    with pytest.raises(WrongInput, match="node_type among"):
        fit.read_labelled(path)


def test_agreement_counts_each_type_alike() -> None:
    measured = fit.agreement(["step", "step", "step", "param"], ["step", "step", "param", "param"])
    assert measured.accuracy == 0.75
    assert measured.f1["step"] == pytest.approx(0.8)
    assert measured.f1["param"] == pytest.approx(2 / 3)
    assert measured.macro_f1 == pytest.approx((0.8 + 2 / 3) / 6)


@pytest.mark.slow
@pytest.mark.skipif(not NODES.is_dir(), reason="needs the annotated fragments beside the repository")
def test_two_annotators_agree_with_seven_of_ten_answers() -> None:
    gold = fit.read_labelled(NODES / "gold.jsonl")
    typed = RuleClassifier().classify([row.fragment for row in gold])
    measured = fit.agreement([row.node_type for row in gold], [answer.node_type for answer in typed])
    assert measured.accuracy >= 0.70
    assert measured.macro_f1 >= 0.62


def test_thousands_of_fragments_are_typed_a_second() -> None:
    texts = [f"Weigh hive {k} and write `{k}` down, then close it before rain comes." for k in range(3000)]
    batch = [
        FragmentInContext("f", ("Hives", f"Row {k // 10}"), "list_item", before, text, None)
        for k, (before, text) in enumerate(zip([None, *texts], texts, strict=False))
    ]
    started = time.process_time()
    RuleClassifier().classify(batch)
    assert len(batch) / (time.process_time() - started) > 1000
