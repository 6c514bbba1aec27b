"""
The columns of every table: their order, types and meaning.

Readers of published tables rely on them, and runs recognise tables of other releases by them. The frames of the tables, the
comments of written columns, `kohort pipeline schema` and the page docs/pipeline-columns.md are made of these lines.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSETS = "group topic partition offset leader_epoch metadata commit_timestamp_ms"
_LAG = f"{_OFFSETS} end_offset lag is_beyond_end"
_REBALANCES = (
    "group group_type log_partition log_offset began_at_ms completed_at_ms event generation protocol_type protocol leader"
    " members joined left fenced changed why moved sync_ms duration_ms subscribed"
)
_OWNED = "topic topic_id subtopology partition"

_TABLES = {
    "offsets": _OFFSETS,
    "lag": _LAG,
    "time_lag": f"{_LAG} next_produced_at_ms is_exact time_lag_ms records_lost",
    "lag_over_time": "group timestamp_ms lag",
    "time_lag_over_time": "group timestamp_ms waiting_since_ms time_lag_ms time_lag_max_ms",
    "status": "group topic partition status lag commits last_commit_ms is_rising basis",
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
    "spark_queries": (
        "group group_type checkpoint query_id state state_why batch finished_at_ms open_batch open_since_ms replayed lag"
        " time_lag_ms records_lost retention_left_ms retained interval_p50_ms duration_p50_ms watermark_ms topics"
        " other_sources settings problems"
    ),
    "damage": "log_topic log_partition segment position size_bytes log_offset problem",
}

COLUMNS: Mapping[str, tuple[str, ...]] = {name: tuple(columns.split()) for name, columns in _TABLES.items()}
"""The names of the columns of each table, in order."""

INSTANT = "instant"
"""Milliseconds since 1970, UTC; a timestamp in typed frames."""
DURATION = "duration"
"""Milliseconds."""
_SQL = {INSTANT: "bigint", DURATION: "bigint"}
_MEMBERS = "array<struct<member_id:string,instance_id:string,client_id:string,client_host:string>>"

# A column of the same name has the same meaning in all tables, unless the table has a line of its own.
_LINES = """
group                    | string   | group id
topic                    | string   | topic name; null if only its id is known
partition                | int      | partition of the topic
offset                   | bigint   | committed offset: the next one that the group reads
leader_epoch             | int      | leader epoch of the last record that was read; -1 if the client gave none
metadata                 | string   | metadata that the client gave with the commit
commit_timestamp_ms      | instant  | when the client committed
end_offset               | bigint   | log end offset; null if there is no log of the partition
lag                      | bigint   | records from the committed offset to the log end offset; 0 beyond the end
is_beyond_end            | boolean  | the log ends below the committed offset
next_produced_at_ms      | instant  | when the oldest unread record was produced; null if there is none
is_exact                 | boolean  | that is the time of the record itself; false: of its batch, the record may be older
time_lag_ms              | duration | how long the oldest unread record has waited; null if the log or the offset is unknown
waiting_since_ms         | instant  | when the oldest record that waits was produced; null if none waits
time_lag_max_ms          | duration | greatest time lag in the interval, just before a commit
records_lost             | bigint   | offsets below the log start that the group had not read
timestamp_ms             | instant  | when the lag changed
status                   | string   | by Burrow's rules: OK, WARN, STOP, STALL or REWIND
commits                  | bigint   | effective commits
last_commit_ms           | instant  | when the last commit took effect
is_rising                | boolean  | the lag has grown over the whole window
basis                    | string   | the status, in which a usual pause between commits is no STOP; verdicts begin with it
since_ms                 | instant  | begin of the interval
until_ms                 | instant  | end of the interval; null if it lasts
lag_max                  | bigint   | greatest lag in the interval
first_commit_ms          | instant  | when the first commit took effect
interval_p50_ms          | duration | median time between commits
interval_max_ms          | duration | longest time between commits
unmoved                  | bigint   | commits of the offset before
rewinds                  | bigint   | commits of a smaller offset
log_partition            | int      | partition of the coordinator's log
log_offset               | bigint   | offset of the record in the coordinator's log
tombstone                | boolean  | the offset was deleted or expired
fate                     | string   | plain, committed, aborted or pending
visible_at_ms            | instant  | when the commit took effect; null if it did not
group_type               | string   | classic, consumer, share or streams
began_at_ms              | instant  | begin of the rebalance; null if the log does not tell
completed_at_ms          | instant  | completion; null if there was none
event                    | string   | created, rebalanced, replaced, emptied, converted or deleted
generation               | int      | generation, or group epoch
protocol_type            | string   | protocol type of a classic group
protocol                 | string   | assignor
leader                   | string   | member id of the leader of a classic group
members                  | MEMBERS  | members after the change
joined                   | MEMBERS  | members that joined
left                     | MEMBERS  | members that left, or whose session expired
fenced                   | MEMBERS  | members that were replaced under the same instance id
changed                  | MEMBERS  | members with another subscription
why                      | array<string> | causes: joined, left, fenced, subscription, metadata, rejoined
moved                    | int      | partitions, or active tasks, with another owner
sync_ms                  | duration | time of the last phase
duration_ms              | duration | whole duration; null if the log does not tell
subscribed               | array<string> | topics that the members after the change subscribe to; null if the log does not tell
lag_before               | bigint   | lag of the group at the begin of the rebalance
lag_after                | bigint   | lag of the group at its completion
lag_cost                 | bigint   | growth of the lag during the rebalance
member_id                | string   | member id
instance_id              | string   | group instance id of a static member
client_id                | string   | client id
client_host              | string   | host of the client
first_log_offset         | bigint   | offset of the first record in the coordinator's log
topic_id                 | string   | topic id
subtopology              | string   | subtopology of a task of a streams group
role                     | string   | active, standby or warmup, for tasks of streams groups
stays                    | bigint   | intervals with an owner
owners                   | bigint   | different owners
moves                    | bigint   | changes of the owner
returns                  | bigint   | moves to an earlier owner
held_p50_ms              | duration | median time with one owner
held_min_ms              | duration | shortest time with one owner
first_since_ms           | instant  | when the partition first had an owner
unowned_ms               | duration | time without an owner
start_offset             | bigint   | first offset
delivery_complete_count  | int      | records from the start offset on whose delivery is complete; -1 if unknown
batches                  | array<struct<first_offset:bigint,last_offset:bigint,state:string,deliveries:int>> | batches in flight
state_epoch              | int      | epoch of the share state; null if the log of its share coordinator is not there
written_at_ms            | instant  | when the state was written
transactional_id         | string   | transactional id; null if it is not known
producer_id              | bigint   | producer id
producer_epoch           | smallint | producer epoch
transaction_version      | smallint | transaction version of the client
timeout_ms               | int      | transaction timeout in milliseconds
partitions               | array<struct<topic:string,partition:int>> | partitions of the transaction
start_ms                 | instant  | begin of the transaction
prepared_at_ms           | instant  | when the outcome was decided
markers_ms               | duration | time from the decision to the completion
state                    | string   | state of the transaction
outcome                  | string   | committed, aborted, or open; null if damage hides it
ended_by                 | string   | client, timeout or fence; null if the log does not tell
last_log_offset          | bigint   | offset of the last record in the coordinator's log
age_ms                   | duration | time since the begin of the transaction
is_overdue               | boolean  | open for longer than its timeout
last_timestamp_ms        | instant  | last record of the transaction in the log
verdict                  | string   | hanging, long or ongoing; unknown if the log of its coordinator may be missing
blocked_records          | bigint   | offsets that read_committed consumers cannot read
transactions             | bigint   | number of transactions
committed                | bigint   | committed ones
aborted                  | bigint   | aborted ones
open                     | bigint   | open ones
timed_out                | bigint   | aborted by timeout
abort_rate               | double   | share of the completed transactions that were aborted
duration_p50_ms          | duration | median duration
duration_p95_ms          | duration | 95th percentile of the durations
duration_p99_ms          | duration | 99th percentile of the durations
duration_max_ms          | duration | longest duration
producer_ids             | bigint   | different producer ids
checkpoint               | string   | where the checkpoint of the query is
query_id                 | string   | id of the query, the same after a restart; null if the checkpoint does not tell
state_why                | string   | reason of the state; null if it needs none
batch                    | bigint   | last finished batch; null if there is none
finished_at_ms           | instant  | when that batch finished
open_batch               | bigint   | batch that was planned and has not finished; null if there is none
open_since_ms            | instant  | when that batch began
replayed                 | bigint   | records that a restart would read again
retention_left_ms        | duration | until retention reaches the position at the present rate; null: never, or unknown
retained                 | bigint   | finished batches that the checkpoint still has
watermark_ms             | instant  | watermark of the newest batch; null if the query has none
topics                   | array<string> | topics that the query reads
other_sources            | array<string> | sources of the query that are not Kafka
settings                 | array<string> | settings of Spark that the checkpoint fixes
problems                 | array<string> | files of the checkpoint that cannot be read
log_topic                | string   | topic of the log
segment                  | string   | name of the segment file
position                 | bigint   | position in the file
size_bytes               | bigint   | size of the range
problem                  | string   | what is wrong

