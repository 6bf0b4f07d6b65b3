"""The LLM classifier of fragments, in batches, alone or where the local one is unsure; and who typed what."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ValidationInfo

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import EARLY, Fallback, Llm, halves_of
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values, known_of
from tasks.models.llm.quoting import addresses_the_reader, shortened, shown
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Fragments, Typed

# Begins the keys of `Typing.counts` that count fallbacks by reason.
FALLBACKS = "fallbacks: "
_AT_ONCE = 512  # fragments between two reports
Documents = Sequence[str | None]
Report = Callable[[int, int], None]
_ORDINAL = re.compile(r"#\d+$")


class TypedBy(NamedTuple):
    """A fragment's type and the name of the classifier that gave it."""

    typed: Typed
    classifier: str


@dataclass(frozen=True, slots=True)
class Typing:
    """How fragments were typed."""

    rows: list[TypedBy]  # one a fragment, in order
    asked: int = 0  # number of fragments sent to a language model
    # Number of these that it did not type, by reason: `rejected` (no answer for the fragment alone passed the
    # checks), `refused` (too long, or refused by the server), `budget`, `unavailable`.
    fallbacks: Counter[str] = field(default_factory=Counter)
    # Documents with fragments left for `budget` or `unavailable`; a later run asks again.
    unfinished: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        """Whether the ceiling, or a server that did not answer, ended the asking early."""
        return any(self.fallbacks[reason] for reason in EARLY)

    def counts(self) -> Counter[str]:
        """Return `asked`, `unfinished` (documents) and `fallbacks: <reason>`, without those that are 0."""
        by_reason = {FALLBACKS + reason: n for reason, n in self.fallbacks.items()}
        return +Counter({"asked": self.asked, "unfinished": len(self.unfinished), **by_reason})


class AttributedClassifier(ABC):
    """A classifier that combines several; each row names the one that typed it."""

    def type_all(
        self, fragments: Fragments, documents: Documents | None = None, report: Report | None = None
    ) -> Typing:
        """Type the fragments of documents, those of each together and in order, many batches at once.

        `documents` names that of each; None: what stands before `#` and a number in its id, if any. `report`
        is called with the number of fragments done and in all.

        Raises:
            LlmDenied: The server rejects the key, or has no such model.
        """
        owners = [document_of(fragment) for fragment in fragments] if documents is None else documents
        return self._type(fragments, owners, report)

    @abstractmethod
    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing: ...

    def classify(self, fragments: Fragments) -> list[Typed]:
        """Return one answer a fragment, in order, without the names that `type_all` adds."""
        return [row.typed for row in self.type_all(fragments).rows]


def typed_by(
    classifier: Classifier, fragments: Fragments, documents: Documents | None = None,
    report: Report | None = None,
) -> Typing:  # fmt: skip
    """Type fragments by any classifier; arguments as `AttributedClassifier.type_all`."""
    if isinstance(classifier, AttributedClassifier):
        return classifier.type_all(fragments, documents, report)
    rows: list[TypedBy] = []
    step = len(fragments) if report is None else _AT_ONCE
    for start in range(0, len(fragments), max(step, 1)):
        typed = classifier.classify(fragments[start : start + step])
        rows += [TypedBy(answer, classifier.name) for answer in typed]
        if report is not None:
            report(len(rows), len(fragments))
    return Typing(rows)


def document_of(fragment: FragmentInContext) -> str | None:
    """Return the document in a node's id; None for an id of another kind."""
    name = _ORDINAL.sub("", fragment.fragment_id)
    return None if name == fragment.fragment_id else name


def document_in(line: Mapping[str, Any], fragment: FragmentInContext) -> str | None:
    """Return the document of a fragment read from a line: the line's `doc_id`, else the one in its id."""
    given = line.get("doc_id")
    return given if isinstance(given, str) else document_of(fragment)


# Fragments a question: SkillPager, section 4.4.
BATCH = 20
_TRIES = 2  # requests for one batch before it is halved
# How often SkillPager's LLM agreed with people on a node's type: section 5.1.1.
ACCURACY = 0.79
# The confidence of a model's labels, of each type if it was measured, or why it could not be measured.
Belief = float | Mapping[str, float] | Fallback
_TEXT, _NEIGHBOUR, _TITLE, _TITLES = 1_600, 240, 100, 6  # characters; titles of the heading path


def _labels(value: object, info: ValidationInfo) -> list[str]:
    """Return the types of as many fragments as are known, in order, from an answer in whatever form."""
    labels, wanted = _by_id(value), [str(k) for k in range(1, known_of(info) + 1)]
    _require_ids(labels, wanted)
    for name in wanted:
        if labels[name] not in NODE_TYPES:
            reason = f"the kind of id {name} is {labels[name][:40]!r}, not one of {', '.join(NODE_TYPES)}"
            raise Rejected(reason)
    return [labels[name] for name in wanted]


