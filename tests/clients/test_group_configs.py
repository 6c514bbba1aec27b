"""Configurations of groups, by Apache Kafka's own tool: set, shown, deleted, and there after the broker was killed."""

import re
from collections.abc import Callable

from kohort.testing.served import ServedKohort
from tests.clients.java_tools import JavaTools

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_configurations_of_a_group(java: JavaTools, own_broker: Callable[[], ServedKohort], group: str) -> None:
    broker = own_broker()

    def run(*words: str, codes: tuple[int, ...] = (0,)) -> str:
        entity = ("--entity-type", "groups", "--entity-name", group)
        return java.run(CONFIGS, "--bootstrap-server", broker.bootstrap, *entity, *words, codes=codes)

    run("--alter", "--add-config", f"{SESSION}=50000,{BEAT}=6000")
    broker.kill()
    broker.start()
    assert _shown(run("--describe")) == {SESSION: "50000", BEAT: "6000"}
    run("--alter", "--delete-config", SESSION)
    run("--alter", "--add-config", f"{SESSION}=1", codes=(1,))
    assert _shown(run("--describe")) == {BEAT: "6000"}
    broker.stop()


def _shown(output: str) -> dict[str, str]:
    """What the tool says was set for the group."""
    return dict(
        re.findall(r"^\s+([a-z.]+)=(\S+) sensitive=false synonyms=\{DYNAMIC_GROUP_CONFIG", output, re.MULTILINE)
    )
