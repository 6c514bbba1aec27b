"""Valid messages from the schemas, with names and numbers that mean something to a broker, so that requests get far."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import Field, Message, message
from kohort_lab.fuzz.batches import sample_batch

TOPICS: Final = ("fuzz-0", "fuzz-1", "fuzz-2", "fuzz-3")
_ALL_TOPICS: Final = (*TOPICS, "__consumer_offsets", "__transaction_state")
_CHANGING: Final = ("Create", "Delete", "Alter", "IncrementalAlter")
"""APIs whose requests may remove what the control client needs: they never name an internal topic."""
_GROUPS: Final = ("fuzz-group-0", "fuzz-group-1", "fuzz-group-2", "")
_TRANSACTIONS: Final = ("fuzz-txn-0", "fuzz-txn-1", "")
_STRINGS: Final = ("", "range", "consumer", "cleanup.policy", "compact", "zstd", "x" * 130, "\u00e9\u4e16")
_CLIENT_IDS: Final = ("fuzz", "", None)  # `__admin_client` may write to internal topics, as in Kafka

_NUMBERS: Final[dict[str, Sequence[int]]] = {
    "partition": (0, 0, 1, 2, -1),
    "partition_index": (0, 0, 1, 2, -1),
    "index": (0, 0, 1, 2, -1),
    "num_partitions": (1, 1, 2, -1),
    "count": (1, 2, 3),
    "replication_factor": (1, 1, -1, 3),
    "acks": (-1, -1, 1, 0, 2),
    "timeout_ms": (0, 10, 1000),
    "max_wait_ms": (0, 0, 10),
    "min_bytes": (0, 1),
    "max_bytes": (1 << 20, 100, 0),
    "partition_max_bytes": (1 << 20, 100, 0),
    "session_timeout_ms": (6000, 10_000, 0),
    "rebalance_timeout_ms": (10, 6000),
    "transaction_timeout_ms": (1000, 60_000),
    "replica_id": (-1, -1, -2, 0),
    "resource_type": (2, 2, 4, 32, 0),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 0, 1, 2),
    "timestamp": (-1, -2, -3, 0, 1 << 40),
}
"""Values by the name of the field; a value that occurs twice is chosen more often."""
_ANY_NUMBER: Final = (0, 0, 0, 1, 1, -1, 2, 100)
_RANGES: Final = {
    "int8": (-1 << 7, (1 << 7) - 1),
    "int16": (-1 << 15, (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-1 << 31, (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-1 << 63, (1 << 63) - 1),
}
_EDGE_PROBABILITY: Final = 0.03
_NULL_PROBABILITY: Final = 0.1
_LENGTHS: Final = (0, 1, 1, 1, 2, 3)


class Sampler:
    """
    Makes random messages.

    Args:
        topic_ids: ids of topics that exist.
    """

    def __init__(self, rng: Random, topic_ids: Sequence[UUID] = ()) -> None:
        self._rng = rng
        self._topic_ids = [*topic_ids, UUID(int=0), UUID(int=7)]

    def request(self, api: ApiKey, version: int) -> bytes:
        """A whole frame with a valid request."""
        name = f"{api.api_name}Request"
        correlation_id = self._rng.randrange(1 << 31)
        client_id = self._rng.choice(_CLIENT_IDS)
        return request_encoder(api, version)(correlation_id, client_id, self.message(name, version))

    def message(self, name: str, version: int) -> Any:
        """A request or response with a value in every field."""
        schema = message(name)
        return self._struct(schema, schema.name, version)

    def _struct(self, schema: Message, struct: str, version: int) -> Any:
        values = {field.name: self._value(schema, field, version) for field in schema.fields(struct, version)}
        return message_classes(schema.name)[struct](**values)

    def _value(self, schema: Message, field: Field, version: int) -> Any:
        if field.is_nullable(version) and self._rng.random() < _NULL_PROBABILITY:
            return None
        if field.array:
            return [self._element(schema, field, version) for _ in range(self._rng.choice(_LENGTHS))]
        return self._element(schema, field, version)

    def _element(self, schema: Message, field: Field, version: int) -> Any:
        rng = self._rng
        match field.type:
            case "string":
                return self._string(schema.name, field.name)
            case "records":
                return sample_batch(rng)
            case "bytes":
                return rng.choice((b"", b"\0\0\0\0\0\1\0\6fuzz-0\0\0\0\0", rng.randbytes(20), b"y" * 200))
            case "uuid":
                return rng.choice(self._topic_ids)
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return 0.5
            case struct if struct in schema.structs:
                return self._struct(schema, struct, version)
            case number:
                return self._number(field.name, number)

    def _string(self, message_name: str, field: str) -> str:
        if field == "transactional_id":
            return self._rng.choice(_TRANSACTIONS)
        if "group" in field or (field == "key" and message_name.startswith("FindCoordinator")):
            return self._rng.choice(_GROUPS)
        if "topic" in field or field in ("name", "resource_name", "key"):
            return self._rng.choice(TOPICS if message_name.startswith(_CHANGING) else _ALL_TOPICS)
        return self._rng.choice(_STRINGS)

    def _number(self, field: str, kind: str) -> int:
        least, largest = _RANGES[kind]
        if self._rng.random() < _EDGE_PROBABILITY:
            return self._rng.choice((least, largest))
        return min(max(self._rng.choice(_NUMBERS.get(field, _ANY_NUMBER)), least), largest)
