"""
Error codes of the transaction coordinator's answers.

Source: Kafka TransactionStateManager.appendTransactionToLog, KafkaApis.handleInitProducerIdRequest and its neighbours.
"""

from typing import Final

from kohort.model.errors import ErrorCode, error_code
from kohort.wire.apis import ApiKey

_APPEND: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

PRODUCER_FENCED_SINCE: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first version of each API whose clients know PRODUCER_FENCED. Older ones get INVALID_PRODUCER_EPOCH."""


def append_error(error: Exception) -> ErrorCode:
    """The code of a request whose records could not be written, or that its shard could not run."""
    code = error_code(error)
    return _APPEND.get(code, code)


def downgraded(code: ErrorCode, api_key: ApiKey, api_version: int) -> ErrorCode:
    """The code as clients of this version know it."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < PRODUCER_FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
