"""
The errors of the share coordinator's answers, with Kafka's messages.

Source: Kafka CoordinatorOperationExceptionHelper, ShareCoordinatorService.
"""

from typing import Final

from kohort.model.errors import CoordinatorError, ErrorCode, error_code

# fmt: off
_TRANSLATION: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS:        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT:          ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER:     ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR:        ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE:          ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE:      ErrorCode.UNKNOWN_SERVER_ERROR,
}
# fmt: on
_MESSAGES: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
}
_UNEXPECTED: Final = "The server experienced an unexpected error when processing the request."


def failure(what: str, error: Exception) -> CoordinatorError:
    """
    The answer to a request that its shard could not run, or whose records could not be written.

    Args:
        what: "write share group state", for the message.
    """
    code = error_code(error)
    code = _TRANSLATION.get(code, code)
    return CoordinatorError(code, f"Unable to {what}: {_MESSAGES.get(code, _UNEXPECTED)}")


def not_available() -> CoordinatorError:
    """The answer of a node that has stopped."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return CoordinatorError(code, _MESSAGES[code])
