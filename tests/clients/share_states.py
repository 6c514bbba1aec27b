"""State of share partitions, as a leader writes it and reads it from a broker: raw requests over a connection."""

from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches, write_crc
from tests.clients.waiting import PATIENCE_S, wait_until

GROUP = "workers"
SHARE_KEYS = 2
WRITES = (
    (0, ((0, 3, 2, 1), (4, 4, 0, 1))),
    (4, ((4, 4, 0, 2), (5, 9, 2, 1))),
    (4, ((12, 12, 4, 3),)),
    (4, ((4, 4, 2, 3), (13, 14, 0, 1))),
    (10, ((15, 15, 0, 2),)),
)
"""Start offsets and batches: first and last offset, state, count. With a snapshot after three updates, some of each kind."""


def find_coordinator(client: Client) -> None:
    """Make the topic of the share coordinator."""
    request = m.FindCoordinatorRequest(key_type=SHARE_KEYS, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
    (address,) = client.brokers().values()
    wait_until(
        lambda: client.send(ApiKey.FIND_COORDINATOR, request, at=address).coordinators[0].error_code == ErrorCode.NONE,
        what="the share coordinator",
    )


def topic_id_of(client: Client, topic: str) -> UUID:
    (address,) = client.brokers().values()
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)])
    found: UUID = client.send(ApiKey.METADATA, request, at=address).topics[0].topic_id
    return found


def _asked(client: Client, name: str, topic: str, topic_id: UUID, **fields: Any) -> Any:
    """The result of one share partition, once the coordinator is there."""
    partition = getattr(m, f"{name}RequestPartitionData")(partition=0, **fields)
    topics = [getattr(m, f"{name}Request{topic}")(topic_id=topic_id, partitions=[partition])]
    api = next(api for api in ApiKey if api.api_name == name)
    (address,) = client.brokers().values()
    answer = client.send_to_broker(
        address,
        api,
        getattr(m, f"{name}Request")(group_id=GROUP, topics=topics),
        error_code=lambda found: found.results[0].partitions[0].error_code,
    )
    return answer.results[0].partitions[0]


def write_states(bootstrap: str, topic: str) -> None:
    """Initialise a share partition, and write its state in several steps."""
    with Client(bootstrap, PATIENCE_S, PLAINTEXT) as client:
        find_coordinator(client)
        topic_id = topic_id_of(client, topic)
        _asked(client, "InitializeShareGroupState", "InitializeStateData", topic_id, state_epoch=2, start_offset=0)
        _asked(client, "ReadShareGroupState", "ReadStateData", topic_id, leader_epoch=3)
        batch = m.WriteShareGroupStateRequestStateBatch
        for start_offset, batches in WRITES:
            _asked(
                client,
                "WriteShareGroupState",
                "WriteStateData",
                topic_id,
                state_epoch=2,
                leader_epoch=3,
                start_offset=start_offset,
                delivery_complete_count=len(batches),
                state_batches=[
                    batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                    for first, last, state, count in batches
                ],
            )


def states(bootstrap: str, topic: str) -> tuple[Any, ...]:
    """What the coordinator tells: epochs, start offset, count, batches."""
    with Client(bootstrap, PATIENCE_S, PLAINTEXT) as client:
        topic_id = topic_id_of(client, topic)
        summary = _asked(client, "ReadShareGroupStateSummary", "ReadStateSummaryData", topic_id, leader_epoch=3)
        read = _asked(client, "ReadShareGroupState", "ReadStateData", topic_id, leader_epoch=3)
        return (
            (summary.state_epoch, summary.leader_epoch, summary.start_offset, summary.delivery_complete_count),
            (read.state_epoch, read.start_offset),
            [
                (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in read.state_batches
            ],
        )


def rename_topic(logs: Path, old: UUID, new: UUID) -> None:
    """Give the share partitions of a topic in the logs of a stopped broker the id that the topic has at another broker."""
    for path in logs.glob("__share_group_state-*/*.log"):
        data = bytearray(path.read_bytes().replace(old.bytes, new.bytes))
        for at, header in list(iter_batches(bytes(data))):
            batch = data[at : at + header.size_bytes]
            write_crc(batch)
            data[at : at + header.size_bytes] = batch
        path.write_bytes(data)
