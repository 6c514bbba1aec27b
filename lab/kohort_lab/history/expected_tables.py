"""
The expected rows of the pipeline's tables for a history, computed record by record in the simplest correct way.

Groups and producers keep the rows of their events (rebalances, memberships, transactions); these are exact unless the log was
compacted. Rows that follow from records alone (commits, offsets, lag) are computed from the remaining records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort_lab.history.history import History
from kohort_lab.history.logs import COMMIT, Batch, Log

Row = dict[str, Any]
Partition = tuple[str, int]
Key = tuple[str, str, int]

_OWNED = ("group", "group_type", "topic", "topic_id", "subtopology", "partition")
_COMMITTING = ("classic", "consumer")
_COMMITTED = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_timestamp_ms")


@dataclass(frozen=True, slots=True)
class ExpectedTables:
    """
    The rows of a history's tables.

    Attributes:
        at_ms: the time of the tables, not before the end of the history.
    """

    history: History
    at_ms: int

    def offset_commits(self) -> list[Row]:
        log = self.history.world.log(CONSUMER_OFFSETS)
        rows: list[Row] = []
        pending: dict[int, list[Row]] = {}
        for batch in log.batches:
            if batch.marker is not None:
                for row in pending.pop(batch.producer_id, ()):
                    row["fate"] = "committed" if batch.marker == COMMIT else "aborted"
                    row["visible_at_ms"] = batch.at_ms if batch.marker == COMMIT else None
                continue
            for offset, record in batch.records.items():
                if "offset" not in record.facts:
                    continue
                row = record.facts | {"log_partition": log.partition, "log_offset": offset}
                row |= {"fate": "plain", "visible_at_ms": batch.at_ms}
                if batch.transactional:
                    row |= {"fate": "pending", "visible_at_ms": None}
                    pending.setdefault(batch.producer_id, []).append(row)
                rows.append(row)
        return rows

    def counting(self) -> list[Row]:
        """The committed offsets and tombstones that took effect, in the order of the log."""
        return [row for row in self.offset_commits() if row["fate"] in ("plain", "committed")]

    def offsets(self) -> list[Row]:
        last = {_key(row): row for row in self.counting()}
        return [{name: row[name] for name in _COMMITTED} for row in last.values() if not row["tombstone"]]

    def uncommitted(self) -> list[Row]:
        """The partitions that a member owns, and of which its group has no committed offset."""
        committed = {_key(row) for row in self.offsets()}
        owned = (row for row in self.assignments() if row["until_ms"] is None and row["group_type"] in _COMMITTING)
        keys = {_key(row) for row in owned if row["topic"] is not None} - committed
        return [dict.fromkeys(_COMMITTED) | dict(zip(_COMMITTED, key, strict=False)) for key in keys]

    def lag(self) -> list[Row]:
        rows = []
        for row in self.offsets():
            end = self._log(row).next_offset
            rows.append(
                row | {"end_offset": end, "lag": max(end - row["offset"], 0), "is_beyond_end": end < row["offset"]}
            )
        unknown = {"lag": None, "is_beyond_end": None}
        return rows + [row | {"end_offset": self._log(row).next_offset} | unknown for row in self.uncommitted()]

    def time_lag(self) -> list[Row]:
        rows = []
        for row in self.lag():
            batches = [batch for batch in self._log(row).batches if batch.at_ms <= self.at_ms]
            unread = [batch for batch in _waiting(batches) if batch.last_offset >= (row["offset"] or 0)]
            told: Row = dict.fromkeys(("next_produced_at_ms", "time_lag_ms", "records_lost"))
            if batches or not self._log(row).batches:
                first = _produced_ms(unread[0], row["offset"] or 0) if unread else None
                told["next_produced_at_ms"] = first
                begin = batches[0].base_offset if batches else row["end_offset"]
                if row["offset"] is not None:
                    told["time_lag_ms"] = 0 if first is None else self.at_ms - first
                    told["records_lost"] = max(begin - row["offset"], 0)
            rows.append(row | told)
        return rows

    def lag_over_time(self) -> list[Row]:
        rows = []
        for group in sorted({row["group"] for row in self.counting()}):
            steps = [list(self.partition_lag(key)) for key in self._partitions(group)]
            for at_ms in sorted({at for one in steps for at, _ in one}):
                lags = [[lag for at, lag in one if at <= at_ms][-1:] for one in steps]
                rows.append({"group": group, "timestamp_ms": at_ms, "lag": sum(lag[0] for lag in lags if lag)})
        return rows

    def partition_lag(self, key: Key) -> Iterator[tuple[int, int]]:
        """The timestamp and the lag after each event of a partition, from its first commit on."""
        offset: int | None = None
        has_begun, end, last_order = False, 0, -1
        for at_ms, order, is_commit, value in self.events(key):
            if is_commit:
                # A transaction can complete after a later commit took effect.
                offset, has_begun = value if order > last_order else offset, True
                last_order = max(order, last_order)
            else:
                end = max(end, value or 0)
            if has_begun:
                yield at_ms, 0 if offset is None else max(end - offset, 0)

    def events(self, key: Key) -> list[tuple[int, int, bool, int | None]]:
        """
        Produced batches and commits of a partition: timestamp, offset in the coordinator's log (-1 for a produced batch, which
        comes first), whether it is a commit, and the end offset or the committed offset (None for a tombstone).
        """
        commits = [
            (row["visible_at_ms"], row["log_offset"], True, row["offset"])
            for row in self.counting()
            if _key(row) == key
        ]
        log = self._log_of(key)
        produced = [(batch.at_ms, -1, False, batch.last_offset + 1) for batch in log.batches]
        return sorted([*commits, *produced], key=lambda one: (one[0], one[1], one[3] or 0))

    def time_lag_over_time(self, points: int = 300) -> list[Row]:
        rows = []
        for group in sorted({row["group"] for row in self.counting()}):
            waits = [self._waits(key) for key in self._partitions(group)]
            if not waits:
                continue
            first = min(at for one in waits for at in one)
            last = max(max(at, one[at] or 0) for one in waits for at in [max(one)])
            parts = min(points - 1, last - first)
            ends = [first + (last - first) * part // max(parts, 1) for part in range(parts + 1)]
            was = None
            for before, at in zip([first - 1, *ends], ends, strict=False):
                since = min((one for one in _waiting_at(waits, at) if one <= at), default=None)
                lag = 0 if since is None else at - since
                drops = {one for moves in waits for one in moves if before < one <= at}
                peaks = (drop - one for drop in drops for one in _waiting_at(waits, drop - 1))
                peak = max(lag, *peaks, 0)
                if at in (first, last) or since != was or peak > lag:
                    told = {"waiting_since_ms": since, "time_lag_ms": lag, "time_lag_max_ms": peak}
                    rows.append({"group": group, "timestamp_ms": at} | told)
                was = since
        return rows

    def _waits(self, key: Key) -> dict[int, int | None]:
        """When the oldest unread record of a partition was produced, from each instant on at which its offset changed."""
        unread = _waiting([batch for batch in self._log_of(key).batches if batch.at_ms <= self.at_ms])
        waits: dict[int, int | None] = {}
        offset: int | None = -1
        last_order = -1
        for at_ms, order, is_commit, value in self.events(key):
            if is_commit and order > last_order:
                last_order = order
                if value != offset:
                    offset = value
                    ahead = [] if offset is None else [one for one in unread if one.last_offset >= offset]
                    waits[at_ms] = _produced_ms(ahead[0], offset or 0) if ahead else None
        return waits

    def commit_frequency(self) -> list[Row]:
        rows = []
        for group in sorted({row["group"] for row in self.counting()}):
            for key in self._partitions(group, is_known=False):
                told = [row for row in self.counting() if _key(row) == key and not row["tombstone"]]
                if told:
                    rows.append(_frequency(key, told))
        return rows

    def rebalances(self) -> list[Row]:
        return [row for group in self.history.groups for row in group.changes]

    def members(self) -> list[Row]:
        return [row for group in self.history.groups for row in group.memberships]

    def assignments(self) -> list[Row]:
        return [row for group in self.history.groups for row in group.owned]

    def partition_flapping(self) -> list[Row]:
        rows = []
        names = {(row["group"], row["member_id"]): row["instance_id"] for row in self.members() if row["instance_id"]}
        for key, memberships in _by_partition(self.assignments()):
            if key[1] == "share":
                continue
            owners = [names.get((stay["group"], stay["member_id"]), stay["member_id"]) for stay in memberships]
            moves = [at for at in range(1, len(owners)) if owners[at] != owners[at - 1]]
            held = sorted(stay["until_ms"] - stay["since_ms"] for stay in memberships if stay["until_ms"] is not None)
            rows.append(
                _placed(key)
                | {"stays": len(memberships), "owners": len(set(owners)), "moves": len(moves)}
                | {
                    "returns": sum(owners[at] in owners[:at] for at in moves),
                    "first_since_ms": memberships[0]["since_ms"],
                }
                | {"held_p50_ms": _percentile(held, 0.5), "held_min_ms": held[0] if held else None}
            )
        return rows

    def time_without_owner(self) -> list[Row]:
        rows = []
        for key, memberships in _by_partition(self.assignments()):
            until: int | None = memberships[0]["since_ms"]
            for stay in [*memberships, None]:
                if until is not None and (stay is None or stay["since_ms"] > until):
                    end = None if stay is None else stay["since_ms"]
                    row = {"since_ms": until, "until_ms": end, "unowned_ms": (end or max(self.at_ms, until)) - until}
                    rows.append(_placed(key) | row)
                if stay is not None and until is not None:
                    until = None if stay["until_ms"] is None else max(until, stay["until_ms"])
        return rows

    def share_state(self) -> list[Row]:
        logs = self.history.world.logs
        found = [one.row(end_offset=logs[one.topic, one.partition].next_offset) for one in self.history.shares]
        return [row for row in found if row is not None]

    def transactions(self) -> list[Row]:
        return [row for producer in self.history.producers for row in producer.transactions]

    def open_transactions(self) -> list[Row]:
        return [
            {
                name: row[name]
                for name in ("transactional_id", "producer_id", "producer_epoch", "state", "start_ms", "timeout_ms")
            }
            | {"producer_epoch": row["producer_epoch"] if self._tells_epoch(row) else None}
            | topic_partition
            | {"age_ms": self.at_ms - row["start_ms"], "is_overdue": self.at_ms - row["start_ms"] > row["timeout_ms"]}
            for row in self.transactions()
            if not row["state"].startswith("Complete")
            for topic_partition in row["partitions"]
        ]

    def _tells_epoch(self, row: Row) -> bool:
        """Whether the records tell the epoch of a transaction; an abort alone may be a fence with a raised epoch."""
        log = self.history.world.log(TRANSACTION_STATE)
        left = {offset: record.key for batch in log.batches for offset, record in batch.records.items()}
        last = row["last_log_offset"]
        is_begun = any(left.get(offset) == left[last] for offset in range(row["first_log_offset"], last))
        return is_begun or row["state"] != "PrepareAbort" or row["transaction_version"] >= 2

    def transaction_statistics(self) -> list[Row]:
        return [_statistics(one.transactions) for one in self.history.producers if one.transactions]

    def blocking_transactions(self) -> list[Row]:
        rows = []
        for producer in self.history.producers:
            row = producer.transactions[-1] if producer.transactions else None
            is_over = row is None or row["state"].startswith("Complete")
            tracked = [] if is_over or row is None else [(one["topic"], one["partition"]) for one in row["partitions"]]
            for (topic, partition), told in producer.open_in.items():
                log = self.history.world.logs[topic, partition]
                duration_ms = self.at_ms - told["start_ms"]
                verdict = "long" if duration_ms > 15 * 60_000 else "ongoing"
                rows.append(
                    {"topic": topic, "partition": partition, "producer_id": producer.producer_id, **told}
                    | {"transactional_id": None if row is None else producer.transactional_id}
                    | {"duration_ms": duration_ms, "blocked_records": log.next_offset - log.last_stable_offset()}
                    | {"verdict": verdict if (topic, partition) in tracked else "hanging"}
                )
        return rows

    def damage(self) -> list[Row]:
        if self.history.torn is None:
            return []
        position, size = self.history.torn
        return [{"log_partition": self.history.partition, "position": position, "size_bytes": size}]

    def _log(self, row: Row) -> Log:
        return self._log_of(_key(row))

    def _log_of(self, key: Key) -> Log:
        return self.history.world.logs[key[1], key[2]]

    def _partitions(self, group: str, *, is_known: bool = True) -> list[Key]:
        """The partitions of a group, with `is_known` only those whose log has batches."""
        keys = sorted({_key(row) for row in self.counting() if row["group"] == group})
        return [key for key in keys if not is_known or self._log_of(key).batches]


def _key(row: Row) -> Key:
    return row["group"], row["topic"], row["partition"]


def _waiting(batches: list[Batch]) -> list[Batch]:
    """The batches that a consumer waits for: no markers, and no aborted records."""
    pending: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for batch in batches:
        if batch.marker is not None:
            ended = pending.pop(batch.producer_id, [])
            aborted.update(() if batch.marker == COMMIT else ended)
        elif batch.transactional:
            pending.setdefault(batch.producer_id, []).append(batch.base_offset)
    return [batch for batch in batches if batch.marker is None and batch.base_offset not in aborted]


def _waiting_at(waits: Iterable[dict[int, int | None]], at_ms: int) -> Iterator[int]:
    """Yield when the oldest unread record of each partition was produced, of those that have one at an instant."""
    for moves in waits:
        since = [moves[at] for at in sorted(moves) if at <= at_ms][-1:]
        yield from (one for one in since if one is not None)


def _produced_ms(batch: Batch, offset: int) -> int:
    """The timestamp of the first unread record by batch headers: of the batch's first record, or of its last one."""
    return batch.began_ms if offset <= batch.base_offset else batch.at_ms


