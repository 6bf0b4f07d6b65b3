"""A tool: a name, a description, two models and a function, of which MCP and OpenAPI are made."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.serve.answers.service import DEFAULT, Service
from storage.errors import WrongInput

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
