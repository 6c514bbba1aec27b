"""The client of the control port: JSON over HTTP, one connection a request, so that threads and restarts need no care."""

import http.client
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from kohort.model.errors import KohortError

TIMEOUT_S = 60.0
"""The time that an operation without a wait may take."""
WAIT_S = 10.0
"""The longest time of a wait, unless the caller says so."""


class ControlError(KohortError):
    """
    The control port refused a request, or does not answer.

    Attributes:
        status: of HTTP; 0 if there was no answer.
        kind: a word for programs, such as `not-found`.
        state: what there was when a wait ended without what it waited for.
    """

    def __init__(self, detail: str, status: int = 0, kind: str = "no-answer", state: Any = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.state = state


class WaitTimeoutError(ControlError):
    """The awaited state was not reached in time."""


class ControlClient:
    """
    Args:
        address: HOST:PORT of the control port, or its URL.
        token: where the port needs one.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        host: str | None = None
        port: int | None = None
        with suppress(ValueError):
            parts = urlsplit(address if "://" in address else f"http://{address}")
            host, port = parts.hostname, parts.port
        if not host or not port:
            raise ControlError(f"the address of a control port is HOST:PORT; it is {address!r}")
        self._host, self._port = host, port
        self.address = address
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __repr__(self) -> str:
        return f"ControlClient({self.address!r})"

    def get(self, *path: str, **query: object) -> Any:
        return self.send("GET", path, query=query)

    def post(self, *path: str, body: Mapping[str, Any] | None = None, **query: object) -> Any:
        return self.send("POST", path, body=body or {}, query=query)

    def delete(self, *path: str) -> Any:
        return self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        body: Any = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """
        Send a request and return the value of the answer; None if it has none.

        Args:
            path: its parts, which are quoted.
            body: is sent as JSON.
            query: parameters; those that are None are left out. The time of `timeout` is added to that of the request.

        Raises:
            WaitTimeoutError: what was waited for did not happen in time.
            ControlError: the request was refused, or nothing answers.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = "/" + "/".join(quote(part, safe="") for part in path)
        if given:
            target += "?" + urlencode({name: _text(value) for name, value in given.items()})
        waits_s = given.get("timeout", 0)
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=TIMEOUT_S + (waits_s if isinstance(waits_s, int | float) else 0)
        )
        try:
            content = None if body is None else msgspec.json.encode(body)
            connection.request(method, target, content, self._headers)
            answer = connection.getresponse()
            answered = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(
                f"no control port answers at {self.address}: {str(error) or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        return _value(answer.status, answered)


def _value(status: int, content: bytes) -> Any:
    try:
        value = msgspec.json.decode(content) if content else None
    except msgspec.DecodeError:
        raise ControlError(f"the answer is no JSON: {content[:100]!r}", status, "not-json") from None
    if status < 400:
        return value
    problem = value if isinstance(value, dict) else {}
    kind = str(problem.get("type", "")).rpartition(":")[2]
    error = WaitTimeoutError if kind == "timeout" else ControlError
    raise error(str(problem.get("detail", f"status {status}")), status, kind, problem.get("state"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
