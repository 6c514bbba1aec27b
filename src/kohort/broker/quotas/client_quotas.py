"""
Enforcement of client quotas: what clients have used, and how long their connections are throttled (KIP-219).

A quota is asked for by those who enforce it: Fetch, the APIs that change topics, the wrapper of handlers in the server, and the
listener. Without any quota, none of them does more than look at one attribute.

Source: Kafka ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager, ConnectionQuotas.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context
from kohort.broker.quotas.limits import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    AddressLimits,
    ClientLimits,
    parse_entity,
    quota_values,
)
from kohort.broker.quotas.rates import SampledRate, TokenBucket, Windows
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import ANONYMOUS
from kohort.model.limits import QUOTA_RATES_MAX
from kohort.runtime.ports import Clock

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
_NANOSECONDS_PER_PERCENT: Final = 10_000_000
"""One percent of a second."""
_ADDRESS_THROTTLE_MS_MAX: Final = 1_000
_EXCEEDED: Final = "The throttling quota has been exceeded."


class _Meters(Generic[T]):
    """The rates of those that have a limit; of too many, the one that was not used for longest is forgotten."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._meters: dict[Hashable, T] = {}

    def of(self, owner: Hashable) -> T:
        meter = self._meters.pop(owner, None)
        if meter is None:
            meter = self._make()
            if len(self._meters) >= QUOTA_RATES_MAX:
                del self._meters[next(iter(self._meters))]
        self._meters[owner] = meter
        return meter

    def __len__(self) -> int:
        return len(self._meters)


class RateQuota:
    """A quota of one key: bytes or time per second."""

    def __init__(self, windows: Windows, throttle_ms_max: int | None = None) -> None:
        self.limits: ClientLimits | None = None
        self._windows = windows
        self._meters = _Meters(lambda: SampledRate(windows))
        self._throttle_ms_max = throttle_ms_max

    def __len__(self) -> int:
        return len(self._meters)

    def record(self, client_id: str, value: float, now_ms: int) -> int:
        """Record a use, and return for how many milliseconds the client is to be throttled; 0 without a quota."""
        found = self.limits.find(ANONYMOUS, client_id) if self.limits else None
        if found is None:
            return 0
        meter = self._meters.of(found[0])
        meter.record(value, now_ms)
        throttle_ms = meter.throttle_ms(found[1], now_ms)
        return throttle_ms if self._throttle_ms_max is None else min(throttle_ms, self._throttle_ms_max)

    def unrecord(self, client_id: str, value: float, now_ms: int) -> None:
        """Take back a use that did not happen."""
        found = self.limits.find(ANONYMOUS, client_id) if self.limits else None
        if found is not None:
            self._meters.of(found[0]).record(-value, now_ms)

    def value_max(self, client_id: str) -> float:
        """More than this at once is always throttled."""
        found = self.limits.find(ANONYMOUS, client_id) if self.limits else None
        return float("inf") if found is None else found[1] * (self._windows.count - 1) * self._windows.ms / 1_000


class Mutations:
    """
    The changes of topics in one request: creations, new partitions and deletions, counted by partition.

    Newer versions are strict: a change that the quota has no room for is refused. Older ones are throttled afterwards.
    """

    def __init__(self, bucket: TokenBucket | None, limit: float, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._clock = clock
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._throttled_at_ms = 0

    def record(self, partitions: int) -> None:
        """
        Raises:
            CoordinatorError: THROTTLING_QUOTA_EXCEEDED.
        """
        bucket = self._bucket
        if bucket is None:
            return
        now_ms = self._clock.now_ms()
        if not self._is_strict:
            bucket.take(partitions, self._limit, now_ms)
        throttle_ms = bucket.throttle_ms(self._limit, now_ms)
        if throttle_ms:
            self._throttle_ms, self._throttled_at_ms = throttle_ms, now_ms
            if self._is_strict:
                raise CoordinatorError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _EXCEEDED)
        elif self._is_strict:
            bucket.take(partitions, self._limit, now_ms)

    def throttled(self, context: Context, response: R) -> R:
        """Throttle the client if the quota is exceeded, and return the response with the time."""
        throttle_ms = self.throttle_ms
        if not throttle_ms:
            return response
        context.throttle(throttle_ms)
        return msgspec.structs.replace(response, throttle_time_ms=throttle_ms)

    @property
    def throttle_ms(self) -> int:
        """For how long the client is to be throttled from now on."""
        if not self._throttle_ms:
            return 0
        return max(self._throttle_ms - (self._clock.now_ms() - self._throttled_at_ms), 0)


