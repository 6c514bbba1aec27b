"""
GetTelemetrySubscriptions (71) and PushTelemetry (72), version 0: clients ask what to push, and push it.

The metrics are shown by /metrics. The log names the first push of each client, and at the level debug all pushes.

Source: KIP-714; Kafka ClientMetricsManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Final
from uuid import UUID

from kohort.broker.catalog.catalog import Catalog, new_topic_id
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context
from kohort.broker.telemetry.instances import ClientInstance, ClientInstances
from kohort.broker.telemetry.otlp import TooManyFieldsError, read_metrics
from kohort.broker.telemetry.received import ReceivedMetrics
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.model.limits import (
    CLIENT_PROPERTY_LENGTH_MAX,
    COMPRESSED_PARTS_AT_ONCE,
    TELEMETRY_POINTS_MAX,
    TELEMETRY_UNPACKED_BYTES_MAX,
)
from kohort.runtime.ports import Clock
from kohort.wire import messages as m
from kohort.wire.compression import Codec, TooLargeError, decompress

_log = logging.getLogger("kohort.telemetry")

_COMPRESSION_TYPES: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""By preference."""
_RESERVED_IDS: Final = (UUID(int=0), UUID(int=1))


class Telemetry:
    """
    Handlers of both APIs.

    Attributes:
        pushes: accepted pushes.
        refused: pushes whose metrics could not be read.
        unknown_subscriptions: pushes for a subscription that has changed.
    """

    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        self._bytes_max = config.get_int("telemetry.max.bytes")
        self.instances = ClientInstances(catalog.settings(CLIENT_METRICS_KIND))
        self.received = ReceivedMetrics()
        self.pushes = 0
        self.refused = 0
        self.unknown_subscriptions = 0
        catalog.watch_settings(CLIENT_METRICS_KIND, self.instances.on_subscriptions)

    def get_telemetry_subscriptions(
        self,
        request: m.GetTelemetrySubscriptionsRequest,
        context: Context,
        _reply: Reply[m.GetTelemetrySubscriptionsResponse],
    ) -> Generator[None, None, m.GetTelemetrySubscriptionsResponse]:
        """Tell a client what to push; its subscriptions are found in steps."""
        now_ms = self._clock.now_ms()
        instance_id = request.client_instance_id or self._new_id()
        instance = yield from self._instance(instance_id, context, now_ms)
        try:
            instance.get(now_ms)
        except CoordinatorError as error:
            return m.GetTelemetrySubscriptionsResponse(error_code=error.code)
        instance.last_error = ErrorCode.NONE
        return m.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=_COMPRESSION_TYPES,
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=instance.metrics,
        )

    def _instance(self, instance_id: UUID, context: Context, now_ms: int) -> Generator[None, None, ClientInstance]:
        """The instance of an id. It is forgotten when its connection ends."""
        context.when_disconnected("telemetry", partial(self.instances.forget, instance_id))
        return (yield from self.instances.of(instance_id, _properties(context, instance_id), now_ms))

    def _new_id(self) -> UUID:
        while (instance_id := new_topic_id()) in self.instances:
            pass
        return instance_id

    def push_telemetry(
        self, request: m.PushTelemetryRequest, context: Context, _reply: Reply[m.PushTelemetryResponse]
    ) -> Generator[None, None, m.PushTelemetryResponse]:
        """Check a push, then read its metrics in steps."""
        instance_id = request.client_instance_id
        if instance_id is None or instance_id in _RESERVED_IDS:
            return m.PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.now_ms()
        instance = yield from self._instance(instance_id, context, now_ms)
        try:
            self._check(request, instance, now_ms)
            instance.is_terminating = request.terminating
            yield from self._take(request, context.client_id, instance, instance_id)
        except CoordinatorError as error:
            instance.is_terminating = request.terminating
            instance.last_error = error.code
            return m.PushTelemetryResponse(error_code=error.code)
        instance.last_error = ErrorCode.NONE
        self.pushes += 1
        return m.PushTelemetryResponse()

    def _check(self, request: m.PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> None:
        """
        Raises:
            CoordinatorError: the push is refused.
        """
        instance.push(now_ms, is_terminating=request.terminating)
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise CoordinatorError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in (Codec.NONE, *_COMPRESSION_TYPES):
            raise CoordinatorError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._bytes_max:
            raise CoordinatorError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _take(
        self, request: m.PushTelemetryRequest, client_id: str, instance: ClientInstance, instance_id: UUID
    ) -> Generator[None, None, None]:
        """
        Read the metrics of a push in steps. Those of an instance that was asked for none are not read.

        Raises:
            CoordinatorError: INVALID_RECORD, TELEMETRY_TOO_LARGE: the metrics cannot be read.
        """
        if not request.metrics or not instance.metrics:
            return
        received = self.received
        count = 0
        try:
            data = bytes(request.metrics)
            if request.compression_type != Codec.NONE:
                data = decompress(
                    data,
                    request.compression_type,
                    TELEMETRY_UNPACKED_BYTES_MAX,
                    parts_max=COMPRESSED_PARTS_AT_ONCE,
                )
            now_ms = self._clock.now_ms()
            client = received.begin(instance_id, client_id, now_ms, now_ms + instance.expiry_ms)
            for point in read_metrics(data):
                if point is None:
                    yield
                elif count == TELEMETRY_POINTS_MAX:
                    received.dropped += 1
                    break
                else:
                    received.add(client, point)
                    count += 1
        except (TooLargeError, TooManyFieldsError) as error:
            self.refused += 1
            raise CoordinatorError(ErrorCode.TELEMETRY_TOO_LARGE) from error
        except CorruptError as error:
            self.refused += 1
            _log.warning(
                "telemetry.refused instance=%s client_id=%r error=%s", uuid_text(instance_id), client_id, error
            )
            raise CoordinatorError(ErrorCode.INVALID_RECORD) from error
        level = logging.DEBUG if instance.has_pushed else logging.INFO
        instance.has_pushed = True
        _log.log(
            level,
            "telemetry.received instance=%s client_id=%r points=%d bytes=%d terminating=%s",
            uuid_text(instance_id), client_id, count, len(data), request.terminating,
        )  # fmt: skip


def _properties(context: Context, instance_id: UUID) -> Callable[[], dict[str, str]]:
    """The properties of the client that subscriptions can ask for."""

    def make() -> dict[str, str]:
        client = context.client
        return {
            "client_instance_id": uuid_text(instance_id),
            "client_id": context.client_id[: CLIENT_PROPERTY_LENGTH_MAX + 1],  # a longer one matches nothing
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": context.client_host.removeprefix("/"),
            "client_source_port": str(client.port),
        }

    return make
