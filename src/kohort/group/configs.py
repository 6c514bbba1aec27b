"""
The broker configurations of the group coordinator, with Kafka's names and defaults.

Source: Apache Kafka 4.2.1, GroupCoordinatorConfig.
"""

import msgspec

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""The time in which a new member must receive its first answer. A constant in Kafka, too."""


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One field per broker key, with underscores in place of dots."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    """The maximum number of members of a classic group."""
    offset_metadata_max_bytes: int = 4_096
    """In UTF-16 units, despite its name."""
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
