"""
The place of Apache Kafka's images: variables that are configurations, and the lines that tools for tests wait for.

Source: kafka.docker.KafkaDockerWrapper of Apache Kafka; the modules of Testcontainers for Java, Go, Node and Python.
"""

from collections.abc import Iterator, Mapping
from typing import Final

_PREFIX: Final = "KAFKA_"
_OF_THE_JVM: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_LOG_DIRS",
        "KAFKA_ZOOKEEPER_CONNECT",
    }
)
"""Variables that mean nothing here: of the Java runtime, and where data is; that says --data-dir."""


def configs_of(environment: Mapping[str, str]) -> Iterator[str]:
    """`KAFKA_NUM_PARTITIONS=3` as `num.partitions=3`: `_` is a dot, `__` an underscore, `___` a dash."""
    for variable, value in sorted(environment.items()):
        if variable.startswith(_PREFIX) and variable not in _OF_THE_JVM:
            name = variable.removeprefix(_PREFIX).lower()
            yield f"{name.replace('___', '-').replace('__', ' ').replace('_', '.').replace(' ', '_')}={value}"


def started_lines(node_id: int) -> str:
    """The lines by which Apache Kafka's log says that clients are served."""
    return (
        f"[BrokerLifecycleManager id={node_id}] Transitioning from RECOVERY to RUNNING\n"
        f"[KafkaRaftServer nodeId={node_id}] Kafka Server started\n"
        f"[KafkaServer id={node_id}] started"
    )
