"""The prompts of LLMs: what one asks, the form of its answer, and how an answer and its JSON are read."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from tasks.models.llm.errors import Rejected
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import data_block, quoted, shortened

T_co = TypeVar("T_co", covariant=True)
_MOST_NAMED = 4  # problems of an answer that the model is told
_LEAST_CUT = 100  # characters of a text, of which less would say nothing


class Answer(BaseModel):
    """The base of models of answers: a JSON object of which other properties are not read.

    The schema that is sent requires all properties and allows no others. A list in place of an object is
    taken for its one property.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: object) -> object:
        is_bare = isinstance(value, list) and len(cls.model_fields) == 1
        return dict.fromkeys(cls.model_fields, value) if is_bare else value


def _without_surrogates(value: object) -> object:
    # Halves of surrogate pairs can be written in JSON, and neither encoded nor printed.
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_without_surrogates)]


def known_of(info: ValidationInfo) -> Any:  # noqa: ANN401
    """Return what is known of the question to a validator, `Values.known`."""
    return info.context["known"] if info.context else None


def is_last(info: ValidationInfo) -> bool:
    """Tell a validator whether the question is not asked again, so that what is good of it is taken."""
    return not info.context or info.context["last"]


def _within(numbers: list[int], info: ValidationInfo) -> list[int]:
    most = known_of(info)
    if most is not None and (wrong := [n for n in numbers if not 1 <= n <= most]):
        raise Rejected(f"number {wrong[0]} is none of 1 to {most}")
    return numbers


Numbers = Annotated[list[int], AfterValidator(_within)]  # of 1 to what is known


@dataclass(frozen=True, slots=True)
class Values:
    """What one question says beside its prompt."""

    task: str  # what is asked
    records: Sequence[Mapping[str, object]]  # what it is asked about: quoted as data, one a line
    doc_ids: Sequence[str] = ()  # the documents whose text is in the records
    known: Any = None  # what an answer is checked against: validators find it by `known_of`
    schema: Mapping[str, Any] | None = None  # the form of the answer, where it depends on the records
    sampling: Sampling | None = None  # how the answer is drawn; None: as all are
    attempt: int | None = None  # which of several answers to the same question; None: that of the try
    rules: str | None = None  # instead of the prompt's own


