"""
Validation of large batches in steps: compression and decompression on another thread, the scan of records on the event loop.

One large batch is validated at a time, because its records may take `DECOMPRESSED_BYTES_MAX`; the others wait in the order of
arrival. Smaller batches do not come here (`validation.AT_ONCE_BYTES`, `validation.AT_ONCE_RECORDS`).

A generator of this module yields None between two steps. It yields a function `wait(resume)` when it has to wait: the caller
takes no further step until `resume` was called (`kohort.server.requests.slices`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Final, Generic, TypeAlias, TypeVar

from kohort.broker.ports import Elsewhere
from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.validation import needs_codec, packed_records, stored_form, validate_in_steps
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.wire.batch_header import CODEC_MASK, HEADER_BYTES
from kohort.wire.batches import BatchHeader
from kohort.wire.scanning.room import Room

T = TypeVar("T")
Wait: TypeAlias = Callable[[Callable[[], None]], None]
Steps: TypeAlias = Generator["Wait | None", None, T]


class LargeBatches:
    """
    The large batches of a broker.

    Args:
        elsewhere: runs a function on another thread.
    """

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere: Final = elsewhere
        self._is_busy = False
        self._waiting: deque[Callable[[], None]] = deque()
        self._room: Room | None = None

    def validate(
        self, data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int, where: object
    ) -> Steps[bytes | bytearray]:
        """
        As `validation.validate_batch`, in steps.

        Raises:
            CoordinatorError: the batch breaks a rule.
        """
        while self._is_busy:
            try:
                yield self._waiting.append
            except GeneratorExit:
                self._wake()
                raise
        self._is_busy = True
        try:
            return (yield from self._validate(data, header, rules, now_ms, where))
        finally:
            self._is_busy = False
            self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._waiting.popleft()()

    def _validate(
        self, data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int, where: object
    ) -> Steps[bytes | bytearray]:
        if not header.attributes & CODEC_MASK:
            latest_ms = yield from validate_in_steps(data, header, rules, now_ms, where=where)
            packed = yield from self._packed(data, HEADER_BYTES, header, rules)
            return stored_form(data, header, rules, now_ms, latest_ms, packed)
        # A work that is dropped leaves the room to its thread.
        room, self._room = self._room or Room(), None
        try:
            records = yield from self._decompressed(room, data, header)
            latest_ms = yield from validate_in_steps(records, header, rules, now_ms, where=where)
            packed = yield from self._packed(records, 0, header, rules)
        except CoordinatorError:
            yield from room.release()
            self._room = room
            raise
        yield from room.release()
        self._room = room
        return stored_form(data, header, rules, now_ms, latest_ms, packed)

    def _decompressed(self, room: Room, data: bytes, header: BatchHeader) -> Steps[memoryview]:
        job = _Job(self._elsewhere, lambda: room.decompress(data[HEADER_BYTES:], header.codec))
        yield job.begin
        try:
            return job.result()
        except CorruptError as error:
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def _packed(
        self, records: bytes | memoryview, position: int, header: BatchHeader, rules: ProduceRules
    ) -> Steps[bytes | None]:
        if not needs_codec(header, rules):
            return None
        job = _Job(self._elsewhere, lambda: packed_records(records, position, rules))
        yield job.begin
        return job.result()


class _Job(Generic[T]):
    """A function that is run elsewhere, and its outcome."""

    def __init__(self, elsewhere: Elsewhere, function: Callable[[], T]) -> None:
        self._elsewhere = elsewhere
        self._function = function
        self._results: list[T] = []
        self._error: Exception | None = None

    def begin(self, resume: Callable[[], None]) -> None:
        self._elsewhere(self._run, resume)

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except Exception as error:  # noqa: BLE001 -- raised again by `result`, on the event loop
            self._error = error

    def result(self) -> T:
        """
        Raises:
            Exception: what the function raised.
        """
        error, self._error = self._error, None
        if error is None:
            return self._results[0]
        try:
            raise error
        finally:
            # The traceback of the error has this frame and that of the thread, which refer to the error and to the room.
            del error
