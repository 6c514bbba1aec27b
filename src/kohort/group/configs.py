"""
The broker configurations of the group coordinator, with Kafka's names and defaults.

Source: Apache Kafka 4.4.0, GroupCoordinatorConfig.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from kohort.model.numbers import parse_integer, trim

MigrationPolicy: TypeAlias = Literal["bidirectional", "upgrade", "downgrade", "disabled"]
"""The conversions of groups with members that are allowed, between classic and consumer groups."""

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""The time in which a new member must receive its first answer. A constant in Kafka, too."""


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One field per broker key, with underscores in place of dots."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    """The maximum number of members of a classic group."""
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignment_interval_ms: int = 1_000
    """The shortest time between two target assignments of a group; 0 computes one at every change."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The names of the assignors that members of consumer groups may choose; the first is the default."""
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    """The time after which the state of a share partition is initialized again, if there was no answer."""
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """The protocols that are enabled. The APIs of a disabled protocol answer UNSUPPORTED_VERSION."""
    offset_metadata_max_bytes: int = 4_096
    """In UTF-16 units, despite its name."""
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


GroupOverrides: TypeAlias = Callable[[str], Mapping[str, str]]
"""The configurations that were set for a group id, as text."""


def no_overrides(_group_id: str) -> Mapping[str, str]:
    """No group has configurations of its own."""
    return {}


class MemberTimeouts(NamedTuple):
    """Of the members of one group that the coordinator assigns, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


class GroupConfigs:
    """
    The configurations in force for single groups: those of the broker, overridden by those of the group.

    A change of a group's configuration takes effect with the next heartbeat of each member.

    Args:
        interval_ms: the present assignment interval of the broker for a kind of groups, which may change while it runs; that
            of `config` by default.

    Source: Kafka GroupConfigManager.
    """

    __slots__ = ("_consumer", "_interval_ms", "_overrides", "_share")

    def __init__(
        self,
        config: GroupConfig,
        overrides: GroupOverrides = no_overrides,
        interval_ms: Callable[[str], int] | None = None,
    ) -> None:
        self._overrides = overrides
        self._interval_ms = (
            interval_ms
            or {
                "consumer": config.group_consumer_assignment_interval_ms,
                "share": config.group_share_assignment_interval_ms,
            }.__getitem__
        )
        self._consumer = MemberTimeouts(
            config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        )
        self._share = MemberTimeouts(config.group_share_session_timeout_ms, config.group_share_heartbeat_interval_ms)

    def consumer_timeouts(self, group_id: str) -> MemberTimeouts:
        overrides = self._overrides(group_id)
        return _timeouts("consumer", self._consumer, overrides) if overrides else self._consumer

    def share_timeouts(self, group_id: str) -> MemberTimeouts:
        overrides = self._overrides(group_id)
        return _timeouts("share", self._share, overrides) if overrides else self._share

    def assignment_interval_ms(self, kind: str, group_id: str) -> int:
        """The shortest time between two target assignments of the group."""
        own = self._overrides(group_id).get(f"{kind}.assignment.interval.ms")
        return self._interval_ms(kind) if own is None else parse_integer(trim(own), 32)


def _timeouts(kind: str, of_broker: MemberTimeouts, overrides: Mapping[str, str]) -> MemberTimeouts:
    session, heartbeat = (overrides.get(f"{kind}.{name}.ms") for name in ("session.timeout", "heartbeat.interval"))
    return MemberTimeouts(
        of_broker.session_timeout_ms if session is None else parse_integer(trim(session), 32),
        of_broker.heartbeat_interval_ms if heartbeat is None else parse_integer(trim(heartbeat), 32),
    )
