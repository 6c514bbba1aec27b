"""
Client instances: what each client is to push and how often, and what it may do now.

Source: KIP-714; Kafka ClientMetricsManager, ClientMetricsInstance.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kohort.broker.catalog.view import Setting
from kohort.broker.configs.client_metrics import INTERVAL_DEFAULT_MS, Subscription
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import CLIENT_INSTANCES_MAX
from kohort.wire.native import crc32c

_log = logging.getLogger("kohort.telemetry")

ALL_METRICS: Final = "*"
_EXPIRY_MS_MIN: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_NEVER: Final = 0
_STEP: Final = 50
"""Subscriptions that are matched with a client between two yields."""


class ClientInstance:
    """
    One instance of a client.

    Args:
        matching: the subscriptions that are for this client.

    Attributes:
        properties: of the client, by the names that subscriptions use.
        has_pushed: whether metrics of it have arrived.
        version: of the subscriptions by which this instance was made.
    """

    def __init__(
        self,
        instance_id: UUID,
        properties: dict[str, str],
        matching: Sequence[Subscription],
        version: int,
    ) -> None:
        self.properties = properties
        self.version = version
        metrics: set[str] = set()
        interval_ms = INTERVAL_DEFAULT_MS
        for subscription in matching:
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
        self.metrics = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        self.interval_ms = interval_ms
        self.subscription_id = _subscription_id(self.metrics, interval_ms, instance_id)
        self.is_terminating = False
        self.has_pushed = False
        self.last_error = ErrorCode.NONE
        self._got_ms = _NEVER
        self._pushed_ms = _NEVER
        self.expires_ms = 0

    def get(self, now_ms: int) -> None:
        """
        Note a request for the subscription.

        Raises:
            CoordinatorError: THROTTLING_QUOTA_EXCEEDED: the last request was less than an interval ago.
        """
        if now_ms - max(self._got_ms, self._pushed_ms) >= self.interval_ms:
            self._got_ms = now_ms
        elif self.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            raise CoordinatorError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def push(self, now_ms: int, *, is_terminating: bool) -> None:
        """
        Note a push. The first one after a request for the subscription may come at any time.

        Raises:
            CoordinatorError: INVALID_REQUEST after the last push, THROTTLING_QUOTA_EXCEEDED.
        """
        if self.is_terminating:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST)
        if self._got_ms > self._pushed_ms or now_ms - self._pushed_ms >= self.interval_ms:
            self._pushed_ms = now_ms
        elif not is_terminating:
            raise CoordinatorError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    @property
    def expiry_ms(self) -> int:
        """After how long without a request the instance is forgotten."""
        return max(_EXPIRY_MS_MIN, _EXPIRY_INTERVALS * self.interval_ms)


def _subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: UUID) -> int:
    """A number that changes with the subscription. Source: Kafka ClientMetricsManager.computeSubscriptionId, Uuid.hashCode."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ (instance_id.int & 0xFFFF_FFFF_FFFF_FFFF)
    unsigned = checksum ^ (halves >> 32) ^ (halves & 0xFFFF_FFFF)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


class ClientInstances:
    """
    The known instances; the ones that were used least recently are forgotten beyond a bound.

    Args:
        subscriptions: their configurations, by name. Those that are invalid are set aside with a warning.
    """

    def __init__(self, subscriptions: Mapping[str, Mapping[str, Any]]) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._instances: dict[UUID, ClientInstance] = {}
        for name, configs in subscriptions.items():
            self._subscribe(name, configs)

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._instances

    def forget(self, instance_id: UUID) -> None:
        self._instances.pop(instance_id, None)

    def on_subscriptions(self, settings: Iterable[Setting]) -> None:
        """Subscriptions have changed: each instance is made anew with its next request."""
        self._version += 1
        for setting in settings:
            self._subscriptions.pop(setting.name, None)
            if setting.value:
                self._subscribe(setting.name, setting.value)

    def _subscribe(self, name: str, configs: Mapping[str, Any]) -> None:
        try:
            self._subscriptions[name] = Subscription.of(name, configs)
        except ConfigError as error:
            _log.warning("telemetry.subscription_set_aside name=%r error=%s", name, error)

    def of(
        self, instance_id: UUID, properties: Callable[[], dict[str, str]], now_ms: int
    ) -> Generator[None, None, ClientInstance]:
        """The instance of an id; a new one, made in steps, if it is unknown."""
        while self._instances:
            oldest = next(iter(self._instances))
            if len(self._instances) < CLIENT_INSTANCES_MAX and self._instances[oldest].expires_ms > now_ms:
                break
            del self._instances[oldest]
        instance = self._instances.get(instance_id)
        while instance is None or instance.version < self._version:
            version = self._version
            known = properties() if instance is None else instance.properties
            matching = yield from self._matching(known)
            instance = self._instances.get(instance_id)
            if instance is None or instance.version < version:
                instance = ClientInstance(instance_id, known, matching, version)
        self._instances.pop(instance_id, None)
        self._instances[instance_id] = instance
        instance.expires_ms = now_ms + instance.expiry_ms
        return instance

    def _matching(self, properties: Mapping[str, str]) -> Generator[None, None, list[Subscription]]:
        matching = []
        for number, subscription in enumerate(list(self._subscriptions.values()), 1):
            if subscription.matches(properties):
                matching.append(subscription)
            if number % _STEP == 0:
                yield
        return matching
