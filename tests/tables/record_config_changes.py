"""
Asks Apache Kafka 4.4.0 what it answers to the cases of `config_change_cases`, and keeps it for the tests:

    python -m tests.tables.record_config_changes
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
from tests.tables.config_change_cases import CASES, Case

RELEASE = "4.4.0"
RECORDED = Path(__file__).parents[1] / "data" / f"config-changes-{RELEASE}.json"
LOGGER_OF_KAFKA = "kafka.server.KafkaApis"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaNode(Path(directory), release=RELEASE) as node,
        Connection(node.port) as asker,
    ):
        rows = {name: ask(case, LOGGER_OF_KAFKA, asker.ask) for name, case in CASES.items()}
    RECORDED.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


def ask(case: Case, logger: str, send: Callable[[ApiKey, int, Any], Any]) -> list[Any]:
    """Ask for validation only; the error code and message, with a placeholder for the logger."""
    changes = [(name.replace("@logger", logger), operation, value) for name, operation, value in case.changes]
    if case.replaces:
        config, resource = m.AlterConfigsRequestAlterableConfig, m.AlterConfigsRequestAlterConfigsResource
        configs: Any = [config(name=name, value=value) for name, _, value in changes]
        resources: Any = [resource(resource_type=case.kind, resource_name=case.name, configs=configs)]
        answer = send(ApiKey.ALTER_CONFIGS, 2, m.AlterConfigsRequest(resources=resources, validate_only=True))
    else:
        change = m.IncrementalAlterConfigsRequestAlterableConfig
        configs = [change(name=name, config_operation=operation, value=value) for name, operation, value in changes]
        resources = [
            m.IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=case.kind, resource_name=case.name, configs=configs
            )
        ]
        request = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
        answer = send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    (response,) = answer.responses
    message = response.error_message
    return [response.error_code, message and message.replace(logger, "@logger")]


if __name__ == "__main__":
    main()
