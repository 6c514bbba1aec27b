"""The exporter: polls a source, and keeps the metrics of the last poll for scrapes."""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kohort.client.security import PLAINTEXT, Security
from kohort.model.ids import INTERNAL_TOPICS, TRANSACTION_STATE, TopicPartition
from kohort.model.limits import EXPORTED_PARTITIONS_MAX
from kohort.pipeline.checkpoints.named import Named
from kohort.pipeline.exporter.commits import Committed, GroupPartition
from kohort.pipeline.exporter.definitions import SCHEMES
from kohort.pipeline.exporter.directory import Directory
from kohort.pipeline.exporter.follower import Cluster
from kohort.pipeline.exporter.memberships import GroupState
from kohort.pipeline.exporter.metrics import PartitionLag, Snapshot, families
from kohort.pipeline.exporter.queries import Queries
from kohort.pipeline.exporter.shares import SharePartition
from kohort.pipeline.exporter.source import FAILURES, Source
from kohort.pipeline.exporter.state import TOPICS, CoordinatorState, decoder
from kohort.pipeline.exporter.store import Store
from kohort.pipeline.exporter.waiting import Waiting, WaitingRecords
from kohort.pipeline.sources.instants import Read, end_of_source, newest_reads
from kohort.pipeline.sources.live import LiveLog, is_live
from kohort.pipeline.sources.positions import gaps, is_complete
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.tables.burrow.evaluator import EXPIRE_MS, INTERVALS, Status, evaluate
from kohort.pipeline.tables.burrow.verdicts import PartitionFacts, Verdict, is_rising, is_subscribed, judge
from kohort.pipeline.tables.groups.group_history import CLASSIC, CONSUMER

INTERVAL_S = 10.0
HANGING_GRACE_MS = 60_000
_KNOWN_LAGS_MIN = 2
"""Lags in the window below which Burrow's WARN is no verdict: after the start of the exporter they are unknown."""


