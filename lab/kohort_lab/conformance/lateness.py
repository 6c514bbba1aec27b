"""
Which differences a late machine may have caused.

The lateness of a step is the time by which the step, and the probe before it, exceed their planned duration, on either side. A
step is late if its lateness is more than `LATE_MS`. The broker's timers run on while the machine is late, so a timer may expire
before the request that should have arrived first. Such a difference is doubtful, and the scenario is run again:

- The time of an answer (`TIMING`) is doubtful on any machine, because network threads may overtake each other.
- The content of an answer is doubtful only if a step was late by the time of the answer, and the scenario has started a timer
  that can change answers of this API (`TIMERS`). The same holds for the records of the coordinators.
- Every other difference counts at once, even on a late machine.
"""

from collections.abc import Mapping

from kohort_lab.conformance.brokers.coordinator_log import UNREADABLE
from kohort_lab.conformance.compare import RECORDS, TIMING, TRANSACTIONS, Difference
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.script import Step

LATE_MS = 100
"""The shortest timeout in a scenario is 200 ms."""

_GROUP_APIS = frozenset(
    {
        *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete"),
        *("DescribeGroups", "ListGroups", "DeleteGroups", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
        *("ShareGroupHeartbeat", "ShareGroupDescribe"),
    }
)
_LOG_APIS = frozenset({"Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"})
_TRANSACTION_APIS = frozenset(
    {
        *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "Produce"),
        *("DescribeTransactions", "ListTransactions", "DescribeProducers", "OffsetFetch"),
    }
)

TIMERS: Mapping[str, frozenset[str]] = {
    "JoinGroup": _GROUP_APIS | {RECORDS},
    "ConsumerGroupHeartbeat": _GROUP_APIS | {RECORDS},
    "ShareGroupHeartbeat": _GROUP_APIS | {RECORDS},
    "Produce": _LOG_APIS,
    "Fetch": frozenset({"Fetch"}),
    "InitProducerId": _TRANSACTION_APIS | _LOG_APIS | {RECORDS, TRANSACTIONS},
}
"""
Timers that a request starts: by its API, the APIs whose answers then change with time.

JoinGroup starts the initial delay, the rebalance timeout and the session timeout. ConsumerGroupHeartbeat starts the session
timeout, a short rebalance timeout if it has one, and the interval between assignments. ShareGroupHeartbeat starts the session
timeout and the initialization of states. Produce with acks other than all is
answered before the records are below the high watermark. A fetch with a wait time is answered when that has passed.
InitProducerId with a short timeout lets transactions expire.
"""

_SHORT_TIMEOUT_MS = 30_000
"""A shorter timeout of a transaction can pass within a scenario."""


def is_doubtful(scenario: Scenario, difference: Difference, lateness_ms: Mapping[str, int]) -> bool:
    """
    Whether the machine may have caused a difference.

    Args:
        lateness_ms: by label of a step, and by `RECORDS` the time that it took to learn where the records of the scenario end;
            a step that is not there was in time.
    """
    if difference.reason or difference.field.startswith(UNREADABLE):
        return False
    if difference.field in TIMING:
        return True
    affected: set[str] = set()
    is_late = False
    for step in scenario.steps:
        affected |= _affected_by(step)
        is_late = is_late or lateness_ms.get(step.label, 0) > LATE_MS
        if step.label == (difference.answered or difference.step):
            break
    if difference.step in (RECORDS, TRANSACTIONS):
        is_late = is_late or lateness_ms.get(RECORDS, 0) > LATE_MS
    return is_late and (difference.api or difference.step) in affected


def is_late(lateness_ms: Mapping[str, int]) -> bool:
    """Whether any step was late."""
    return max(lateness_ms.values(), default=0) > LATE_MS


def _affected_by(step: Step) -> frozenset[str]:
    if step.send == "Produce" and step.fields.get("acks") == -1:
        return frozenset()
    if step.send == "Fetch" and not step.fields.get("max_wait_ms"):
        return frozenset()
    if step.send == "InitProducerId" and not _is_short(step.fields.get("transaction_timeout_ms")):
        return frozenset()
    return TIMERS.get(step.send or "", frozenset())


def _is_short(timeout_ms: object) -> bool:
    return isinstance(timeout_ms, int) and timeout_ms < _SHORT_TIMEOUT_MS
