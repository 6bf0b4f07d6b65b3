"""The accuracy of an LLM, measured on fragments of known type before it types any other."""

from __future__ import annotations

from collections import Counter
from importlib import resources

from storage.errors import WrongInput
from storage.jsonl import read_lines
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import EARLY, Fallback
from tasks.parse.classify.llm import LlmClassifier
from tasks.parse.classify.local import SUREST
from tasks.parse.classify.protocol import FragmentInContext, read_fragments

# Stands for the figures where types are identified; it changes with the fragments and the rule below.
MEASURED = "measured-1"
_TOLD = 3  # types of which the refusal says how often they were mistaken
# Twelve fragments of a type say little: a type's share counts as if so many more had the share of all.
_DRAWN = 5


def known_fragments() -> tuple[list[FragmentInContext], list[str]]:
    """Return the packaged fragments of known type, in order, and their types."""
    with resources.as_file(resources.files("tasks.parse").joinpath("data/measured.jsonl")) as path:
        lines = read_lines(path, "{id, heading_path, block, previous, text, next, node_type}")
        return list(read_fragments(path)), [record["node_type"] for _, record in lines]


def measured(classifier: LlmClassifier) -> dict[str, float] | Fallback:
    """Return the confidence of a model's labels: how often it was right where it gave each type.

    Returns:
        The shares by type, drawn towards the share over all types; a fallback if the ceiling or the server
        ended the asking early: what was answered is kept, and a later call asks for the rest.

    Raises:
        WrongInput: The model is right less often than the local classifier, or types less than half.
        LlmDenied: The server rejects the key, or has no such model.
    """
    fragments, types = known_fragments()
    typing = classifier.type_all(fragments, [None] * len(fragments))
    for reason in EARLY:
        if typing.fallbacks[reason]:
            return Fallback(reason, f"{classifier.llm.model} could not be measured")
    rows = zip(typing.rows, types, classifier.local.classify(fragments), strict=True)
    given = [
        (row.typed.node_type, t, own.node_type) for row, t, own in rows if row.classifier == classifier.name
    ]
    right, local = (sum(answer[k] == answer[1] for answer in given) for k in (0, 2))
    if right < local or 2 * len(given) < len(types):
        raise WrongInput(_refusal(classifier.llm.model, len(types), given, right, local))
    share, said = right / len(given), Counter(said for said, _, _ in given)
    hits = Counter(said for said, true, _ in given if said == true)
    return {t: min((hits[t] + _DRAWN * share) / (said[t] + _DRAWN), SUREST) for t in NODE_TYPES}


def _refusal(model: str, count: int, given: list[tuple[str, str, str]], right: int, local: int) -> str:
    of_type = Counter(true for _, true, _ in given)
    wrong = Counter(true for said, true, _ in given if said != true).most_common(_TOLD)
    worst = ", ".join(f"{n} of {of_type[name]} {name}" for name, n in wrong) or "none"
    shares = (f"{n / max(len(given), 1):.2f}" for n in (right, local))
    return (
        "SKILLERY_LLM_MODEL {}: of {} fragments whose type is known it typed {}, {} of these right, "
        "the local classifier {} (mistaken: {}); SKILLERY_LLM_ACCURACY=SHARE believes it anyway, "
        "SKILLERY_CLASSIFIER=local or --classifier local types without it"
    ).format(model, count, len(given), *shares, worst)