class Exporter(Collector):
    """
    The metrics of one cluster. `poll` and `run` belong to one thread; scrapes may come from any.

    Attributes:
        snapshot: the result of the last poll; None before the first one.
    """

    def __init__(
        self,
        source: str,
        security: Security = PLAINTEXT,
        *,
        cluster_name: str | None = None,
        schemes: Collection[str] = SCHEMES,
        checkpoints: Collection[Named] = (),
    ) -> None:
        """
        Args:
            source: `kafka://HOST:PORT`, several brokers separated by commas, the data directory of a broker, or a store.
            cluster_name: the value of labels `cluster` and `cluster_name`; by default the id of the cluster.
            schemes: sets of names, of `definitions.SCHEMES`.
            checkpoints: of Spark queries, which are groups, too.
        """
        self.snapshot: Snapshot | None = None
        self._is_cluster = is_live(source)
        self._source = _source(source, security)
        self._cluster_name = cluster_name
        self._schemes = tuple(schemes)
        self._state = CoordinatorState()
        self._waiting = WaitingRecords()
        self._queries = Queries(checkpoints)
        self._ends: dict[tuple[str, int], deque[int]] = {}
        self._lags: dict[str, int] = {}
        self._subscribed: dict[str, frozenset[str] | None] = {}
        self._decoder = decoder()
        self._families: Sequence[Metric] = ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last poll."""
        return self._families

    def close(self) -> None:
        self._source.close()

    def run(self, stopped: threading.Event, interval_s: float = INTERVAL_S) -> None:
        """Poll until an event is set. A poll that fails as a whole is repeated after the interval."""
        while not stopped.is_set():
            begun_s = time.monotonic()
            self.poll()
            stopped.wait(max(0.0, begun_s + interval_s - time.monotonic()))

    def poll(self) -> Snapshot:
        """Read what is new, measure all lags, and make it the state of the next scrapes. Failures are among its problems."""
        begun_s = time.monotonic()
        self._source.begin()
        try:
            found = self._poll()
        except FAILURES as exc:
            self._source.failed(exc)
            before = self.snapshot or Snapshot(cluster=self._cluster_name or "", at_ms=0, polled_ms=0)
            found = replace(before, problems=tuple(self._source.problems))
        found = replace(found, took_s=time.monotonic() - begun_s)
        # The snapshot last: the endpoint keeps the text of a snapshot.
        self._families = list(families(found, self._schemes))
        self.snapshot = found
        return found

    def _poll(self) -> Snapshot:
        if self._cluster_name is None:
            self._cluster_name = self._source.cluster_id()
        before_ends = {place: ends[-1] for place, ends in self._ends.items()}
        self._follow(before_ends)
        self._source.problems += self._queries.poll(self._state.commits, before_ends)
        # Ends are read after the commits, so that no commit is beyond an end.
        logs = self._source.logs()
        polled_ms = int(time.time() * 1000)
        at_rest = self._source.at_rest()
        latest_ms = self._queries.latest_ms
        at_ms = polled_ms if at_rest is None else end_of_source(at_rest, self._reads(), latest_ms)
        stable_ends = self._source.stable_ends(logs)
        blocked = {place: end - stable_ends.get(place, end) for place, end in _ends(logs).items()}
        blocked = {place: records for place, records in blocked.items() if records > 0}
        opened = self._source.open_transactions([log for log in logs if (log.topic, log.partition) in blocked])
        # Without logs of topics, or those of all coordinators, nobody knows which transactions hang.
        has_topics = self._is_cluster or any(log.topic not in INTERNAL_TOPICS for log in logs)
        is_tracked = not opened or is_complete(log.partition for log in logs if log.topic == TRANSACTION_STATE)
        partitions = list(self._partitions(logs, stable_ends, at_ms))
        self._count_cost(partitions)
        groups = self._state.memberships.groups
        present = {one.key.group for one in partitions} | set(groups)
        counts = self._state.commits.counts
        for group in [group for group in counts if group not in present]:
            del counts[group]
        return Snapshot(
            cluster=self._cluster_name,
            at_ms=at_ms,
            polled_ms=polled_ms,
            logs=[log for log in logs if log.topic not in INTERNAL_TOPICS],
            partitions=partitions,
            groups=groups,
            commits=dict(counts),
            transactions=dict(self._state.transactions.open()),
            ended=dict(self._state.transactions.ended),
            hanging=list(self._state.transactions.hanging(opened, now_ms=at_ms, grace_ms=HANGING_GRACE_MS))
            if has_topics and is_tracked
            else None,
            missing=0 if self._is_cluster else _missing(logs),
            blocked=blocked,
            queries=self._queries.checkpoints,
            states={group: one.name for group, one in self._queries.states.items()},
            records=self._state.records,
            dropped=self._state.dropped + self._source.dropped,
            problems=tuple(self._source.problems),
        )

    def _follow(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Apply what was appended to the logs of the coordinators."""
        logs = self._source.logs(TOPICS)
        for piece in self._source.appended(logs, self._decoder):
            if piece.begins_again:
                self._state.forget(piece.log.topic, piece.log.partition)
            self._state.apply(piece.log.topic, piece.rows, ends)
        self._state.memberships.remove_deleted()

    def _reads(self) -> dict[tuple[str, int], Read]:
        """Return the greatest committed offset of each partition, see `sources.instants`."""
        found = self._state.commits.found.items()
        return newest_reads((key.topic, key.partition, one.offset, one.timestamp_ms) for key, one in found)

    def _partitions(
        self, logs: Collection[LiveLog], stable_ends: Mapping[tuple[str, int], int], at_ms: int
    ) -> Iterator[PartitionLag]:
        by_place = {(log.topic, log.partition): log for log in logs}
        self._subscribed = {}
        for place, end in _ends(logs).items():
            self._ends.setdefault(place, deque(maxlen=INTERVALS)).append(end)
        for place in [place for place in self._ends if place not in by_place]:
            del self._ends[place]
        behind = {
            Waiting(TopicPartition(key.topic, key.partition), one.offset)
            for key, one in self._state.commits.found.items()
            if (log := by_place.get((key.topic, key.partition))) is not None and one.offset < log.end
        }
        ids = {log.topic: log.topic_id for log in logs}
        uncommitted = self._uncommitted(logs)
        behind |= {Waiting(TopicPartition(*log.place), log.start) for _, _, log in uncommitted}
        shared = list(_shared(self._state.shares, logs))
        behind |= {Waiting(TopicPartition(log.topic, log.partition), one.start_offset) for one, log in shared}
        self._waiting.refresh(self._source, by_place, sorted(behind), stable_ends)
        self._judge_queries(by_place, at_ms)
        for share, log in shared:
            yield self._share_partition(share, log, at_ms)
        yield from self._unknown_shares({(one.topic_id, one.partition) for one, _ in shared})
        for key, one in self._state.commits.found.items():
            log = by_place.get((key.topic, key.partition))
            if log is not None:
                yield self._partition(key, one, log, ids.get(key.topic), at_ms)
            else:
                yield self._unknown(key, one.offset)
        for known, key, log in uncommitted:
            yield self._without_commit(known, key, log, ids.get(key.topic), at_ms)

    def _judge_queries(self, logs: Mapping[tuple[str, int], LiveLog], at_ms: int) -> None:
        rows: dict[str, list[dict[str, int | None]]] = {group: [] for group in self._queries.checkpoints}
        for key, one in self._state.commits.found.items():
            if key.group in rows:
                log, place = logs.get((key.topic, key.partition)), TopicPartition(key.topic, key.partition)
                waited_ms = lag = None
                if log is not None:
                    lag = max(log.end - one.offset, 0)
                    if not self._waiting.is_all_read(place, one.offset, end=log.end):
                        waited_ms = self._waiting.time_lag_ms(place, one.offset, end=log.end, at_ms=at_ms)
                produced_ms = None if waited_ms is None else at_ms - waited_ms
                rows[key.group].append({"lag": lag, "next_produced_at_ms": produced_ms})
        self._queries.judge(rows, at_ms)

    def _uncommitted(self, logs: Collection[LiveLog]) -> list[tuple[GroupState, GroupPartition, LiveLog]]:
        """Return the partitions that members own, and of which their groups have no committed offset."""
        by_owned = {(log.topic, log.partition): log for log in logs}
        by_owned |= {(log.topic_id, log.partition): log for log in logs if log.topic_id is not None}
        found = (
            (known, GroupPartition(group, log.topic, log.partition), log)
            for group, known in self._state.memberships.groups.items()
            if known.group_type in (CLASSIC, CONSUMER)
            for place in known.owners
            if (log := by_owned.get(place)) is not None
        )
        missing = (one for one in found if one[1] not in self._state.commits.found)
        return list(islice(missing, max(EXPORTED_PARTITIONS_MAX - len(self._state.commits.found), 0)))

    def _without_commit(
        self, known: GroupState, key: GroupPartition, log: LiveLog, topic_id: str | None, at_ms: int
    ) -> PartitionLag:
        stay = known.stays.get((key.topic, key.partition)) or known.stays.get((topic_id or "", key.partition))
        is_empty = self._waiting.is_all_read(TopicPartition(*log.place), log.start, end=log.end)
        facts = PartitionFacts(
            status=None,
            lag=None,
            end_offset=log.end,
            is_all_read=is_empty,
            owned_ms=None if stay is None else at_ms - stay[0],
            **self._of_group(key),
        )
        owner = self._owner(key, topic_id)
        return PartitionLag(key, None, None, None, judge(facts).name, Status.NOTFOUND, owner)

    def _partition(
        self, key: GroupPartition, one: Committed, log: LiveLog, topic_id: str | None, at_ms: int
    ) -> PartitionLag:
        lag = max(log.end - one.offset, 0)
        ends = self._ends[key.topic, key.partition]
        live = [commit for commit in one.window if at_ms - commit.timestamp_ms <= EXPIRE_MS]
        judged = partial(evaluate, live, current_lag=lag, now_ms=at_ms, ends=ends)
        return PartitionLag(
            key,
            one.offset,
            lag,
            self._waiting.time_lag_ms(TopicPartition(key.topic, key.partition), one.offset, end=log.end, at_ms=at_ms),
            self._verdict(key, one, log, judged(pause_ms=max(one.pauses_ms))).name,
            judged(),
            self._owner(key, topic_id),
        )

    def _share_partition(self, one: SharePartition, log: LiveLog, at_ms: int) -> PartitionLag:
        lag = max(log.end - one.start_offset - one.done, 0)
        group = self._state.memberships.groups.get(one.group)
        has_members = None if group is None else bool(group.members)
        verdict = judge(PartitionFacts(status=Status.OK.name, lag=lag, end_offset=log.end, has_members=has_members))
        place = TopicPartition(log.topic, log.partition)
        time_lag_ms = self._waiting.time_lag_ms(place, one.start_offset, end=log.end, at_ms=at_ms) if lag else 0
        key = GroupPartition(one.group, log.topic, log.partition)
        return PartitionLag(key, one.start_offset, lag, time_lag_ms, verdict.name, Status.OK)

    def _unknown_shares(self, known: Collection[tuple[str, int]]) -> Iterator[PartitionLag]:
        """Yield the partitions of share groups without a log, and those without a state."""
        shares, names = self._state.shares, self._state.shares.names
        for one in shares:
            if (one.topic_id, one.partition) not in known:
                key = GroupPartition(one.group, names.get(one.topic_id, one.topic_id), one.partition)
                yield self._unknown(key, one.start_offset)
        for place in shares.without_state():
            yield self._unknown(GroupPartition(place.group, place.topic, place.partition), None, has_state=False)

    def _unknown(self, key: GroupPartition, offset: int | None, *, has_state: bool = True) -> PartitionLag:
        facts = PartitionFacts(status=None, lag=None, offset=offset, has_state=has_state, **self._of_group(key))
        return PartitionLag(key, offset, None, None, judge(facts).name, Status.NOTFOUND)

    def _verdict(self, key: GroupPartition, one: Committed, log: LiveLog, basis: Status) -> Verdict:
        lags = [commit.lag for commit in one.window]
        is_known = sum(lag is not None for lag in lags) >= _KNOWN_LAGS_MIN
        burrow = Status.OK if basis is Status.WARN and not is_known else basis
        facts = PartitionFacts(
            status=None if burrow is Status.NOTFOUND else burrow.name,
            lag=max(log.end - one.offset, 0),
            offset=one.offset,
            end_offset=log.end,
            **self._of_group(key),
            is_rising=is_rising(lags),
            records_lost=max(log.start - one.offset, 0),
            is_all_read=self._waiting.is_all_read(TopicPartition(key.topic, key.partition), one.offset, end=log.end),
        )
        return judge(facts)

    def _of_group(self, key: GroupPartition) -> dict[str, Any]:
        """Return the facts about the members of a group and a topic, or about its query, for `PartitionFacts`."""
        if key.group in self._queries.checkpoints:
            return self._queries.facts(key.group)
        group = self._state.memberships.groups.get(key.group)
        if group is None:
            return {}
        if key.group not in self._subscribed:
            self._subscribed[key.group] = group.history.subscribed
        subscribed = self._subscribed[key.group]
        return {"has_members": bool(group.members), "is_subscribed": is_subscribed(subscribed, key.topic)}

    def _owner(self, key: GroupPartition, topic_id: str | None) -> tuple[str, str, str]:
        group = self._state.memberships.groups.get(key.group)
        if group is None:
            return "", "", ""
        owner = group.owners.get((key.topic, key.partition))
        if owner is None and topic_id is not None:
            owner = group.owners.get((topic_id, key.partition))
        member = None if owner is None else group.members.get(owner)
        if owner is None or member is None:
            return "", "", ""
        return str(member.names["client_host"]), owner, str(member.names["client_id"])

    def _count_cost(self, partitions: Iterable[PartitionLag]) -> None:
        """Add the growth of the lag since the last poll to the groups that had a rebalance since."""
        before, self._lags = self._lags, {}
        for one in partitions:
            self._lags[one.key.group] = self._lags.get(one.key.group, 0) + (one.lag or 0)
        for group in self._state.memberships.take_rebalanced():
            known = self._state.memberships.groups.get(group)
            if known is not None and group in before:
                known.ended.lag_cost += max(self._lags.get(group, 0) - before[group], 0)


def _missing(logs: Iterable[LiveLog]) -> int:
    """Return how many logs of coordinators a directory lacks, as far as their numbers tell."""
    return sum(len(gaps(log.partition for log in logs if log.topic == topic)) for topic in TOPICS)


def _shared(shares: Iterable[SharePartition], logs: Iterable[LiveLog]) -> Iterator[tuple[SharePartition, LiveLog]]:
    """Yield the partitions of share groups whose log exists."""
    by_id = {(log.topic_id, log.partition): log for log in logs}
    for one in shares:
        log = by_id.get((one.topic_id, one.partition))
        if log is not None:
            yield one, log


def _ends(logs: Iterable[LiveLog]) -> dict[tuple[str, int], int]:
    return {(log.topic, log.partition): log.end for log in logs}


def _source(source: str, security: Security) -> Source:
    if is_live(source):
        return Cluster(source, security)
    return Store(source) if is_database(source) else Directory(source)
