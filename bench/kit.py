"""
Times of the testing kit: from the start of a broker to its first answer, as a process and in this one, and the way back to a
snapshot with 100 groups and 10 MB of records.

    python -m bench.kit [ROUNDS]
"""

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Final

from kohort.client import Client, Versions
from kohort.testing import Broker
from kohort.wire import messages
from kohort.wire.apis import ApiKey

GROUPS: Final = 100
RECORDS: Final = 100
RECORD_BYTES: Final = 100_000
REQUEST_RECORDS: Final = 5
ROUNDS: Final = 10


def first_answer(*, in_process: bool = False) -> float:
    """Seconds until a broker has answered a client."""
    began = perf_counter()
    with Broker(in_process=in_process) as broker, Client(broker.bootstrap) as client:
        client.brokers()
        return perf_counter() - began


def fill(broker: Broker) -> None:
    """Groups with a committed offset, and records."""
    broker.create_topic("orders")
    for _ in range(RECORDS // REQUEST_RECORDS):
        broker.write("orders", *("x" * RECORD_BYTES for _ in range(REQUEST_RECORDS)))
    partition = messages.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = messages.OffsetCommitRequestTopic(name="orders", partitions=(partition,))
    with Client(broker.bootstrap) as client:
        for number in range(GROUPS):
            request = messages.OffsetCommitRequest(group_id=f"group-{number}", topics=(topic,))
            answer = client.send(ApiKey.OFFSET_COMMIT, request, within=Versions(2, 9))
            assert answer.topics[0].partitions[0].error_code == 0


def restore(broker: Broker) -> Callable[[], float]:
    """A function that goes back to a snapshot and returns the seconds."""
    state = broker.snapshot()

    def run() -> float:
        began = perf_counter()
        broker.restore(state)
        return perf_counter() - began

    return run


def show(what: str, run: Callable[[], float], rounds: int) -> None:
    """Print the median and the range of some rounds."""
    found = sorted(1_000 * run() for _ in range(rounds))
    print(f"{what:60} {median(found):7.1f} ms ({found[0]:.1f} to {found[-1]:.1f})", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    show("start to first answer, a process of its own", first_answer, rounds)
    show("start to first answer, in this process, the first", lambda: first_answer(in_process=True), 1)
    show("start to first answer, in this process, later ones", lambda: first_answer(in_process=True), rounds)
    with Broker(in_process=True, journal=False) as broker:
        fill(broker)
        assert len(broker.groups()) == GROUPS
        show(f"restore of a snapshot with {GROUPS} groups and 10 MB", restore(broker), rounds)
        assert len(broker.groups()) == GROUPS


if __name__ == "__main__":
    main()
