"""A fetch that has to tell of thousands of partitions of its session holds the event loop for no longer than others."""

from collections.abc import Awaitable, Callable
from itertools import count

from kohort.broker.apis.api_table import API_TABLE
from kohort.server.node import Node
from kohort.server.requests.slices import Slices
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader
from tests.server.clients import Client, play
from tests.server.requests.work import WorkOfTurns

PARTITIONS = 20_000
STEP = 5_000
"""Partitions that a request adds."""


def test_errors_of_many_partitions_are_told_in_steps() -> None:
    """The topic is unknown, which each answer tells."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        # Each look at the clock ends a slice: it has one step.
        node._connections.slices = Slices(node._turns.call_soon, count(0.0, 1.0).__next__)
        client = await connect()
        session_id = 0
        for epoch in range(PARTITIONS // STEP + 1):
            added = range(epoch * STEP, min((epoch + 1) * STEP, PARTITIONS))
            partitions = [m.FetchRequestFetchPartition(partition=index, fetch_offset=0) for index in added]
            topics = [m.FetchRequestFetchTopic(topic="none", partitions=partitions)] if partitions else []
            request = m.FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
            client.send(ApiKey.FETCH, 12, request)
            with WorkOfTurns() as work:
                frame = await client.frame()
            _, body = read_response_header(frame, ApiKey.FETCH, 12)
            answer = response_reader(ApiKey.FETCH, 12)(frame, body)
            session_id = answer.session_id
            assert sum(len(topic.partitions) for topic in answer.responses) == min((epoch + 1) * STEP, PARTITIONS)
            # Readers and encoders are compiled with the first request.
            assert not epoch or work.units < API_TABLE[ApiKey.FETCH].cost.step

    play(story, auto_create_topics_enable="false")
