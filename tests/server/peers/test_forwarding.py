"""Requests of clients that the controller alone handles, at another node."""

from kohort.model.errors import ErrorCode
from tests.server.peers.two_nodes import Cluster, create, play


def test_a_topic_is_created_at_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        answer = await create(client, "a", "b")
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", 0), ("b", 0)]
        assert [topic.name for topic in cluster[1].broker.catalog.topics()] == ["a", "b"]
        assert not list(cluster[2].broker.catalog.topics())
        refused = await create(client, "a", "c/")
        assert [topic.error_code for topic in refused.topics] == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]

    play(story)
