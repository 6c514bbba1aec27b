"""
Calls of administration clients, in a form that can be compared.

The rows of a client run in order, on one broker. `python -m tests.clients.admins.rows` asks Apache Kafka, and keeps its answers
for the tests.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.testing.kafka import KafkaNode
from tests.clients.waiting import PATIENCE_S

RECORDED = Path(__file__).parents[2] / "data" / "clients" / "admins-4.4.0.json"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""Of either broker."""
CLIENTS = {"confluent": "confluent", "kafka-python": "kafka_python", "aiokafka": "aiokafka_client"}
"""Modules of this package, by client."""

Row = tuple[str, Callable[[Any], Any]]
"""A name, which begins with that of the method, and the call."""

_VARIABLE_KEYS = {
    *("throttle_time_ms", "topic_id", "log_dir", "cluster_id", "port", "directory_id", "replica_directory_id"),
    *(
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "log_end_offset",
        "high_watermark",
        "leader_epoch",
        "usable_bytes",
    ),
    *("total_bytes", "finalized_epoch", "correlation_id"),
}
_VARIABLE = (
    (r"(127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r" at 0x[0-9a-f]+", ""),
)


def answers(client: str, bootstrap: str) -> dict[str, Any]:
    """The results of all rows of a client, by name."""
    module = import_module(f"tests.clients.admins.{CLIENTS[client]}")
    found: dict[str, Any] = {}
    with module.connected(bootstrap) as admin:
        for name, call in module.ROWS:
            if name == module.FILL_BEFORE:
                _fill(bootstrap, module.TOPIC)
            try:
                found[name] = plain(call(admin))
            except Exception as exc:  # noqa: BLE001 - any exception is an answer
                found[name] = plain(exc)
    return found


def plain(value: Any) -> Any:
    """A value of JSON for any result, without that which differs from run to run."""
    if isinstance(value, Future):
        try:
            return plain(value.result(PATIENCE_S))
        except Exception as exc:  # noqa: BLE001 - any exception is an answer
            return plain(exc)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {_text(str(value))}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return value.hex()
    return _compound(value)


def _compound(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif hasattr(value, "to_object"):
        value = value.to_object()
    elif hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        pairs = {str(plain(key)): plain(each) for key, each in value.items()}
        return {key: "..." if key in _VARIABLE_KEYS else pairs[key] for key in sorted(pairs)}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=str)
    if isinstance(value, list | tuple):
        return _ordered([plain(each) for each in value])
    if hasattr(value, "__dict__") and vars(value):
        return plain({key: each for key, each in vars(value).items() if not key.startswith("_")})
    return _text(str(value))


def _ordered(values: list[Any]) -> list[Any]:
    """Configurations and partitions in the order of their names, as brokers have them in any order."""
    for name in ("config_names", "partition_index", "partition"):
        if values and isinstance(values[0], dict) and name in values[0]:
            return sorted(values, key=lambda each: each[name])
    return values


def _text(text: str) -> str:
    for pattern, word in _VARIABLE:
        text = re.sub(pattern, word, text)
    return text


def _fill(bootstrap: str, topic: str) -> None:
    """Append ten records to partition 0, and commit an offset of a group."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for number in range(10):
        producer.produce(topic, f"v{number}", f"k{number}", timestamp=1_000 * (number + 1), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-group"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()


def recorded(client: str) -> dict[str, Any]:
    """What Apache Kafka answers to a client."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())[client]
    return found


def main(clients: list[str]) -> None:
    found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory), SETTINGS) as node:
        for client in clients or CLIENTS:
            found[client] = answers(client, node.bootstrap)
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
