"""
The columns of each published table, in order. Readers rely on them, and runs recognise tables of other releases by them.

Source: docs/pipeline.md, "The tables".
"""

from collections.abc import Mapping

_OFFSETS = "group topic partition offset leader_epoch metadata commit_timestamp_ms"
_LAG = f"{_OFFSETS} end_offset lag is_beyond_end"
_REBALANCES = (
    "group group_type log_partition log_offset began_at_ms completed_at_ms event generation protocol_type protocol leader"
    " members joined left fenced changed why moved sync_ms duration_ms"
)
_OWNED = "topic topic_id subtopology partition"

_TABLES = {
    "offsets": _OFFSETS,
    "lag": _LAG,
    "time_lag": f"{_LAG} next_produced_at_ms time_lag_ms records_lost",
    "lag_over_time": "group timestamp_ms lag",
    "time_lag_over_time": "group timestamp_ms waiting_since_ms time_lag_ms time_lag_max_ms",
    "status": "group topic partition status lag commits last_commit_ms is_rising",
    "status_history": "group topic partition since_ms until_ms status lag_max",
    "commit_frequency": (
        "group topic partition commits first_commit_ms last_commit_ms interval_p50_ms interval_max_ms unmoved rewinds"
    ),
    "offset_commits": (
        "log_partition log_offset group topic partition tombstone offset leader_epoch metadata commit_timestamp_ms fate"
        " visible_at_ms"
    ),
    "rebalances": _REBALANCES,
    "rebalance_costs": f"{_REBALANCES} lag_before lag_after lag_cost",
    "members": "group group_type member_id instance_id client_id client_host since_ms until_ms first_log_offset",
    "assignments": f"group group_type member_id {_OWNED} role since_ms until_ms first_log_offset",
    "partition_flapping": (
        f"group group_type {_OWNED} stays owners moves returns held_p50_ms held_min_ms first_since_ms"
    ),
    "time_without_owner": f"group group_type {_OWNED} since_ms until_ms unowned_ms",
    "share_state": (
        "group topic topic_id partition start_offset end_offset lag delivery_complete_count batches state_epoch"
        " leader_epoch written_at_ms"
    ),
    "transactions": (
        "log_partition transactional_id producer_id producer_epoch transaction_version timeout_ms partitions start_ms"
        " prepared_at_ms completed_at_ms duration_ms markers_ms state outcome ended_by first_log_offset last_log_offset"
    ),
    "open_transactions": (
        "topic partition transactional_id producer_id producer_epoch state start_ms age_ms timeout_ms is_overdue"
    ),
    "blocking_transactions": (
        "topic partition producer_id producer_epoch start_offset start_ms last_timestamp_ms duration_ms transactional_id"
        " verdict blocked_records"
    ),
    "transaction_statistics": (
        "transactional_id transactions committed aborted open timed_out fenced abort_rate duration_p50_ms duration_p95_ms"
        " duration_p99_ms duration_max_ms producer_ids"
    ),
    "damage": "log_topic log_partition segment position size_bytes log_offset problem",
}

COLUMNS: Mapping[str, tuple[str, ...]] = {name: tuple(columns.split()) for name, columns in _TABLES.items()}
