"""Errors of the control API: one form, `application/problem+json`. Source: RFC 9457."""

from __future__ import annotations

from typing import Any, Final

import msgspec

PROBLEM_JSON: Final = "application/problem+json"


class Problem(Exception):  # noqa: N818 -- the word of RFC 9457
    """
    An error that is told to the client.

    Args:
        kind: a word for programs.
        detail: a sentence for people.
        more: further fields.
    """

    def __init__(self, status: int, kind: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.more = more

    def body(self) -> bytes:
        return msgspec.json.encode(
            {
                "type": f"urn:kohort:problem:{self.kind}",
                "title": self.kind.replace("-", " "),
                "status": self.status,
                "detail": self.detail,
                **self.more,
            }
        )


def invalid(detail: str) -> Problem:
    """A request with values that are wrong or do not go together."""
    return Problem(422, "invalid", detail)


def not_found(what: str, name: str, hint: str = "") -> Problem:
    return Problem(404, "not-found", f"there is no {what} {name!r}{hint}")


def timed_out(detail: str, state: Any) -> Problem:
    """A wait has ended without what it waited for; `state` is what there is."""
    return Problem(409, "timeout", detail, state=state)


def too_many(what: str, limit: int) -> Problem:
    return Problem(429, "too-many", f"there are {limit} {what} already; remove some, or end their scope")
