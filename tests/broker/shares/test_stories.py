"""
Members of share groups are answered what Apache Kafka 4.4.0 answered them.

`BETTER` has what Kohort does on purpose in another way; docs/unsupported.md lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.broker.shares.player import SharePlayer
from tests.share.stories import Step, story

STORIES = (
    "fetch-and-accept",
    "fetch-version-1",
    "release-until-archived",
    "reject-gap-and-types",
    "partial-and-wrong-acknowledgements",
    "acknowledge-over-start-offset-with-nothing-in-flight",
    "acknowledge-batches-checked",
    "lock-timeout",
    "lock-timeout-exhausts",
    "renewal",
    "renewal-disabled",
    "record-limit",
    "batch-optimized",
    "odd-limits",
    "in-flight-limit",
    "session-epoch-raised-under-a-waiting-fetch",
    "throttled-delivery",
    "delivery-limit-changed",
    "read-committed",
    "open-transaction-holds-back",
    "reset-strategies",
    "latest-skips-when-session-is-lost",
    "session-epochs",
    "close-releases",
    "connection-lost",
    "unknown-topic-id",
    "unknown-partition",
    "not-a-member",
    "duplicates-in-a-request",
    "waiting",
    "two-members",
    "rotation",
    "piggyback",
    "log-start-moves",
    "session-limit",
    "restart-forgets-locks",
    "restart-stopped-cleanly",
    "archiving-state-loaded",
    "dead-letters",
    "dead-letters-with-records",
    "dead-letters-refused",
    "dead-letters-without-auto-creation",
    "dead-letter-topic-deleted",
    "compaction-gaps",
    "leader-moves",
    "coordinator-elsewhere",
    "load-after-restart",
    "unsupported-versions",
)


Change = Callable[[Step], None]


def partition_of(step: Step) -> dict[str, Any]:
    """The only partition of an answer."""
    found: dict[str, Any] = step["response"]["responses"][0]["partitions"][0]
    return found


def ranges(*wanted: tuple[int, int, int]) -> list[dict[str, int]]:
    """Acquired offsets, and their numbers of deliveries."""
    return [{"firstOffset": first, "lastOffset": last, "deliveryCount": count} for first, last, count in wanted]


def acquired(*wanted: tuple[int, int, int]) -> Change:
    """Other offsets are acquired."""

    def change(step: Step) -> None:
        partition_of(step)["acquiredRecords"] = ranges(*wanted)

    return change


def answered(topic: str, ms: int = 30_000, **fields: Any) -> Change:
    """Another answer, for one partition of a topic."""

    def change(step: Step) -> None:
        kind = step["api"]
        known: dict[str, Any] = {"partitionIndex": 0, "errorCode": 0, "errorMessage": None}
        known["currentLeader"] = {"leaderId": 0, "leaderEpoch": 0}
        if kind == "ShareFetch":
            known |= {"acknowledgeErrorCode": 0, "acknowledgeErrorMessage": None, "records": [], "acquiredRecords": []}
        step["response"] = {
            "throttleTimeMs": 0,
            "errorCode": 0,
            "errorMessage": None,
            "acquisitionLockTimeoutMs": ms,
            "responses": [{"topicId": f"$topic:{topic}", "partitions": [known | fields]}],
            "nodeEndpoints": [],
        }

    return change


def moved(leader: int, epoch: int, *, port: int | str) -> Change:
    """The partition has another leader, and the client is told at once."""
    tell = answered("moves", errorCode=6, currentLeader={"leaderId": leader, "leaderEpoch": epoch})

    def change(step: Step) -> None:
        tell(step)
        step["response"]["nodeEndpoints"] = [{"nodeId": leader, "host": "localhost", "port": port, "rack": None}]
        if step["kind"] == "receive":
            step["about_ms"] = 1_300

    return change


def batches(*offsets: tuple[int, int, list[str]]) -> list[dict[str, Any]]:
    """Batches of records without keys; an offset without a value is a marker."""
    return [
        {
            "baseOffset": first,
            "lastOffset": last,
            "records": [{"offset": offset, "key": None, "value": value} for offset, value in enumerate(values, first)]
            or [{"offset": first}],
        }
        for first, last, values in offsets
    ]


def after_ms(waited_ms: int) -> Change:
    """A request that waits is answered after another time."""

    def change(step: Step) -> None:
        step["about_ms"] = waited_ms

    return change


def followed_by_marker(offset: int) -> Change:
    """The marker of the transaction is in the answer, too."""

    def change(step: Step) -> None:
        partition = partition_of(step)
        partition["records"] += batches((offset, offset, []))
        partition["acquiredRecords"][-1]["lastOffset"] = offset

    return change


def without_marker(step: Step) -> None:
    """The marker was delivered before, so the first batch that is read is one of the aborted transaction."""
    partition = partition_of(step)
    del partition["records"][:2]
    del partition["acquiredRecords"][0]
    step["variable"] = []


def offset_is(start: int, lag: int) -> Change:
    """Another start offset is described."""

    def change(step: Step) -> None:
        partition = step["response"]["groups"][0]["topics"][0]["partitions"][0]
        partition |= {"startOffset": start, "lag": lag}

    return change


def passed_over(step: Step) -> None:
    """Records that the share coordinator writes by itself are compared where it is tested."""
    step["kind"] = "note"


def one_update(step: Step) -> None:
    """Neighbouring records whose locks end at the same time, or whose letters are written together, are written once."""
    first, *rest = step["batches"][-2:]
    value, last = first[0]["value"], rest[0][0]["value"]
    value["deliveryCompleteCount"] = last["deliveryCompleteCount"] + last["startOffset"] - value["startOffset"]
    first[0]["value"]["stateBatches"][-1]["lastOffset"] = rest[0][0]["value"]["stateBatches"][-1]["lastOffset"]
    del step["batches"][-1]


NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."

BETTER: dict[str, dict[int, Change]] = {
    # Kafka: a null pointer, UNKNOWN_SERVER_ERROR for the whole request.
    "acknowledge-over-start-offset-with-nothing-in-flight": {
        10: answered("ack-npe", errorCode=121, errorMessage=NOT_FOUND),
        11: answered("ack-npe", acknowledgeErrorCode=121, acknowledgeErrorMessage=NOT_FOUND),
    },
    "lock-timeout": {13: one_update},
    # Kafka: an empty range first.
    "odd-limits": {9: acquired((0, 3, 1)), 10: acquired((4, 7, 1))},
    # Kafka: what was acquired for an answer that nobody gets stays locked.
    "session-epoch-raised-under-a-waiting-fetch": {
        11: after_ms(300),
        12: answered("raised", ms=1500, records=batches((2, 2, ["b"])), acquiredRecords=ranges((2, 2, 1))),
        13: acquired((1, 1, 2), (2, 2, 2)),
    },
    # Kafka: a released record is noticed when the wait is over.
    "waiting": {17: after_ms(200)},
    "connection-lost": {9: after_ms(200)},
    # Kafka wakes the request before the marker can be read.
    "open-transaction-holds-back": {14: followed_by_marker(3)},
    "read-committed": {16: followed_by_marker(2), 23: without_marker},
    # Kafka: a start offset that the reset has chosen is written with the first acknowledgement.
    "latest-skips-when-session-is-lost": {
        6: offset_is(0, lag=0),
        9: answered("skips", records=batches((0, 0, ["lost"])), acquiredRecords=ranges((0, 0, 1))),
        13: offset_is(0, lag=2),
        14: answered("skips", records=batches((0, 0, ["lost"]), (1, 1, ["seen"])), acquiredRecords=ranges((0, 1, 2))),
        15: offset_is(0, lag=2),
    },
    # Kafka: UNKNOWN_SERVER_ERROR for the whole request; the session is not opened.
    "duplicates-in-a-request": {
        7: answered("dup", records=batches((0, 3, ["a0", "a1", "a2", "a3"])), acquiredRecords=ranges((0, 3, 1))),
        8: answered("dup"),
    },
    "dead-letters": {14: one_update},
    # Kafka: UNKNOWN_TOPIC_OR_PARTITION of an acknowledgement, and a request that waits is not told.
    "leader-moves": {
        16: moved(2, 1, port=9093),
        17: moved(2, 1, port=9093),
        18: moved(2, 1, port=9093),
        19: moved(2, 1, port=9093),
        29: moved(1, 2, port="$port"),
    },
    "dead-letters-without-auto-creation": {10: passed_over},
    # Kafka: deleted records are acquired, from the base offset of their batch on.
    "log-start-moves": {11: acquired((6, 7, 1))},
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str) -> None:
    SharePlayer(name, better=BETTER.get(name)).play(deepcopy(story(name)))
