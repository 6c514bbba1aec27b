"""Metrics by broker, of a process with several virtual brokers."""

from kohort.model.errors import ErrorCode
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import Connect, play_at


def by_broker(node: Node) -> dict[tuple[str, str, str], float]:
    """The values by name without its prefix, broker and API."""
    return {
        (
            sample.name.removeprefix("kohort_broker_"),
            sample.labels["broker"],
            sample.labels.get("api", ""),
        ): sample.value
        for family in node.metrics()
        if family.name.startswith("kohort_broker_")
        for sample in family.samples
    }


def test_each_broker_has_metrics_of_its_own() -> None:
    async def story(node: Node, connect: Connect) -> None:
        first = await connect(node.bound[1][0])
        second = [await connect(node.bound[2][0]) for _ in range(2)]
        assignments = [
            m.CreateTopicsRequestCreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(((2, 1), (2,), (1, 2)))
        ]
        topic = m.CreateTopicsRequestCreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        created = await first.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        for client in second:
            await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        expected = {
            ("running", "1"): 1,
            ("running", "2"): 1,
            ("leaders", "1"): 1,
            ("leaders", "2"): 2,
            ("replicas", "1"): 2,
            ("replicas", "2"): 3,
            ("connections", "1"): 1,
            ("connections", "2"): 2,
            ("connections_accepted_total", "1"): 1,
            ("connections_accepted_total", "2"): 2,
            ("connections_rejected_total", "1"): 0,
            ("connections_rejected_total", "2"): 0,
            ("fetch_sessions", "1"): 0,
            ("fetch_sessions", "2"): 0,
        }
        found = by_broker(node)
        assert {(name, broker): found[name, broker, api] for name, broker, api in found if not api} == expected
        requests = {(broker, api): found[name, broker, api] for name, broker, api in found if api}
        assert requests == {("1", "CreateTopics"): 1, ("2", "ApiVersions"): 2}
        await node.brokers.stop(2)
        found = by_broker(node)
        assert [found[name, "2", ""] for name in ("running", "leaders", "connections")] == [0, 0, 0]
        assert found["leaders", "1", ""] == 2, "the partition that broker 2 alone has is without a leader"

    play_at(story, brokers=2)
