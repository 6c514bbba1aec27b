"""Kafka's sentences of error codes, in the answers of the APIs of share groups."""

from collections.abc import Mapping
from typing import Any, Final

from kohort.group.errors import append_error
from kohort.model.errors import CoordinatorError, ErrorCode

SENTENCES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
}


def refusal_of(error: Exception) -> CoordinatorError:
    """The error of an operation, as the answer has it."""
    code = append_error(error)
    message = error.message if isinstance(error, CoordinatorError) and error.code is code else None
    return CoordinatorError(code, message)


def error_fields(error: CoordinatorError | ErrorCode | None) -> dict[str, Any]:
    """The fields of an answer that tell an error, with its own sentence or Kafka's."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    code = error if isinstance(error, ErrorCode) else error.code
    message = None if isinstance(error, ErrorCode) else error.message
    return {"error_code": int(code), "error_message": message or SENTENCES.get(code)}
