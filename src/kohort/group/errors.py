"""
The error codes of responses when the log of the coordinator or its shard fails.

Source: Kafka CoordinatorOperationExceptionHelper, GroupMetadataManager.appendGroupMetadataErrorToResponseError.
"""

from kohort.model.errors import ErrorCode, error_code

# fmt: off
_TRANSLATION = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS:        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT:          ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER:     ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR:        ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE:          ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE:      ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE:         ErrorCode.UNKNOWN_SERVER_ERROR,
    # From the verification of a transaction, not from the log.
    ErrorCode.NETWORK_EXCEPTION:          ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
# fmt: on


def append_error(error: Exception, *, from_sync: bool = False) -> ErrorCode:
    """
    The code of a request whose records could not be written, or that its shard could not run.

    Args:
        from_sync: the leader's assignment was being stored; NETWORK_EXCEPTION is not translated, as in Kafka.
    """
    code = error_code(error)
    if from_sync and code is ErrorCode.NETWORK_EXCEPTION:
        return code
    return _TRANSLATION.get(code, code)


def stable_fetch_error(error: Exception) -> ErrorCode:
    """As `append_error`, for an OffsetFetch of stable offsets: the client is sent to find the coordinator again."""
    code = error_code(error)
    translated = _TRANSLATION.get(code, code)
    is_unavailable = translated is ErrorCode.COORDINATOR_NOT_AVAILABLE and code is not translated
    return ErrorCode.NOT_COORDINATOR if is_unavailable else translated
