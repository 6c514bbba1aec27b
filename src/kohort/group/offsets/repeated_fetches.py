"""
Fast path for repeated OffsetFetch requests: a tool that watches a group asks for the same offsets again and again.

The offsets are looked up each time, after the usual checks of the group and its member. If they are those of the last time, the
answer of the last time is sent: to build and to encode it are nine tenths of the cost of a fetch of many partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from kohort.group.offsets.commit_answers import TOPIC_IDS_SINCE
from kohort.group.offsets.fetch import Found, answer_found, asked_partitions
from kohort.group.offsets.versions import downgrade_fetch, upgrade_fetch
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, RequestTemplate

FetchResponse: TypeAlias = m.OffsetFetchResponse | PreparedResponse

OFFSET_BYTES: Final = 270
"""
The memory of an offset that nobody else holds any more, of its partition, and of their entries in lists; beside `TEXT_FACTOR`
times its bytes in the answer, 16 at least.
"""
ALL_BYTES: Final = 350
"""As `OFFSET_BYTES`, if all offsets are asked for."""
TEXT_FACTOR: Final = 5
"""The memory of the answer and of metadata, for each byte of the answer: a character may take four bytes."""


class RepeatedFetch:
    """
    The memo of a template: what its last request found, and the answer to that.

    Attributes:
        group: which offsets it asks for; None if each request takes the plain way, because it asks for several groups, or for
            topics by their ids, whose names may change.
        partitions: of the group; None for all.
    """

    __slots__ = ("_answer", "_api_version", "_bytes_max", "_found", "group", "partitions")

    def __init__(self, template: RequestTemplate, api_version: int) -> None:
        groups: Sequence[m.OffsetFetchRequestGroup] = upgrade_fetch(template.request, api_version)
        is_plain = len(groups) != 1 or api_version >= TOPIC_IDS_SINCE
        self.group: Final = None if is_plain else groups[0]
        self.partitions: Final = None if is_plain else asked_partitions(groups[0])
        self._api_version: Final = api_version
        self._bytes_max: Final = template.memo_bytes_max
        self._found: Found | None = None
        self._answer: PreparedResponse | None = None

    def answer(self, found: Found) -> FetchResponse:
        """The answer to a request that has found this."""
        kept = self._answer
        if kept is not None and found == self._found:
            return kept
        assert self.group is not None
        version = self._api_version
        response = downgrade_fetch((answer_found(self.group, found),), version)
        encoded = response_encoder(ApiKey.OFFSET_FETCH, version)(0, response)
        prepared = PreparedResponse(encoded)
        offset_bytes = ALL_BYTES if self.partitions is None else OFFSET_BYTES
        count = len(found) if isinstance(found, list) else 0
        is_small = count * offset_bytes + TEXT_FACTOR * len(encoded) <= self._bytes_max
        self._found, self._answer = (found, prepared) if is_small else (None, None)
        return prepared