PROMPT: Prompt[list[str]] = Prompt(
    "classify-1", "tasks.parse/classify_prompt.txt", Annotated[list[str], BeforeValidator(_labels)]
)


def values_of(fragments: Sequence[FragmentInContext], doc_ids: Sequence[str] = ()) -> Values:
    """Return what is asked about a batch of fragments in document order, ids `1` to their number.

    Neither the fragments' own ids nor their document's are sent, so that equal batches share an answer.
    """
    n = len(fragments)
    names = [str(k) for k in range(1, n + 1)]
    ids = 'the id "1"' if n == 1 else f'the {n} ids "1" to "{n}"'
    kind = {"type": "string", "enum": list(NODE_TYPES)}
    schema = {
        "type": "object", "properties": dict.fromkeys(names, kind),
        "required": names, "additionalProperties": False,
    }  # fmt: skip
    task = f"Give the kind of {ids}: one of {', '.join(NODE_TYPES)} each."
    return Values(task, _records(fragments), doc_ids, known=n, schema=schema, attempt=0)


def _records(fragments: Sequence[FragmentInContext]) -> list[dict[str, object]]:
    texts = [None, *(f.text for f in fragments), None]
    records: list[dict[str, object]] = []
    for position, fragment in enumerate(fragments, start=1):
        record: dict[str, object] = {"id": str(position)}
        if fragment.heading_path:
            record["headings"] = [shown(t, _TITLE, "start") for t in fragment.heading_path[-_TITLES:]]
        record["block"] = fragment.block
        # A neighbour that is itself in the batch is not sent twice.
        if fragment.previous and fragment.previous != texts[position - 1]:
            record["before"] = shown(fragment.previous, _NEIGHBOUR, "end")
        record["text"] = shortened(fragment.text, _TEXT)
        if fragment.next and fragment.next != texts[position + 1]:
            record["after"] = shown(fragment.next, _NEIGHBOUR, "start")
        records.append(record)
    return records


def _by_id(value: object) -> dict[str, str]:
    """Return `{id: label}` of an object, bare or as the one value of another, or of a list of id and kind."""
    if (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(inner := next(iter(value.values())), dict | list)
    ):
        value = inner
    pairs = list(value.items()) if isinstance(value, dict) else _listed(value)
    labels: dict[str, str] = {}
    for name, label in pairs:
        if not isinstance(label, str):
            raise Rejected(f"the kind of id {str(name)[:40]!r} is no text")
        if str(name) in labels:
            raise Rejected(f"id {str(name)[:40]!r} occurs more than once")
        labels[str(name)] = label.strip().casefold().replace(" ", "_").replace("-", "_")
    return labels


def _listed(value: object) -> list[tuple[object, Any]]:
    pairs = []
    for entry in value if isinstance(value, list) else []:
        if not isinstance(entry, dict) or len(entry) != 2 or "id" not in entry:
            raise Rejected("the answer is a list instead of an object with the ids as keys")
        (label,) = (said for key, said in entry.items() if key != "id")
        pairs.append((entry["id"], label))
    return pairs


