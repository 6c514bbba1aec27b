"""The OpenAPI 3.1 document of the control API, made from its operations and their types."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from kohort.control.web.api import Operation
from kohort.control.web.http import JSON
from kohort.control.web.problems import PROBLEM_JSON

VERSION: Final = "1"
"""Of the API: the number rises with a change that breaks clients."""
_TYPES: Final = {str: "string", int: "integer", float: "number"}


class ProblemView(msgspec.Struct, frozen=True):
    """
    An error (RFC 9457). Some kinds have further fields, such as the `state` at the end of a wait.

    Attributes:
        type: `urn:kohort:problem:` and a word for programs.
        detail: a sentence for people.
    """

    type: str
    title: str
    status: int
    detail: str


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document."""
    types = {each for operation in operations for each in (operation.body, operation.answer) if each is not None}
    ordered = sorted({*types, ProblemView}, key=lambda each: str(each.__name__))
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    references = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kohort's control API",
            "version": VERSION,
            "description": "Faults, holds, waits and events for tests of programs that use Kafka. Times are in seconds. "
            "docs/testing.md is the tutorial.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, references: dict[Any, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {
            "name": each.name,
            "in": "query",
            "required": False,
            "description": each.about,
            "schema": {"type": _TYPES[each.kind]},
        }
        for each in operation.query
    ]
    described: dict[str, Any] = {"summary": operation.about, "operationId": operation_id(operation)}
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.is_body_optional,
            "content": {JSON: {"schema": references[operation.body]}},
        }
    responses: dict[str, Any] = {}
    if operation.answer is not None:
        responses[str(operation.status)] = _response(operation.status, JSON, references[operation.answer])
    if operation.answer is None or operation.method == "DELETE":
        responses["204"] = {"description": "Done."}
    wrong = {400, 422} if operation.body is not None else {422} if operation.query else set()
    for status in sorted({*operation.problems, *wrong}):
        responses[str(status)] = _response(status, PROBLEM_JSON, references[ProblemView])
    described["responses"] = responses
    return described


def _response(status: int, content_type: str, schema: Any) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {content_type: {"schema": schema}}}


def operation_id(operation: Operation) -> str:
    """A name for generated clients, such as `post_holds_hold_id_release`."""
    parts = [part.strip("{}").replace(".", "_") for part in operation.path.split("/") if part]
    return "_".join([operation.method.lower(), *parts])


def text(operations: Sequence[Operation]) -> bytes:
    """The document as it is served, and kept in docs/control-api.json."""
    return msgspec.json.format(msgspec.json.encode(document(operations)), indent=2) + b"\n"
