"""
The broker configurations of the share coordinator, with Kafka's names and defaults.

Source: Apache Kafka 4.4.0, ShareCoordinatorConfig.
"""

import msgspec


class ShareConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One field per broker key, with underscores in place of dots."""

    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
