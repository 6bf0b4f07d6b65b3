"""OpenLineage's JSON Schemas, read off the classes that its client was generated into."""

from __future__ import annotations

import json
import pkgutil
import types
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import generated
from openlineage.client.generated import base

_PLAIN = {str: "string", int: "integer", bool: "boolean", float: "number"}
_URI = {"type": "string", "pattern": r"^[a-z][a-z0-9+.-]*:\S+$"}
_OF_ITS_OWN: dict[str, dict[str, Any]] = {
    "runId": {"type": "string", "format": "uuid"}, "eventTime": {"type": "string", "format": "date-time"},
    **dict.fromkeys(("producer", "_producer", "schemaURL", "_schemaURL"), _URI),
}  # fmt: skip
_ALWAYS = {*_OF_ITS_OWN, "eventType"}
_FACETS = (base.RunFacet, base.JobFacet, base.DatasetFacet, base.InputDatasetFacet, base.OutputDatasetFacet)
ENDS = {"COMPLETE", "ABORT", "FAIL"}


def _schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (whatever stands in an annotation)
    """Return the schema of a type; an attribute without a default is required, and none may be null."""
    if get_origin(kind) in (types.UnionType, list, dict):
        inner = next((one for one in reversed(get_args(kind)) if one is not type(None)), Any)
        if get_origin(kind) is list:
            return {"type": "array", "items": _schema(inner)}
        return _schema(inner) if get_origin(kind) is types.UnionType else _by_name(inner)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    return {"$ref": f"#/$defs/{kind.__module__}.{kind.__name__}"} if attr.has(kind) else {}


def _by_name(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (as above)
    """Return the schema of what is held by name; a facet is one of those that its `_schemaURL` names."""
    if kind not in _FACETS:
        return {"type": "object", "additionalProperties": _schema(kind)}
    known = {one._get_schema(): one for one in [kind, *_classes()] if issubclass(one, kind)}
    chosen = [
        {"if": {"properties": {"_schemaURL": {"const": url}}}, "then": _schema(one)}
        for url, one in known.items()
    ]
    named = {"required": ["_schemaURL"], "properties": {"_schemaURL": {"enum": list(known)}}}
    return {"type": "object", "additionalProperties": {**named, "allOf": chosen}}


def _classes() -> list[Any]:
    names = [one.name for one in pkgutil.iter_modules(generated.__path__)]
    modules = [import_module(f"{generated.__name__}.{name}") for name in names]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return [one for one in dict.fromkeys(found) if attr.has(one)]


def _object(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (as above)
    hints, fields = get_type_hints(kind), attr.fields(kind)
    required = [one.name for one in fields if one.default is attr.NOTHING or one.name in _ALWAYS]
    properties = {one.name: _OF_ITS_OWN.get(one.name) or _schema(hints[one.name]) for one in fields}
    return {"type": "object", "required": required, "properties": properties}


_EVENT = {**_schema(base.RunEvent), "properties": {"schemaURL": {"const": base.RunEvent._get_schema()}}}
_EVENT["$defs"] = {f"{one.__module__}.{one.__name__}": _object(one) for one in _classes()}
_CHECK = Draft202012Validator(_EVENT, format_checker=FormatChecker())


def events(file: Path) -> list[dict[str, Any]]:
    """Return the events of a file, each held to the schemas."""
    found = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for event in found:
        _CHECK.validate(event)
    return found
