"""Commands that classify: they type a file, or measure types and edges against labels or an LLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flows.commands.console import Report, progress
from flows.settings import Kind, Settings, asked_llm, llm_options
from storage.errors import WrongInput
from storage.jsonl import read_lines, write_lines
from storage.root import Root
from tasks.evaluate.measures.nodes import (
    MOST_DOCUMENTS,
    agreement,
    balanced_nodes,
    edge_agreement,
    read_gold,
    sampled_documents,
    threshold_table,
)
from tasks.models.llm.budget import Ledger
from tasks.parse.classify.llm import ACCURACY, Typing, document_in, merged, typed_by
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import (
    TypingOptions,
    classifier_name,
    everything,
    llm_report,
    open_classifier,
)
from tasks.parse.classify.protocol import FragmentInContext, Typed, read_fragments, write_typed
from tasks.parse.edges.linker import EdgeOptions, edges_report, open_asked


def require_kind(classifier: str) -> Kind:
    """Return the kind of classifier that an option names; raises `WrongInput` if there is none."""
    kinds: dict[str, Kind] = {"local": "local", "llm": "llm", "hybrid": "hybrid"}
    if classifier not in kinds:
        raise WrongInput(f"classifier {classifier!r} is not known: choose one of {', '.join(kinds)}")
    return kinds[classifier]


def classify_file(
    root: Root, settings: Settings, fragments: Path, out: Path, classifier: str
) -> dict[str, Any]:
    """Type a file of fragments, write `{id, node_type, confidence, classifier}` a line, and return counts.

    Counts are `fragments`, `out`, `classifiers` and `types` (fragments by name), and `llm` (`llm_report`, or
    null). Answers of an LLM are kept below the root as they arrive, so that a killed command asks nothing
    twice. Raises `WrongInput` if a file, the classifier or its settings cannot be used, and nothing was
    asked; or the LLM's types are not believed, and `LlmDenied` if the server denies access, or has no such
    model.
    """
    llm = llm_options(settings, require_kind(classifier))
    rows = list(read_fragments(fragments))
    documents = _documents(fragments, rows)
    found: dict[str, Any] = {"fragments": len(rows), "out": str(out)}

    def typed() -> Iterator[tuple[str, Typed, str]]:
        with progress("typed") as report:
            typing, found["llm"] = type_fragments(root, llm, rows, documents, report)
        found["classifiers"] = _counted(row.classifier for row in typing.rows)
        found["types"] = _counted(row.typed.node_type for row in typing.rows)
        for fragment, row in zip(rows, typing.rows, strict=True):
            yield fragment.fragment_id, row.typed, row.classifier

    write_typed(out, typed())
    return found


def type_fragments(
    root: Root, llm: TypingOptions | None, fragments: Sequence[FragmentInContext],
    documents: Sequence[str | None], report: Report | None = None,
) -> tuple[Typing, dict[str, Any] | None]:  # fmt: skip
    """Type fragments as the options say; return the rows, and what an LLM was asked, if any."""
    with open_classifier(root, LocalClassifier(), llm) as (classifier, ledger):
        typing = typed_by(classifier, fragments, documents, report)
        return typing, llm_report(classifier.name, llm, typing.counts(), ledger.carried())


def _documents(path: Path, fragments: Sequence[FragmentInContext]) -> list[str | None]:
    lines = (record for _, record in read_lines(path, "{id, ...}"))
    return [document_in(line, fragment) for line, fragment in zip(lines, fragments, strict=True)]


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def nodes_bench(root: Root, settings: Settings, gold: Path, classifier: str) -> dict[str, Any]:
    """Return how a classifier agrees with people, and the cost and accuracy of each hybrid threshold.

    The keys are `classifier`, those of `agreement`, `thresholds` (`threshold_table`), `measured` (false if
    the accuracies are expected from `SKILLERY_LLM_ACCURACY`), and `llm` (`llm_report`, or null). An LLM need
    not be believed, and is asked about every fragment, whatever the threshold, so that the table is measured.
    Errors are those of `classify_file`.
    """
    llm = llm_options(settings, require_kind(classifier))
    labelled, local = read_gold(gold), LocalClassifier()
    answers = typed_by(local, labelled.fragments).rows
    sure = [row.typed for row in answers]
    asked = report = None
    if llm is not None:
        with progress("typed") as told:
            asked, report = type_fragments(
                root, everything(llm), labelled.fragments, labelled.documents, told
            )
        answers = asked.rows if llm.threshold is None else merged(answers, asked.rows, llm.threshold)
    labels = None if asked is None else [row.typed.node_type for row in asked.rows]
    return {
        "classifier": classifier_name(local.name, llm),
        **agreement(labelled, [row.typed for row in answers]),
        "thresholds": threshold_table(labelled, sure, labels, settings.llm_accuracy or ACCURACY),
        "measured": labels is not None,
        "llm": report,
    }


def write_sample(root: Root, out: Path, count: int) -> dict[str, Any]:
    """Write parsed nodes for people to label, balanced over types, sources and sizes of skills.

    A line is a fragment as `nodes_bench` reads it; `node_type` is empty and tells not what the parser said.

    Returns `out`, `nodes`, and how many there are `by_type`, `by_source` and `by_size`. Raises `WrongInput`
    if the root holds no parsed skill, or the file is there already.
    """
    if out.exists():
        raise WrongInput(f"{out} is there already, and may hold labels: name another file")
    drawn = balanced_nodes(sampled_documents(root, MOST_DOCUMENTS), count)
    write_lines(out, (one.line for one in drawn))
    names = ("type", "source", "size")
    return {
        "out": str(out), "nodes": len(drawn),
        **{f"by_{name}": _counted(one.stratum[n] for one in drawn) for n, name in enumerate(names)},
    }  # fmt: skip


def edges_bench(root: Root, settings: Settings, count: int) -> dict[str, Any]:
    """Return how far the rules' conditions and references agree with an LLM's, on parsed documents of a root.

    The keys are `asked_of` (documents), `model`, those of `edge_agreement`, and `llm` (`llm_report` with the
    keys of `edges_report` as `edges`). Answers are kept below the root. Raises `WrongInput` if no LLM is set
    up, or the root holds no parsed skill, and `LlmDenied` if the server denies access, or has no such model.
    """
    llm = asked_llm(settings)
    edges, documents = EdgeOptions("llm", llm), sampled_documents(root, count)
    ledger = Ledger(llm.prices, llm.ceiling)
    with open_asked(root, LocalClassifier(), None, edges, ledger) as (_, linker):
        assert linker is not None  # noqa: S101 (for the types: there are options)
        linked, model = linker.link(documents), linker.name
    report = llm_report(model, llm, linked.counts(), ledger.carried()) or {}
    return {
        "asked_of": len(documents),
        "model": model,
        **edge_agreement(documents, linked, model),
        "llm": {**report, "edges": edges_report(edges, linked.counts())},
    }
