"""
Asks Apache Kafka 4.2.1 which regular expressions it accepts, and keeps its messages for the tests:

    python -m tests.group.consumer.record_patterns

The patterns are those of the present recording; add new ones to the file first, with null.
"""

import json
import tempfile
from pathlib import Path

from kohort.model.errors import ErrorCode
from kohort.testing.kafka import KafkaNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.waiting import wait_until
from tests.crash.connection import Connection
from tests.group.consumer.test_topic_patterns import DATA, RECORDED


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory)) as node, Connection(node.port) as asker:

        def heartbeat(group_id: str, pattern: str) -> m.ConsumerGroupHeartbeatResponse | None:
            request = m.ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id="member",
                rebalance_timeout_ms=1000,
                subscribed_topic_regex=pattern,
                topic_partitions=[],
            )
            answer: m.ConsumerGroupHeartbeatResponse = asker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
            is_loading = answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return None if is_loading else answer

        asker.ask(ApiKey.FIND_COORDINATOR, 6, m.FindCoordinatorRequest(coordinator_keys=["group"]))
        rows = []
        for number, pattern in enumerate(RECORDED):
            answer = wait_until(lambda: heartbeat(f"group-{number}", pattern), what=f"an answer to {pattern}")  # noqa: B023
            assert answer is not None
            rows.append([pattern, answer.error_message])
    DATA.write_text("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