class ClientQuotas:
    """
    The quotas of a node.

    Attributes:
        on_change: called when the first quota of produced bytes or of requests was set, or the last one was removed.
    """

    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        windows = Windows(config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds") * 1_000)
        mutation_windows = Windows(
            config.get_int("controller.quota.window.num"),
            config.get_int("controller.quota.window.size.seconds") * 1_000,
        )
        self.produce = RateQuota(windows)
        self.fetch = RateQuota(windows)
        self._requests = RateQuota(windows, windows.ms)
        self._mutation_limits: ClientLimits | None = None
        self._buckets = _Meters(lambda: TokenBucket(mutation_windows))
        self._address_limits: AddressLimits | None = None
        self._connections = _Meters(lambda: SampledRate(windows))
        self.on_change: Callable[[], None] = lambda: None
        self._limits = {
            key: ClientLimits()
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
        }
        self._limits_of_addresses = AddressLimits()
        self._learn(catalog.settings(QUOTAS).items())
        catalog.watch_settings(QUOTAS, lambda settings: self._learn((each.name, each.value) for each in settings))

    def _learn(self, changed: Iterable[tuple[str, Mapping[str, Any] | None]]) -> None:
        """Take the changed entities with their quotas; None for an entity without any."""
        for name, fields in changed:
            entity = parse_entity(name)
            quotas = quota_values(fields or {})
            if IP in entity:
                self._limits_of_addresses.set(entity, quotas.get(CONNECTION_CREATION_RATE))
                continue
            for key, limits in self._limits.items():
                limits.set(entity, quotas.get(key))
        before = (self.limits_produce, self.limits_requests)
        self.produce.limits = self._limits[PRODUCER_BYTE_RATE] or None
        self.fetch.limits = self._limits[CONSUMER_BYTE_RATE] or None
        self._requests.limits = self._limits[REQUEST_PERCENTAGE] or None
        self._mutation_limits = self._limits[CONTROLLER_MUTATION_RATE] or None
        self._address_limits = self._limits_of_addresses or None
        if before != (self.limits_produce, self.limits_requests):
            self.on_change()

    @property
    def limits_requests(self) -> bool:
        return self._requests.limits is not None

    @property
    def limits_produce(self) -> bool:
        return self.produce.limits is not None

    @property
    def limits_fetch(self) -> bool:
        return self.fetch.limits is not None

    def record_request(self, client_id: str, nanoseconds: int) -> int:
        """Record the time that a request took, and return for how many milliseconds its client is to be throttled."""
        return self._requests.record(client_id, nanoseconds / _NANOSECONDS_PER_PERCENT, self._clock.now_ms())

    def record_produce(self, client_id: str, size_bytes: int) -> int:
        """As `record_request`, for produced bytes."""
        return self.produce.record(client_id, size_bytes, self._clock.now_ms())

    def record_fetch(self, client_id: str, size_bytes: int) -> int:
        """As `record_request`, for fetched bytes; those of a client that is throttled do not count, as it does not get them."""
        now_ms = self._clock.now_ms()
        throttle_ms = self.fetch.record(client_id, size_bytes, now_ms)
        if throttle_ms:
            self.fetch.unrecord(client_id, size_bytes, now_ms)
        return throttle_ms

    def mutations(self, context: Context, strict_since: int) -> Mutations:
        """Begin a request that changes topics. It is strict from a version on."""
        found = self._mutation_limits.find(ANONYMOUS, context.client_id) if self._mutation_limits else None
        bucket = None if found is None else self._buckets.of(found[0])
        limit = 0.0 if found is None else found[1]
        return Mutations(bucket, limit, self._clock, is_strict=context.api_version >= strict_since)

    def connection_delay_ms(self, host: str) -> int:
        """Record a new connection of an address. Return 0 if it is accepted, else after how long it is to be closed."""
        limit = None if self._address_limits is None else self._address_limits.find(host)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms()
        meter = self._connections.of(host)
        meter.record(1, now_ms)
        delay_ms = min(meter.throttle_ms(limit, now_ms), _ADDRESS_THROTTLE_MS_MAX)
        if delay_ms:
            meter.record(-1, now_ms)
        return delay_ms