spark_queries.group_type                  | string | spark query
spark_queries.state                       | string | running, waiting for data, stopped, stuck in a batch, or unknown
spark_queries.lag                         | bigint | sum over the partitions of the query
spark_queries.time_lag_ms                 | duration | how long the oldest unread record has waited
spark_queries.interval_p50_ms             | duration | median time between the begins of batches
spark_queries.duration_p50_ms             | duration | median time of a batch
transaction_statistics.fenced             | bigint | aborted by fencing
damage.log_offset                         | bigint | offset of the record; null if it is not known
share_state.start_offset                  | bigint | first offset that is not done; null if nothing was read yet
share_state.lag                           | bigint | records from the start offset on whose delivery is not complete (KIP-1226)
blocking_transactions.start_offset        | bigint | first offset of the transaction in the log
lag_over_time.lag                         | bigint | sum over the partitions of the group
time_lag_over_time.timestamp_ms           | instant  | end of the interval
time_lag_over_time.time_lag_ms            | duration | how long the oldest record has waited there; 0 if none waits
status.commits                            | int    | commits in the window
"""


class Column(NamedTuple):
    """
    A column of a table.

    Attributes:
        kind: a type of Spark SQL, or `INSTANT` or `DURATION`.
    """

    name: str
    kind: str
    comment: str

    @property
    def sql(self) -> str:
        """The type of the stored column."""
        return _SQL.get(self.kind, self.kind)


def _parsed() -> dict[str, Column]:
    found = {}
    for line in filter(None, _LINES.splitlines()):
        name, kind, comment = (word.strip() for word in line.split("|"))
        found[name] = Column(name.rpartition(".")[2], kind.replace("MEMBERS", _MEMBERS), comment)
    return found


_COLUMNS = _parsed()


def columns_of(table: str) -> tuple[Column, ...]:
    """
    Return the columns of a table, in order.

    Raises:
        ConfigError: there is no such table.
    """
    if table not in COLUMNS:
        raise ConfigError(f"there is no table {table!r}; there are {', '.join(COLUMNS)}")
    return tuple(column_of(table, name) for name in COLUMNS[table])


def column_of(table: str, name: str) -> Column:
    """Return a column, as it is in a table."""
    return _COLUMNS.get(f"{table}.{name}") or _COLUMNS[name]


def arrow_schema(table: str, *, without: Collection[str] = ()) -> "pa.Schema":
    """Return the columns of a table, except some, as Arrow has them."""
    import pyarrow as pa

    plain = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}

    def arrow(sql: str) -> pa.DataType:
        outer, _, inner = sql.removesuffix(">").partition("<")
        if outer == "array":
            return pa.list_(arrow(inner))
        if outer == "struct":
            return pa.struct([(name, arrow(kind)) for name, kind in (one.split(":") for one in inner.split(","))])
        return plain[outer]

    return pa.schema([(one.name, arrow(one.sql)) for one in columns_of(table) if one.name not in without])


def page() -> str:
    """Return the page of all tables and columns, in Markdown."""
    lines = [
        "# Columns of the pipeline's tables",
        "",
        "`kohort pipeline schema TABLE` prints these lines, with `--json` also the types of Spark SQL. An *instant* is a",
        "`bigint` in milliseconds since 1970 (UTC), a *duration* a `bigint` in milliseconds. `typed(frame, table)` of",
        "`kohort.pipeline` makes timestamps of instants. Written tables carry the descriptions as comments.",
    ]
    for table in COLUMNS:
        lines += ["", f"## {table}", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{one.name}` | {_shown(one.kind)} | {one.comment} |" for one in columns_of(table)]
    return "\n".join(lines) + "\n"


def _shown(kind: str) -> str:
    return kind if kind in _SQL else f"`{kind}`"