def shorter(values: Values) -> Values | None:
    """Return a question of half as much text, the longest ones cut at one length; None: none is long."""
    sizes = [len(text) for record in values.records for text in _texts(record)]
    most = max(sizes, default=0)
    while most >= _LEAST_CUT and sum(min(size, most) for size in sizes) > sum(sizes) / 2:
        most = most * 3 // 4
    if most < _LEAST_CUT:
        return None

    def cut(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return shortened(value, most)
        if isinstance(value, Mapping):
            return {name: cut(each) for name, each in value.items()}
        return [cut(each) for each in value] if isinstance(value, list | tuple) else value

    return replace(values, records=[cut(record) for record in values.records])


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


class Prompt(Generic[T_co]):
    """The unchanging part of questions whose answers are read as `T_co`.

    Args:
        name: Has a version that is raised whenever a word of what is sent changes, in the rules or a task.
        rules: `PACKAGE/FILE` of the system message, in the package's folder `data/`.
        answer: `T_co` for pydantic: a model, or a type with validators. These may raise `Rejected`, and get
            what is known of the question by `known_of`.
        form: The model whose schema is sent; None: `answer`, if it is one, else none.
        text: Whether an answer is a text without its thoughts, and not the JSON in it.
        hotter: Added to the temperature at each new try, in place of naming what was wrong.
        whole: Whether a question that is too long has no answer, instead of being asked with shorter texts.
    """

    def __init__(
        self, name: str, rules: str, answer: type[T_co] | Any, *,  # noqa: ANN401 (pydantic takes more than classes)
        form: type[Answer] | None = None, text: bool = False, hotter: float = 0.0, whole: bool = False,
    ) -> None:  # fmt: skip
        self.name, self._rules_at, self._answer, self._form = name, rules, answer, form
        self._is_text, self._hotter, self.whole = text, hotter, whole

    @functools.cached_property
    def rules(self) -> str:
        """The system message."""
        package, _, name = self._rules_at.partition("/")
        return resources.files(package).joinpath("data", name).read_text(encoding="utf-8").strip()

    @functools.cached_property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer; None: of its form nothing is said but in words."""
        form: object = self._form or self._answer
        return schema_of(form) if isinstance(form, type) and issubclass(form, Answer) else None

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[T_co]:
        return TypeAdapter(self._answer)

    def question(
        self, values: Values, sampling: Sampling, number: int = 0, complaint: str | None = None
    ) -> Question:
        """Return the question of a try, from 0; `complaint` is what was wrong with the answer before."""
        parts = [data_block([quoted(record) for record in values.records]), values.task]
        if complaint is not None and not self._hotter:
            wrong = quoted({"error": complaint})
            parts.append(f"An earlier answer could not be used. What was wrong: {wrong}")
        if self._hotter:
            sampling = replace(sampling, temperature=sampling.temperature + number * self._hotter)
            number = 0
        return Question(
            self.name, (("system", values.rules or self.rules), ("user", "\n\n".join(parts))), sampling,
            values.schema or self.schema, number if values.attempt is None else values.attempt,
            tuple(values.doc_ids),
        )  # fmt: skip

    def read(self, text: str, known: Any = None, *, last: bool = True) -> T_co:  # noqa: ANN401
        """Return what an answer says; `last`: it is not asked for again, so what is good of it is taken.

        Raises:
            Rejected: It does not have the form that it must have; the message is fit to be sent.
        """
        value = without_thoughts(text) if self._is_text else find_json(text)
        try:
            return self._adapter.validate_python(value, context={"known": known, "last": last})
        except ValidationError as error:
            raise Rejected(_complaint(error)) from error


def schema_of(answer: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema as servers take it: without references, titles and optional properties."""
    whole = answer.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


def _plain(schema: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _plain(known[schema["$ref"].rpartition("/")[2]], known)
    found = {key: schema[key] for key in ("type", "enum") if key in schema}
    if "items" in schema:
        found["items"] = _plain(schema["items"], known)
    if "properties" in schema:
        found["properties"] = {name: _plain(each, known) for name, each in schema["properties"].items()}
        found |= {"required": list(found["properties"]), "additionalProperties": False}
    return found


def _complaint(error: ValidationError) -> str:
    said = []
    for problem in error.errors(include_url=False, include_input=False)[:_MOST_NAMED]:
        where = ".".join(str(part) for part in problem["loc"]) or "the answer"
        said.append(f"{where}: {problem['msg']}")
    return "; ".join(said)


_THOUGHT_OVER = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_START = re.compile(r"[{\[]")
_LONGEST = 200_000  # characters of an answer that are looked at; what is longer is no answer
_MOST_BRACKETS = 500  # where a value may begin: nonsense costs a bounded time


def find_json(text: str) -> Any:  # noqa: ANN401
    """Return the object or list in an answer: bare, fenced, or within prose; thoughts in tags are skipped.

    Raises:
        Rejected: There is none, or several that differ; or a key twice in one object, or NaN, is in it.
    """
    found: list[Any] = []
    said = without_thoughts(text)
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_number)
    position = 0
    for _ in range(_MOST_BRACKETS):
        if (start := _START.search(said, position)) is None:
            break
        try:
            value, position = decoder.raw_decode(said, start.start())
        except (ValueError, RecursionError):  # of a number of thousands of digits, a bare ValueError
            position = start.end()
            continue
        # Brackets around nothing, or around a word of prose, are no answer.
        if value and value not in found:
            found.append(value)
    if not found:
        raise Rejected("there is no complete JSON object in the answer")
    if len(found) > 1:
        raise Rejected(f"there are {len(found)} JSON values in the answer instead of one")
    return found[0]


def without_thoughts(text: str) -> str:
    """Return an answer, as far as answers are read, without the thoughts in tags that come before it."""
    return _THOUGHT_OVER.split(text[:_LONGEST])[-1]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Rejected(f"the key {twice[:40]!r} occurs more than once")
    return record


def _no_number(constant: str) -> float:
    raise Rejected(f"{constant} is no JSON number")
