"""
Asks Apache Kafka 4.4.0 which texts of `number_cases` it takes, and keeps the error codes for the tests:

    python -m tests.tables.record_numbers
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort.testing.kafka import KafkaNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.crash.connection import Connection
from tests.tables.number_cases import Subject, subjects

RELEASE = "4.4.0"
RECORDED = Path(__file__).parents[1] / "data" / f"numbers-{RELEASE}.json"


def main() -> None:
    topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaNode(Path(directory), release=RELEASE) as node,
        Connection(node.port) as asker,
    ):
        asker.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        rows = {str(subject): " ".join(map(str, codes(subject, asker.ask))) for subject in subjects()}
    RECORDED.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


def codes(subject: Subject, send: Callable[[ApiKey, int, Any], Any]) -> list[int]:
    """The answer to each text, for validation only."""
    return [code(subject, text, send) for text in subject.texts]


def code(subject: Subject, text: str, send: Callable[[ApiKey, int, Any], Any], *, is_real: bool = False) -> int:
    """The answer to one text; the value is set if `is_real`."""
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name=subject.key.name, config_operation=0, value=text)
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=subject.kind, resource_name=subject.name, configs=[change]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=not is_real)
    (response,) = send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return int(response.error_code)


if __name__ == "__main__":
    main()
