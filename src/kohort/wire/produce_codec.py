"""
The usual messages of Produce: requests to messages, and answers to bytes.

The reader walks a request once, where `kohort.wire.readers` needs two walks, one of them by Python that is not compiled. It
reads names, lists and tagged fields of the usual sizes, and leaves every other request, broken ones included, to that reader.
The encoder takes answers without an error, and leaves the others to `kohort.wire.encoders`. Both give what their twins give.
`has_usual_messages` tells the twins of which versions.

Source: Kafka ProduceRequest.json, ProduceResponse.json.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

from kohort.compiled import is_compiled
from kohort.model.limits import SHORT_ELEMENTS_MAX
from kohort.wire.apis import ApiKey
from kohort.wire.frames import read_int32

_TOPIC_IDS_SINCE: Final = 13
_ONE_BYTE_MAX: Final = 127
_RECORDS_SHIFT_MAX: Final = 21
"""Of the last byte of a size that is read here: 256 MiB, more than a frame has."""
_IDS_MAX: Final = 4_096
_SHORT: Final = tuple(bytes((number,)) for number in range(_ONE_BYTE_MAX + 1))
"""Sizes and counts, plus one."""
_pack_front: Final = Struct(">iixB").pack
"""Size, correlation id, the tagged fields of the header, count of topics."""
_pack_answer: Final = Struct(">ihqqqBBB").pack
"""The fields of an answer, no record errors, no message, no tagged fields."""
_pack_back: Final = Struct(">ix").pack
"""Throttle time, no tagged fields."""
_FRONT_BYTES: Final = 6
"""Of the front, behind the size."""


def has_usual_messages(version: int) -> bool:
    """Whether usual messages of a version of Produce are read and encoded here. In the plain build the twins are quicker."""
    return ApiKey.PRODUCE.is_flexible(version) and is_compiled()


@lru_cache(maxsize=_IDS_MAX)
def _topic_id(encoded: bytes) -> UUID | None:
    """The id in 16 bytes; None for the zero id. Each request has the same few, and to make one takes as long as the rest."""
    return UUID(bytes=encoded) if any(encoded) else None


class ProduceReader:
    """
    The reader of one version, 9 or newer.

    Args:
        classes: the classes of the message and of the structs in it, by name.
        read_any: the reader of all requests.
    """

    def __init__(self, version: int, classes: Mapping[str, type], read_any: Callable[[bytes, int], Any]) -> None:
        self._has_ids = version >= _TOPIC_IDS_SINCE
        self._request: Any = classes["ProduceRequest"]
        self._topic: Any = classes["ProduceRequestTopicProduceData"]
        self._data: Any = classes["ProduceRequestPartitionProduceData"]
        self._read_any = read_any

    def read(self, frame: bytes, offset: int) -> Any:
        """The request that begins at an offset. Raises: as `kohort.wire.readers.request_reader`."""
        try:
            request = self._usual(frame, offset)
        except (IndexError, ValueError):  # the frame ends early, or a text is not UTF-8
            request = None
        return self._read_any(frame, offset) if request is None else request

    def _usual(self, frame: bytes, at: int) -> Any:
        """The request; None if something in it is unusual."""
        request = self._request()
        size = frame[at]
        if size > _ONE_BYTE_MAX:
            return None
        end = at + max(size, 1)
        request.transactional_id = frame[at + 1 : end].decode() if size else None
        acks = frame[end] << 8 | frame[end + 1]
        request.acks = acks if acks < 1 << 15 else acks - (1 << 16)
        request.timeout_ms = read_int32(frame, end + 2)
        count = frame[end + 6]
        at = end + 7
        left = SHORT_ELEMENTS_MAX - count
        if not 0 < count <= _ONE_BYTE_MAX:
            return None
        topics = []
        for _ in range(count - 1):
            topic = self._topic()
            if self._has_ids:
                topic.topic_id = _topic_id(frame[at : at + 16])
                at += 16
            else:
                size = frame[at]
                if not 0 < size <= _ONE_BYTE_MAX:
                    return None
                topic.name = frame[at + 1 : at + size].decode()
                at += size
            count = frame[at]
            at += 1
            left -= count
            if not 0 < count <= _ONE_BYTE_MAX or left < 0:
                return None
            partitions = []
            for _ in range(count - 1):
                data = self._data()
                data.index = read_int32(frame, at)
                at += 4
                size = frame[at]
                at += 1
                if size > _ONE_BYTE_MAX:
                    size &= 0x7F
                    shift = 7
                    while frame[at] > _ONE_BYTE_MAX:
                        size |= (frame[at] & 0x7F) << shift
                        shift += 7
                        at += 1
                        if shift > _RECORDS_SHIFT_MAX:
                            return None
                    size |= frame[at] << shift
                    at += 1
                if size:
                    end = at + size - 1
                    data.records = frame[at:end]
                    at = end
                else:
                    data.records = None
                if frame[at]:  # which also finds records that end early
                    return None
                at += 1
                partitions.append(data)
            topic.partition_data = tuple(partitions)
            if frame[at]:
                return None
            at += 1
            topics.append(topic)
        request.topic_data = tuple(topics)
        return None if frame[at] else request


@lru_cache(maxsize=_IDS_MAX)
def _id_bytes(topic_id: int) -> bytes:
    return topic_id.to_bytes(16, "big")


class ProduceEncoder:
    """
    The encoder of the answers of one version, 9 or newer.

    Args:
        no_leader: the default of the field `current_leader`.
        encode_any: the encoder of all answers.
    """

    def __init__(self, version: int, no_leader: object, encode_any: Callable[[int, Any], bytes]) -> None:
        self._has_ids = version >= _TOPIC_IDS_SINCE
        self._no_leader = no_leader
        self._encode_any = encode_any

    def encode(self, correlation_id: int, response: Any) -> bytes:
        """The frame of an answer. Raises: as `kohort.wire.encoders.response_encoder`."""
        frame = None if response.node_endpoints else self._usual(correlation_id, response)
        return self._encode_any(correlation_id, response) if frame is None else frame

    def _usual(self, correlation_id: int, response: Any) -> bytes | None:
        """The frame; None if something in the answer is unusual."""
        topics = response.responses
        if len(topics) >= _ONE_BYTE_MAX:
            return None
        out: list[bytes] = []
        for topic in topics:
            answers = topic.partition_responses
            if len(answers) >= _ONE_BYTE_MAX:
                return None
            if self._has_ids:
                topic_id = topic.topic_id
                out.append(_id_bytes(0 if topic_id is None else topic_id.int))
            else:
                name: bytes = topic.name.encode()
                if len(name) >= _ONE_BYTE_MAX:
                    return None
                out += (_SHORT[len(name) + 1], name)
            out.append(_SHORT[len(answers) + 1])
            for answer in answers:
                if (
                    answer.error_code
                    or answer.record_errors
                    or answer.error_message is not None
                    or answer.current_leader is not self._no_leader
                ):
                    return None
                out.append(
                    _pack_answer(
                        answer.index,
                        0,
                        answer.base_offset,
                        answer.log_append_time_ms,
                        answer.log_start_offset,
                        1,
                        0,
                        0,
                    )
                )
            out.append(b"\0")
        out.append(_pack_back(response.throttle_time_ms))
        rest = b"".join(out)
        front: bytes = _pack_front(_FRONT_BYTES + len(rest), correlation_id, len(topics) + 1)
        return front + rest
