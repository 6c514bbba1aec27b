"""
Limits of connections of one broker: in all, of one address, and per second; and of one of its listeners.

`max.connections` and `max.connection.creation.rate` make the listener wait: further clients stay in its queue. A connection
beyond `max.connections.per.ip` is closed at once. If `max.connections` is lowered below the number of open connections, those
that were unused longest are closed; a limit of a listener closes none. The brokers of a process share its file descriptors.

Source: Kafka ConnectionQuotas, Rate, QuotaUtils.throttleTime.
"""

import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.broker.configs.values import parse_host_limits
from kohort.model.errors import ConfigError
from kohort.model.limits import CONFIG_SHOWN_LENGTH_MAX

_log = logging.getLogger("kohort.server")

CONFIGS: Final = (
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
)
_OVERRIDES: Final = "max.connections.per.ip.overrides"
WINDOW_SECONDS: Final = 1.0
WINDOWS: Final = 11
"""Source: quota.window.size.seconds and quota.window.num."""
UNLIMITED: Final = 2**31 - 1


class ConnectionRate:
    """
    The rate of new connections, over at most `WINDOWS` windows.

    Source: Kafka Rate over a WindowedSum: the time counts as at least `WINDOWS - 1` windows, so a burst of ten seconds' worth
    of connections is possible after a pause.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: deque[list[float]] = deque()
        """The start of each window, and its number of connections."""

    def record(self, per_second_max: int) -> float:
        """Count a connection; return for how many seconds no further one may be accepted, at most a window."""
        now = self._now()
        windows = self._windows
        while windows and now - windows[0][0] >= WINDOWS * WINDOW_SECONDS:
            windows.popleft()
        if not windows or now - windows[-1][0] >= WINDOW_SECONDS:
            windows.append([now, 0])
        windows[-1][1] += 1
        elapsed = max(now - windows[0][0], (WINDOWS - 1) * WINDOW_SECONDS)
        rate = sum(count for _, count in windows) / elapsed
        if rate <= per_second_max:
            return 0.0
        return WINDOW_SECONDS if not per_second_max else min((rate / per_second_max - 1) * elapsed, WINDOW_SECONDS)


class Descriptors:
    """
    The file descriptors that the brokers of a process share.

    Attributes:
        count: those of open connections.
        count_max: how many connections the process has file descriptors for.
        when_room: called when a connection was closed, or a limit was changed.
    """

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.when_room: list[Callable[[], None]] = []


class ConnectionLimits:
    """
    The limits of one broker, and how many connections count towards them.

    Args:
        config: of the broker.

    Attributes:
        count: connections whose socket is open.
        count_max: `max.connections`, or the descriptors of the process if they are fewer.
        accepted: connections that were counted so far.
        rejected: connections that were closed because their address had too many.

    Raises:
        ConfigError: an override is invalid, or its host is unknown.
    """

    def __init__(
        self, config: BrokerConfig, descriptors: Descriptors, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.descriptors = descriptors
        self._rate = ConnectionRate(now)
        self._by_host: Counter[str] = Counter()
        self.count = 0
        self.accepted = 0
        self.rejected = 0
        self.configure(config)
        config.watch(lambda names: None if names.isdisjoint(CONFIGS) else self._reconfigure(config))

    def configure(self, config: BrokerConfig) -> None:
        """
        Read the limits. Open connections beyond them are closed with the next check for idle connections.

        Raises:
            ConfigError: as the constructor.
        """
        overrides = _overrides(config.get_str(_OVERRIDES) or "")
        per_host_max = config.get_int("max.connections.per.ip")
        if per_host_max <= 0 and not overrides:
            raise ConfigError(
                "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides names the addresses that may connect"
            )
        self._overrides = overrides
        self._per_host_max = per_host_max
        self._per_second_max = config.get_int("max.connection.creation.rate")
        self.count_max = min(config.get_int("max.connections"), self.descriptors.count_max)
        self.tell_room()

    def _reconfigure(self, config: BrokerConfig) -> None:
        try:
            self.configure(config)
        except ConfigError as error:
            _log.error("config.not_applied error=%r", str(error))

    @property
    def has_room(self) -> bool:
        return self.count < self.count_max and self.descriptors.count < self.descriptors.count_max

    @property
    def excess(self) -> int:
        """How many open connections are beyond `count_max`."""
        return max(self.count - self.count_max, 0)

    def host_max(self, host: str) -> int:
        """The limit of an address."""
        return self._overrides.get(host, self._per_host_max)

    def record_accepted(self) -> float:
        """Count an accepted connection; return for how many seconds the listener has to wait before the next one."""
        return self._rate.record(self._per_second_max) if self._per_second_max < UNLIMITED else 0.0

    def enter(self, host: str) -> bool:
        """Count a connection; False, and not counted, if its address has too many already."""
        if self._by_host[host] >= self.host_max(host):
            self.rejected += 1
            if not self._by_host[host]:
                del self._by_host[host]
            return False
        self._by_host[host] += 1
        self.count += 1
        self.accepted += 1
        self.descriptors.count += 1
        return True

    def leave(self, host: str) -> None:
        """Forget a connection whose socket was closed."""
        self.count -= 1
        self.descriptors.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self.tell_room()

    def tell_room(self) -> None:
        """Wake the listeners that wait for room."""
        for tell in self.descriptors.when_room:
            tell()


class ListenerLimits:
    """
    The limits of one listener, within those of its broker: `listener.name.NAME.max.connections` and
    `listener.name.NAME.max.connection.creation.rate`.

    Args:
        of_broker: the limits of its broker.

    Attributes:
        count: connections of the listener whose socket is open.
        count_max: how many there may be.
    """

    def __init__(self, of_broker: ConnectionLimits, now: Callable[[], float] = time.monotonic) -> None:
        self.of_broker = of_broker
        self.count = 0
        self.count_max = UNLIMITED
        self._rate = ConnectionRate(now)
        self._per_second_max = UNLIMITED

    def configure(self, config: ListenerConfig) -> None:
        """Read the listener's own limits."""
        self.count_max, self._per_second_max = (
            UNLIMITED if config.own_text(name) is None else config.get_int(name)
            for name in ("max.connections", "max.connection.creation.rate")
        )
        self.of_broker.tell_room()

    @property
    def has_room(self) -> bool:
        return self.count < self.count_max and self.of_broker.has_room

    def record_accepted(self) -> float:
        """As `ConnectionLimits.record_accepted`."""
        of_broker = self.of_broker.record_accepted()
        return (
            max(of_broker, self._rate.record(self._per_second_max)) if self._per_second_max < UNLIMITED else of_broker
        )

    def enter(self, host: str) -> bool:
        """As `ConnectionLimits.enter`."""
        is_admitted = self.of_broker.enter(host)
        self.count += is_admitted
        return is_admitted

    def leave(self, host: str) -> None:
        """Forget a connection whose socket was closed."""
        self.count -= 1
        self.of_broker.leave(host)


def _overrides(text: str) -> Mapping[str, int]:
    """
    The limits by address. Source: Kafka InetAddress.getByName.

    Raises:
        ConfigError: the text has another form, or a host is unknown.
    """
    limits: dict[str, int] = {}
    try:
        pairs = parse_host_limits(_OVERRIDES, text)
    except ConfigError as error:
        raise ConfigError(
            f"{_OVERRIDES} must be a list of HOST:NUMBER, for example 127.0.0.1:200,[::1]:50; it is "
            f"{text[:CONFIG_SHOWN_LENGTH_MAX]!r}"
        ) from error
    for host, number in pairs:
        try:
            address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ConfigError(f"{_OVERRIDES} names the host {host!r}, which is unknown: {reason or error}") from None
        limits[str(address)] = number
    return limits
