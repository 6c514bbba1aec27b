"""
Changes of configurations of brokers, loggers and client metrics are allowed and refused as by Apache Kafka 4.4.0.

`record_config_changes` asked Kafka.
"""

import json
from typing import Any

from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.tables.config_change_cases import CASES
from tests.tables.record_config_changes import RECORDED, ask

OURS = {
    "listeners",
    "listener.security.protocol.map",
    "sasl.jaas.config",
    "listener.name.x.plain.sasl.jaas.config",
    "log.flush.interval.ms -1",
    "log.cleaner.min.compaction.lag.ms 100",
    "max.connections.per.ip.overrides x.invalid:5",
    "max.connections.per.ip.overrides [::1]:5,127.0.0.1: 6",
}
"""
Deliberate: there is no listener of a controller, secrets are not stored, host names of overrides are resolved at the start
only, and addresses of IPv6 may be in brackets. A value from which topics would get an invalid one is refused, and a least
compaction lag above the largest; Kafka stores them, logs the first or refuses topics with the second.
"""


def test_each_change_alone() -> None:
    harness = Harness()
    recorded = json.loads(RECORDED.read_text())
    assert set(recorded) == set(CASES)

    def send(api_key: ApiKey, version: int, request: Any) -> Any:
        return harness.ask(api_key, request, version=version)

    different = {
        name: (answer, recorded[name])
        for name, case in CASES.items()
        if not is_ours(case.changes) and (answer := ask(case, "kohort.broker", send)) != recorded[name]
    }
    assert different == {}


def is_ours(changes: tuple[tuple[str, int, str | None], ...]) -> bool:
    return any(name in OURS or f"{name} {value}" in OURS for name, _, value in changes)
