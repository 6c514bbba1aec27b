"""
The operations of the control API: one function each, with the types of what it takes and gives.

Routes and the OpenAPI document are made from the same rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kohort.control.requests.filters import nearest
from kohort.control.web.http import Request, Response
from kohort.control.web.problems import Problem, invalid


class Parameter(NamedTuple):
    """A parameter of a query."""

    name: str
    kind: type
    about: str


class Operation(NamedTuple):
    """
    Attributes:
        path: parts in braces are parameters.
        run: (parameters of path and query, body) to the answer.
        body: the type of the body; None without one.
        answer: the type of the answer; None without one.
        problems: statuses that the operation itself answers.
    """

    method: str
    path: str
    about: str
    run: Callable[..., Awaitable[Any]]
    body: Any = None
    answer: Any = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()
    is_body_optional: bool = False


WAIT: Final = Parameter("wait", str, "What to wait for.")
TIMEOUT: Final = Parameter("timeout", float, "Seconds of the wait, at most 600; 10 by default.")
TIMEOUT_SECONDS_MAX: Final = 600.0
TIMEOUT_SECONDS: Final = 10.0


class Router:
    """Finds the operation of a request, and reads and writes its values."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations

    async def handle(self, request: Request) -> Response:
        """
        Raises:
            Problem: there is no such operation, or it refuses.
        """
        operation, parameters = self._find(request)
        arguments = dict(parameters)
        arguments.update(_query(operation, request.query))
        if operation.body is not None:
            arguments["body"] = _body(operation, request.body)
        answer = await operation.run(**arguments)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(204)
        return Response(operation.status, msgspec.json.encode(answer))

    def _find(self, request: Request) -> tuple[Operation, Mapping[str, str]]:
        allowed = []
        method = "GET" if request.method == "HEAD" else request.method
        for operation in self.operations:
            found = _match(operation.path, request.path)
            if found is not None:
                if operation.method == method:
                    return operation, found
                allowed.append(operation.method)
        path = "/" + "/".join(request.path)
        if allowed:
            raise Problem(405, "wrong-method", f"{path} takes {', '.join(sorted(set(allowed)))}, not {request.method}")
        known = sorted({each.path for each in self.operations})
        raise Problem(404, "not-found", f"there is no {path}{nearest(path, known)}; GET /openapi.json lists everything")


def _match(pattern: str, path: tuple[str, ...]) -> dict[str, str] | None:
    parts = [part for part in pattern.split("/") if part]
    if len(parts) != len(path):
        return None
    found: dict[str, str] = {}
    for part, given in zip(parts, path, strict=True):
        if part.startswith("{"):
            found[part[1:-1]] = given
        elif part != given:
            return None
    return found


def _query(operation: Operation, query: Mapping[str, str]) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in operation.query}
    found: dict[str, Any] = {}
    for name, text in query.items():
        parameter = known.get(name)
        if parameter is None:
            raise invalid(f"{operation.path} has no parameter {name!r}{nearest(name, list(known))}")
        try:
            found[name] = msgspec.convert(text, parameter.kind, strict=False)
        except msgspec.ValidationError:
            raise invalid(f"{name} must be of the type {parameter.kind.__name__}; it is {text!r}") from None
    return found


def _body(operation: Operation, body: bytes) -> Any:
    if not body and operation.is_body_optional:
        return operation.body()
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise invalid(sentence_of(error, operation.body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "not-json", f"the body is not JSON: {error}") from None


def sentence_of(error: msgspec.ValidationError, kind: Any) -> str:
    """The errors of values of a type, with the nearest known name of an unknown field."""
    text = str(error)
    if "unknown field" in text:
        name = text.split("`")[1]
        text = f"there is no field {name!r}{nearest(name, _fields(kind))}"
    return text[:1].lower() + text[1:]


def _fields(kind: Any) -> list[str]:
    return list(getattr(kind, "__struct_fields__", ()))


def seconds_of(timeout: float | None) -> float:
    """The seconds of a wait."""
    if timeout is None:
        return TIMEOUT_SECONDS
    if not 0 <= timeout <= TIMEOUT_SECONDS_MAX:
        raise invalid(f"timeout must be from 0 to {TIMEOUT_SECONDS_MAX:.0f} seconds; it is {timeout}")
    return timeout
