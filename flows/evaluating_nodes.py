"""Measures classifiers of fragments for the command, on fragments that people have typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.classifying import local_classifier, require_kind, type_fragments
from flows.llm_settings import llm_options
from flows.progress import progress
from flows.settings import Settings
from storage.root import Root
from tasks.evaluate.nodes import agreement, read_gold, threshold_table
from tasks.parse.choose import classifier_name, everything
from tasks.parse.hybrid import merged
from tasks.parse.typed import typed_by


def nodes_bench(root: Root, settings: Settings, gold: Path, classifier: str) -> dict[str, Any]:
    """Return how a classifier agrees with people, and what each threshold of a hybrid would cost and bring.

    A language model is asked about every fragment, whatever the threshold, so that the table is measured.

    Returns:
        `classifier`, the keys of `agreement`, `thresholds` (`threshold_table`), `measured` (whether its
        accuracies are, or are expected of `SKILLERY_LLM_ACCURACY`), and `llm` (`llm_report`, or null).

    Raises:
        WrongInput: The file, the classifier or its settings cannot be used; nothing has been asked then.
        LlmDenied: The server lets nobody in, or has no such model.
    """
    llm = llm_options(settings, require_kind(classifier))
    labelled, local = read_gold(gold), local_classifier()
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
        "thresholds": threshold_table(labelled, sure, labels, settings.llm_accuracy),
        "measured": labels is not None,
        "llm": report,
    }
