"""Subscriptions and assignments inside the opaque bytes of JoinGroup and SyncGroup."""

import subprocess
import sys

import pytest

from kohort.model.errors import WireError
from kohort.records import values
from kohort.records.consumer_protocol import (
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
    write_subscription,
)

SUBSCRIPTION = values.ConsumerProtocolSubscription(
    topics=("clicks", "orders"),
    user_data=b"\x00\x01",
    owned_partitions=(values.ConsumerProtocolSubscriptionTopicPartition(topic="orders", partitions=(0, 2)),),
    generation_id=7,
    rack_id="rack-a",
)
ASSIGNMENT = values.ConsumerProtocolAssignment(
    assigned_partitions=(values.ConsumerProtocolAssignmentTopicPartition(topic="orders", partitions=(1, 3)),),
    user_data=None,
)

GOLDEN = {
    0: "0000 00000002 0006636c69636b73 00066f7264657273 00000002 0001",
    1: "0001 00000002 0006636c69636b73 00066f7264657273 00000002 0001 00000001 00066f7264657273 00000002 00000000 00000002",
}
GOLDEN[2] = "0002" + GOLDEN[1][4:] + "00000007"
GOLDEN[3] = "0003" + GOLDEN[1][4:] + "00000007 0006 7261636b2d61"


@pytest.mark.parametrize("version", GOLDEN)
def test_the_bytes_of_a_subscription(version: int) -> None:
    assert write_subscription(SUBSCRIPTION, version) == bytes.fromhex(GOLDEN[version])
    read = read_subscription(bytes.fromhex(GOLDEN[version]))
    assert (read.topics, read.user_data) == (SUBSCRIPTION.topics, SUBSCRIPTION.user_data)
    assert read.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else ())
    assert read.generation_id == (7 if version >= 2 else -1)
    assert read.rack_id == ("rack-a" if version >= 3 else None)


@pytest.mark.parametrize("version", range(4))
def test_the_bytes_of_an_assignment(version: int) -> None:
    data = write_assignment(ASSIGNMENT, version)
    assert data == bytes.fromhex(f"000{version} 00000001 00066f7264657273 00000002 00000001 00000003 ffffffff")
    assert read_assignment(data) == ASSIGNMENT


@pytest.mark.parametrize("version", [4, 0x7FFF])
def test_newer_versions_are_read_as_the_newest_known(version: int) -> None:
    data = version.to_bytes(2, "big") + write_subscription(SUBSCRIPTION)[2:] + b"what newer versions append"
    assert read_version(data) == version
    assert read_subscription(data) == SUBSCRIPTION


HOSTILE = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff",
    b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff",
]
HOSTILE_SUBSCRIPTIONS = [
    b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x7f\xff\xff\xff",
    b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff",
]

READ_ALL = """
import sys
from kohort.model.errors import WireError
from kohort.records import consumer_protocol
read = getattr(consumer_protocol, sys.argv[1])
for line in sys.argv[2:]:
    try:
        read(bytes.fromhex(line))
    except WireError:
        print("refused")
"""


@pytest.mark.parametrize(
    ("reader", "hostile"),
    [("read_assignment", HOSTILE), ("read_subscription", HOSTILE + HOSTILE_SUBSCRIPTIONS)],
)
def test_hostile_bytes_are_refused(reader: str, hostile: list[bytes]) -> None:
    """In a process of its own: where the guard failed, it would be the end of it."""
    command = [sys.executable, "-c", READ_ALL, reader, *(data.hex() for data in hostile)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.count("refused") == len(hostile)


@pytest.mark.parametrize("size", range(len(write_subscription(SUBSCRIPTION))))
def test_every_prefix_of_a_subscription_is_refused(size: int) -> None:
    with pytest.raises(WireError):
        read_subscription(write_subscription(SUBSCRIPTION)[:size])
