"""
Produce of this node's own records, dead letters, to the leaders of their partitions.

Source: Kafka ShareGroupDLQManager.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kohort.broker.shares.dead_letters import PRODUCE_VERSION, Producing
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Directory, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class RemoteProduce:
    """
    A `kohort.broker.shares.dead_letters.Producing` of a cluster.

    Args:
        local: appends to the partitions that this node leads.
    """

    def __init__(self, directory: Directory, local: Producing, peers: Peers) -> None:
        self._directory = directory
        self._local = local
        self._peers = peers

    def __call__(self, node_id: int, request: m.ProduceRequest, reply: Reply[m.ProduceResponse], /) -> None:
        if node_id == self._directory.node_id:
            self._local(node_id, request, reply)
        else:
            done = partial(_on_answer, request, reply)
            self._peers.send(node_id, Channel.RECORDS, ApiKey.PRODUCE, PRODUCE_VERSION, request, done)


def _on_answer(request: m.ProduceRequest, reply: Reply[m.ProduceResponse], answer: Any) -> None:
    """A request without a response is answered with an error that may pass: a letter may then be written twice."""
    if isinstance(answer, Lost):
        code = ErrorCode.REQUEST_TIMED_OUT if answer.was_sent else ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = m.ProduceResponse(
            responses=[
                m.ProduceResponseTopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        m.ProduceResponsePartitionProduceResponse(
                            index=data.index, error_code=code, error_message=answer.reason
                        )
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
    reply(answer)