def _frequency(key: Key, told: list[Row]) -> Row:
    moments = sorted(row["visible_at_ms"] for row in told)
    intervals = sorted(after - before for before, after in pairwise(moments))
    moves = [after["offset"] - before["offset"] for before, after in pairwise(told)]
    return {
        **dict(zip(("group", "topic", "partition"), key, strict=True)),
        "commits": len(told),
        "first_commit_ms": min(row["visible_at_ms"] for row in told),
        "last_commit_ms": max(row["visible_at_ms"] for row in told),
        "interval_p50_ms": _percentile(intervals, 0.5),
        "interval_max_ms": intervals[-1] if intervals else None,
        "unmoved": moves.count(0),
        "rewinds": sum(move < 0 for move in moves),
    }


def _statistics(told: list[Row]) -> Row:
    counts = {name: sum(row["outcome"] == name for row in told) for name in ("committed", "aborted", "open")}
    ended = counts["committed"] + counts["aborted"]
    took = sorted(row["duration_ms"] for row in told if row["duration_ms"] is not None)
    return {
        "transactional_id": told[0]["transactional_id"],
        "transactions": len(told),
        **counts,
        "timed_out": sum(row["ended_by"] == "timeout" for row in told),
        "fenced": sum(row["ended_by"] == "fence" for row in told),
        "abort_rate": counts["aborted"] / ended if ended else None,
        **{f"duration_p{share}_ms": _percentile(took, share / 100) for share in (50, 95, 99)},
        "duration_max_ms": took[-1] if took else None,
        "producer_ids": 1,
    }


def _percentile(ordered: list[int], share: float) -> int | None:
    """The smallest value that at least this share of all does not exceed."""
    if not ordered:
        return None
    rank = next(at for at in range(1, len(ordered) + 1) if at >= share * len(ordered))
    return ordered[rank - 1]


def _by_partition(memberships: Iterable[Row]) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(memberships, key=lambda row: (row["since_ms"], row["first_log_offset"])):
        # A member with a standby copy of a task does not own it.
        if row["role"] in (None, "active"):
            found.setdefault(tuple(row[name] for name in _OWNED), []).append(row)
    yield from found.items()


def _placed(key: tuple[Any, ...]) -> Row:
    return dict(zip(_OWNED, key, strict=True))


def ends(log: Log, at_ms: int) -> int | None:
    """The end offset of a log at a time; None if the log was empty."""
    found: list[Batch] = [batch for batch in log.batches if batch.at_ms <= at_ms]
    return found[-1].last_offset + 1 if found else None
