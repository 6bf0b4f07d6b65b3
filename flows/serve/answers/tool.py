"""A tool: name, function, and the forms of what it takes and returns, each text beside whose it is."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from flows.commands.queries import search_filters
from flows.serve.answers.service import DEFAULT, NOTICE, Service
from storage.errors import WrongInput
from tasks.retrieve.routing.search import Filters

_NOISE = {
    "title", "default", "$defs", "additionalProperties", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum",
}  # fmt: skip


class Arguments(BaseModel):
    """The arguments of a tool; any other name is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolOutcome(BaseModel):
    """What a tool returns: structured, and as short text for hosts that show text alone."""

    @abstractmethod
    def as_text(self) -> str:
        """Return it as text."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without what is null."""
        return self.model_dump(mode="json", exclude_none=True)


A = TypeVar("A", bound=Arguments)
O = TypeVar("O", bound=ToolOutcome)  # noqa: E741 (of the tool's outcome)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A, O]):
    """One tool; `slow` ones have threads of their own, so that quick ones need not wait."""

    name: str
    description: str
    arguments: type[A]
    outcome: type[O]
    call: Callable[[Service, A], O]
    slow: bool = False

    def parse(self, given: dict[str, Any] | None) -> A:
        """Return the arguments; raises `WrongInput` that names the first one that cannot be used.

        What is null was left out: clients send it for whatever their model did not say.
        """
        where, why = "arguments", "a text holds half a character"  # of a surrogate pair
        try:
            json.dumps(given, ensure_ascii=False).encode()
            return self.arguments.model_validate(_given(given or {}))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or where
            why = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        except UnicodeEncodeError:
            pass
        raise WrongInput(f"{where}: {why}; {self.name} takes {', '.join(self.arguments.model_fields)}")

    async def answer(self, service: Service, given: dict[str, Any] | None, via: str) -> O:
        """Return what the tool finds, asked by way of `via`; raises as its function does, and as `parse`."""
        arguments = self.parse(given)
        # Another method than the default takes seconds, for which no search waits.
        slow = self.slow or getattr(arguments, "method", DEFAULT) != DEFAULT
        query = getattr(arguments, "task", None) or getattr(arguments, "request", None)
        action = self.name.partition("_")[0]

        def called() -> O:
            return service.noted(via, action, query, lambda: self.call(service, arguments))

        return await service.run(called, slow=slow)

    def schemas(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the JSON schemas of arguments and outcome, without what no model needs to know."""
        arguments, outcome = (_lean(m.model_json_schema()) for m in (self.arguments, self.outcome))
        # What is left out is null: hosts read a field or do without.
        fields = {name: _brief(field) for name, field in outcome["properties"].items()}
        return arguments, {"type": "object", "properties": fields}


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that are null, also within an argument."""
    said = {name: value for name, value in arguments.items() if value is not None}
    return {name: _given(value) if isinstance(value, dict) else value for name, value in said.items()}


def _lean(schema: object, defined: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 (JSON)
    """Return the part of a schema that a model needs, since hosts cut off definitions that are long.

    Bounds go: who breaks one is told it. A field that may be null may be left out. What is defined apart
    stands in its place.
    """
    if isinstance(schema, list):
        return [_lean(item, defined) for item in schema]
    if not isinstance(schema, dict):
        return schema
    defined = schema.get("$defs", defined or {})
    if "$ref" in schema:
        return _lean({k: v for k, v in defined[_ref(schema)].items() if k != "required"}, defined)
    noise = _NOISE | ({"description"} if "title" in schema and "properties" in schema else set())
    kept = {key: value for key, value in schema.items() if key not in noise}
    given = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(given) == 1:
        del kept["anyOf"]
        return _lean({**given[0], **kept}, defined)
    fields = {name: _lean(one, defined) for name, one in kept.pop("properties", {}).items()}
    return {
        **{key: _lean(value, defined) for key, value in kept.items()},
        **({"properties": fields} if fields else {}),
    }


def _brief(field: dict[str, Any]) -> dict[str, Any]:
    """Return a field of an outcome; what is in a list is told by the names of its fields, if it has some."""
    if names := field.get("items", {}).get("properties"):
        return {"type": "array", "items": {"type": "object", "description": ", ".join(names)}}
    return {key: value for key, value in field.items() if key != "items"}


def _ref(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).removeprefix("#/$defs/")


LONGEST_TEXT, LONGEST_ID, LONGEST_PATH = 20_000, 1_000, 4_096  # characters of a request, an id, a path
_COMMIT = 12  # hexadecimal digits


class Whose(BaseModel):
    """Whose a text is."""

    source: str
    url: str | None = None
    licence: str | None = None
    commit: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Whose:
        """Return whose the text of a row is."""
        commit = row["commit"]
        return cls(
            source=row["source"], url=row["url"], licence=row["licence"], commit=commit and commit[:_COMMIT]
        )

    def line(self) -> str:
        """Return it in one line."""
        at = f", commit {self.commit}" if self.commit else ""
        return f"From {self.url or self.source}, licence {self.licence or 'unknown'}{at}. {NOTICE}"


# What all results have, `version`, `whose` and `notice`, would take a fifth of what all definitions may take.
Origin = SkipJsonSchema[Whose]

Said = SkipJsonSchema[str]


class FilterForm(Arguments):
    """What a search is limited to."""

    kind: list[str] = Field([])
    licence: list[str] = Field([])
    source: list[str] = Field([])
    risk: list[str] = Field([])

    def chosen(self) -> Filters:
        """Return the filters; raises as `search_filters`."""
        return search_filters(self.kind, self.licence, self.source, self.risk)


ShortFilters = Annotated[
    FilterForm, WithJsonSchema({"type": "object", "description": "lists: kind, licence, source, risk"})
]


class SearchArguments(Arguments):
    """The arguments of `search_skills`."""

    task: str = Field(min_length=1, max_length=LONGEST_TEXT)
    k: int = Field(5, ge=1, le=50)
    filters: ShortFilters = FilterForm()
    method: SkipJsonSchema[str] = Field("default", max_length=LONGEST_ID)


def _said(risks: list[str]) -> str:
    return f" [risks: {', '.join(risks)}]" if risks else ""


class FoundSkill(BaseModel):
    """One skill that fits."""

    doc_id: str
    name: str
    description: str
    score: float | None
    fit: float | None = None
    risks: list[str]
    whose: Origin


class SearchOutcome(ToolOutcome):
    """The skills that fit a task, best first."""

    version: Said
    results: list[FoundSkill]
    nothing_fits: bool | None = None
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return a line a skill."""
        lines = [f"{r.doc_id} ({r.name}){_said(r.risks)}: {r.description}" for r in self.results]
        if self.nothing_fits and lines:
            lines = ["Nothing served seems to fit; what comes nearest:", *lines]
        return "\n".join([*lines, self.notice] if lines else ["Nothing served fits."])


class PageArguments(Arguments):
    """The arguments of `page_skill`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)
    request: str = Field(min_length=1, max_length=LONGEST_TEXT)
    budget: float | None = Field(None, gt=0, description="tokens; up to 1: a share")


class PageOutcome(ToolOutcome):
    """The parts of a skill that a request needs."""

    doc_id: str
    version: Said
    context: str
    tokens: int
    document_tokens: int
    over_budget: bool
    risks: list[str]
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return whose they are, their skill's risks, and the parts."""
        return f"{self.whose.line()}{_said(self.risks)}\n\n{self.context}"


class ShowArguments(Arguments):
    """The arguments of `show_skill`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)


class FileForm(BaseModel):
    """A file of a skill; without `size` its bytes are not kept."""

    path: str
    size: int | None = None


class ShowOutcome(ToolOutcome):
    """What is known of a skill."""

    doc_id: str
    version: Said
    name: str
    description: str | None = None
    uri: str | None = None
    files: list[FileForm] | None = None
    risks: list[str]
    licence_class: str
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return name, description and files."""
        files = ", ".join(f.path for f in self.files) if self.files is not None else "unknown"
        risks = ", ".join(self.risks) or "none found"
        return f"{self.name}: {self.description or ''}\nfiles: {files}\nrisks: {risks}\n{self.whose.line()}"


class ReadArguments(Arguments):
    """The arguments of `read_skill_file`."""

    doc_id: str = Field(min_length=1, max_length=LONGEST_ID)
    path: str = Field("SKILL.md", min_length=1, max_length=LONGEST_PATH)
    offset: int = Field(0, ge=0, description="characters")
    limit: int = Field(20_000, ge=1, le=200_000)


class ReadOutcome(ToolOutcome):
    """A file of a skill, or a part of it; a binary file has `base64`."""

    doc_id: str
    version: Said
    path: str
    size: int
    sha256: str
    text: str | None = None
    base64: str | None = None
    next_offset: int | None = None
    whose: Origin
    notice: Said = NOTICE

    def as_text(self) -> str:
        """Return whose it is, and the text."""
        binary = f"{self.path} has {self.size:,} bytes and is no text: resources/read gives them"
        body = binary if self.text is None else self.text
        more = f"\n\n[more from offset {self.next_offset}]" if self.next_offset else ""
        return f"{self.whose.line()}\n\n{body}{more}"