def _require_ids(labels: dict[str, str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in labels]
    unknown = [name for name in labels if name not in wanted]
    if missing or unknown:
        said = [f"{len(labels)} ids instead of {len(wanted)}"]
        said += [f"missing are {', '.join(missing[:20])}"] if missing else []
        said += [f"not asked for are {', '.join(name[:20] for name in unknown[:5])}"] if unknown else []
        raise Rejected("; ".join(said))


class LlmClassifier(AttributedClassifier):
    """Asks a language model for the types of SkillPager, section 3.1, by batches of one document's fragments.

    If an answer fails its checks, the model is asked again with the error named; then the batch is halved,
    down to one fragment. What still fails, and what the budget or the server leaves unanswered, is typed
    locally under the name `<local name>:fallback`. `accuracy`, in (0, 1), is the confidence of the model's
    labels; a fallback stands for every answer: nothing is asked.

    Raises:
        WrongInput: A number is out of its range.
    """

    def __init__(
        self, llm: Llm, local: Classifier, *, batch: int = BATCH, accuracy: Belief = ACCURACY
    ) -> None:
        if batch < 1 or (isinstance(accuracy, float) and not 0 < accuracy < 1):
            raise WrongInput(f"batch {batch}, accuracy {accuracy}: at least 1, in (0, 1)")
        self.llm, self.local = llm, local
        self._batch = batch
        # What a model says of its own certainty is not calibrated.
        known = {} if isinstance(accuracy, Fallback) else accuracy
        self._confidence = dict.fromkeys(NODE_TYPES, known) if isinstance(known, float) else known
        self._unmeasured = accuracy if isinstance(accuracy, Fallback) else None

    @property
    def name(self) -> str:
        """The name stored with the model's labels: prompt version and model."""
        return llm_name(self.llm.model)

    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        labels: dict[int, str | Fallback] = {}

        def values(places: Sequence[int]) -> Values:
            doc_ids = sorted({d for k in places if (d := documents[k]) is not None})
            return values_of([fragments[k] for k in places], doc_ids)

        async def work(places: Sequence[int]) -> None:
            found = await self.llm.answer_parts(
                PROMPT, places, values, lambda part, _: halves_of(part), tries=_TRIES
            )
            for part, said in found:
                rows = [said] * len(part) if isinstance(said, Fallback) else said
                labels.update(zip(part, rows, strict=True))
            if report is not None:
                report(len(labels), len(fragments))

        if self._unmeasured:
            labels.update(dict.fromkeys(range(len(fragments)), self._unmeasured))
        else:
            self.llm.gather(work(places) for places in batches(fragments, documents, self._batch))
        failed = {k: said for k, said in labels.items() if isinstance(said, Fallback)}
        late = {documents[k] for k, said in failed.items() if said.early}
        reasons = Counter(said.reason for said in failed.values())
        unfinished = frozenset(name for name in late if name is not None)
        return Typing(self._rows(fragments, labels), len(fragments), reasons, unfinished)

    def _rows(self, fragments: Fragments, labels: dict[int, str | Fallback]) -> list[TypedBy]:
        ordered = [labels[k] for k in range(len(fragments))]
        left = [f for f, label in zip(fragments, ordered, strict=True) if isinstance(label, Fallback)]
        typed = iter(self.local.classify(left))
        fallback = f"{self.local.name}:fallback"
        return [
            TypedBy(next(typed), fallback)
            if isinstance(label, Fallback)
            else TypedBy(Typed(label, self._confidence[label]), self.name)
            for label in ordered
        ]


def llm_name(model: str) -> str:
    """Return the name of a model's classifier: prompt version and model."""
    return f"{PROMPT.name}@{model}"


def batches(fragments: Fragments, documents: Documents, most: int) -> list[list[int]]:
    """Return the places of fragments in batches: of one document each, at most `most`, in order."""
    found: list[list[int]] = []
    open_batch: dict[str | None, list[int]] = {}
    for place, (fragment, document) in enumerate(zip(fragments, documents, strict=True)):
        # A fragment that gives the model orders must stand in no question about another.
        if addresses_the_reader(fragment.text):
            found.append([place])
            continue
        current = open_batch.get(document)
        if current is None or len(current) == most:
            current = open_batch[document] = []
            found.append(current)
        current.append(place)
    return found


class HybridClassifier(AttributedClassifier):
    """Asks a language model about the fragments whose local confidence is below a threshold.

    The threshold is in [0, 1] (else `WrongInput`): 0 asks about none, 1 about all.
    """

    def __init__(self, local: Classifier, llm: LlmClassifier, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            raise WrongInput(f"threshold {threshold}: a confidence lies in 0 to 1")
        self.local, self.llm, self.threshold = local, llm, threshold

    @property
    def name(self) -> str:
        """The name of the pair."""
        return hybrid_name(self.local.name, self.threshold, self.llm.name)

    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        rows = [TypedBy(typed, self.local.name) for typed in self.local.classify(fragments)]
        unsure = [k for k, row in enumerate(rows) if row.typed.confidence < self.threshold]
        # Without fragments to ask about, the answers kept are not opened.
        if not unsure:
            return Typing(rows)
        sent = self.llm.type_all([fragments[k] for k in unsure], [documents[k] for k in unsure], report)
        for place, row in zip(unsure, sent.rows, strict=True):
            rows[place] = row
        return Typing(rows, len(unsure), sent.fallbacks, sent.unfinished)


def merged(local: Sequence[TypedBy], llm: Sequence[TypedBy], threshold: float) -> list[TypedBy]:
    """Return a hybrid's rows, given those of both classifiers for all fragments."""
    pairs = zip(local, llm, strict=True)
    return [asked if own.typed.confidence < threshold else own for own, asked in pairs]


def hybrid_name(local: str, threshold: float, llm: str) -> str:
    """Return the name of the pair of a local classifier and a language model's."""
    return f"{local}<{threshold:g}:{llm}"


@dataclass(frozen=True, slots=True)
class HybridPoint:
    """A hybrid's threshold, the share of fragments sent to the model, and the accuracy over all."""

    threshold: float
    sent: float
    accuracy: float


def hybrid_curve(
    gold: Sequence[str], local: Sequence[Typed], llm: Sequence[str], thresholds: Sequence[float]
) -> list[HybridPoint]:
    """Return the point of each threshold in [0, 1], from the true types and both classifiers' answers."""
    points = []
    for threshold in thresholds:
        sent = [typed.confidence < threshold for typed in local]
        given = [m if s else typed.node_type for s, m, typed in zip(sent, llm, local, strict=True)]
        right = sum(g == t for g, t in zip(given, gold, strict=True))
        points.append(HybridPoint(threshold, sum(sent) / len(gold), right / len(gold)))
    return points
