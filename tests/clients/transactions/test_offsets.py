"""Offsets that clients commit within transactions."""

from collections.abc import Mapping

import pytest

from kohort.client.cluster import Client
from kohort.client.connection import Versions
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.transactions.conftest import Broker, MakeTopic
from tests.clients.transactions.producers import CLIENTS, Factory, opened
from tests.clients.waiting import wait_until

NAMES_TOPICS = Versions(8, 9)
"""Versions of OffsetFetch with several groups, and with topic names instead of topic ids."""


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_are_committed_with_the_transaction(
    broker: Broker,
    make_topic: MakeTopic,
    producers: Mapping[str, Factory],
    transactional_id: str,
    group: str,
    client: str,
) -> None:
    topic = make_topic()
    with opened(producers[client], broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send_offset(topic, 0, 7, group)
        assert committed_offset(broker, group, topic) == (-1, ErrorCode.NONE)
        assert committed_offset(broker, group, topic, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        producer.abort()
        wait_until(
            lambda: committed_offset(broker, group, topic, stable=True)[1] == 0, what="the abort marker is written"
        )
        assert committed_offset(broker, group, topic, stable=True) == (-1, ErrorCode.NONE)

        for offset in (8, 9):
            producer.begin()
            producer.send(topic, 0, "with an offset")
            producer.send_offset(topic, 0, offset, group)
            producer.commit()
        wait_until(
            lambda: committed_offset(broker, group, topic, stable=True)[1] == 0, what="the commit marker is written"
        )
        assert committed_offset(broker, group, topic, stable=True) == (9, ErrorCode.NONE)


def committed_offset(broker: Broker, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
    """The committed offset of partition 0, and the error code."""
    topics = [messages.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    wanted = messages.OffsetFetchRequestGroup(group_id=group, member_id=None, member_epoch=-1, topics=topics)
    request = messages.OffsetFetchRequest(groups=[wanted], require_stable=stable)
    with Client(broker.bootstrap) as client:
        (found,) = client.send(ApiKey.OFFSET_FETCH, request, within=NAMES_TOPICS).groups
    assert found.error_code == ErrorCode.NONE
    (partition,) = found.topics[0].partitions
    return partition.committed_offset, partition.error_code
