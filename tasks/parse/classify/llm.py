"""The LLM classifier of fragments, in batches, alone or where the local classifier is unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values, known_of
from tasks.models.llm.quoting import addresses_the_reader, shortened, shown
from tasks.parse.classify.attribution import AttributedClassifier, Documents, Report, TypedBy, Typing
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Fragments, Typed

# Fragments a question: SkillPager, section 4.4.
BATCH = 20
# How often SkillPager's LLM agreed with people on a node's type: section 5.1.1.
ACCURACY = 0.79
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
            reason = f"the kind of id {str(name)[:40]!r} is no text"
            raise Rejected(reason)
        if str(name) in labels:
            reason = f"id {str(name)[:40]!r} occurs more than once"
            raise Rejected(reason)
        labels[str(name)] = label.strip().casefold().replace(" ", "_").replace("-", "_")
    return labels


def _listed(value: object) -> list[tuple[object, Any]]:
    pairs = []
    for entry in value if isinstance(value, list) else []:
        if not isinstance(entry, dict) or len(entry) != 2 or "id" not in entry:
            reason = "the answer is a list instead of an object with the ids as keys"
            raise Rejected(reason)
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
    locally under the name `<local name>:fallback`.

    Args:
        llm: Is asked.
        local: Types what the model does not.
        batch: Most fragments a question, at least 1.
        tries: Requests for one batch before it is halved, at least 1.
        accuracy: The model's accuracy, in (0, 1), which is the confidence of its labels; the default is that
            of SkillPager's model.

    Raises:
        WrongInput: A number is out of its range.
    """

    def __init__(
        self, llm: Llm, local: Classifier, *, batch: int = BATCH, tries: int = 2, accuracy: float = ACCURACY
    ) -> None:
        if min(batch, tries) < 1 or not 0 < accuracy < 1:
            msg = f"batch {batch}, tries {tries}, accuracy {accuracy}: at least 1, at least 1, in (0, 1)"
            raise WrongInput(msg)
        self.llm, self.local = llm, local
        self._batch, self._tries = batch, tries
        # What a model says of its own certainty is not calibrated.
        self._accuracy = accuracy

    @property
    def name(self) -> str:
        """The name stored with the model's labels: prompt version and model."""
        return llm_name(self.llm.model)

    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        labels: dict[int, str | Fallback] = {}

        def values(places: list[int]) -> Values:
            doc_ids = sorted({d for k in places if (d := documents[k]) is not None})
            return values_of([fragments[k] for k in places], doc_ids)

        async def work(places: list[int]) -> None:
            found = await self.llm.answer_parts(PROMPT, places, values, _halves, tries=self._tries)
            for part, said in found:
                rows = [said] * len(part) if isinstance(said, Fallback) else said
                labels.update(zip(part, rows, strict=True))
            if report is not None:
                report(len(labels), len(fragments))

        self.llm.gather(work(places) for places in batches(fragments, documents, self._batch))
        failed = {k: said for k, said in labels.items() if isinstance(said, Fallback)}
        late = {documents[k] for k, said in failed.items() if said.early}
        reasons = Counter(said.reason for said in failed.values())
        unfinished = frozenset(name for name in late if name is not None)
        return Typing(self._rows(fragments, labels), len(fragments), reasons, unfinished)

    def _rows(self, fragments: Fragments, labels: dict[int, str | Fallback]) -> list[TypedBy]:
        """Return the rows of the model's labels; fragments without a label are typed locally."""
        ordered = [labels[k] for k in range(len(fragments))]
        left = [f for f, label in zip(fragments, ordered, strict=True) if isinstance(label, Fallback)]
        typed = iter(self.local.classify(left))
        fallback = f"{self.local.name}:fallback"
        return [
            TypedBy(next(typed), fallback)
            if isinstance(label, Fallback)
            else TypedBy(Typed(label, self._accuracy), self.name)
            for label in ordered
        ]


def _halves(places: list[int], _fallback: Fallback) -> list[list[int]]:
    middle = (len(places) + 1) // 2
    return [places[:middle], places[middle:]] if len(places) > 1 else []


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
            msg = f"threshold {threshold}: a confidence lies in 0 to 1"
            raise WrongInput(msg)
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
