"""
Record the names of Apache Kafka's metrics: `python -m tests.server.metrics.record_mbeans` (needs Java and Maven).

The program starts a node, lets clients write, read, commit and run a transaction, and lists the MBeans by Kafka's JmxTool. The
file keeps the names of the keys and attributes; values of keys other than type and name are left out.
"""

import json
import os
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.testing.kafka import KafkaNode, java, kafka_jars
from kohort.testing.ports import free_ports

RELEASE = "4.4.0"
FILE = Path(__file__).parents[2] / "data" / f"mbeans-{RELEASE}.json"
DOMAINS = ("kafka.cluster", "kafka.controller", "kafka.coordinator", "kafka.log", "kafka.network", "kafka.server")


def use(bootstrap: str) -> None:
    """Let clients of each kind run once."""
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("t", b"value")
    plain.flush(60)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce("t", b"value")
    transactional.commit_transaction(60)
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": bootstrap, "group.id": protocol, "group.protocol": protocol}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        while (message := consumer.poll(1)) is None or message.error():
            pass
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()


def listed(jmx_port: int) -> dict[str, list[str]]:
    """The attributes of all MBeans of the broker, by domain, type, name and further keys."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"
    command = [
        java(),
        "-cp",
        f"{kafka_jars(release=RELEASE)}/*",
        "org.apache.kafka.tools.JmxTool",
        "--jmx-url",
        url,
        "--one-time",
    ]
    done = subprocess.run([*command, "--report-format", "properties"], capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = defaultdict(set)
    for line in done.stdout.splitlines():
        place, separator, _ = line.partition("=") if line.startswith("time") else line.rpartition("=")
        bean, _, attribute = place.rpartition(":")
        domain, _, keys = bean.partition(":")
        if not separator or not domain.startswith(DOMAINS) or not keys:
            continue
        pairs = [pair.partition("=") for pair in keys.split(",")]
        kept = [f"{key}={value}" if key in ("type", "name") else key for key, _, value in pairs]
        found[f"{domain}:{','.join(kept)}"].add(attribute)
    return {bean: sorted(attributes) for bean, attributes in sorted(found.items())}


def main() -> None:
    (jmx_port,) = free_ports(1)
    options = f"-Dcom.sun.management.jmxremote.port={jmx_port} -Dcom.sun.management.jmxremote.authenticate=false "
    options += "-Dcom.sun.management.jmxremote.ssl=false -Djava.rmi.server.hostname=127.0.0.1"
    with tempfile.TemporaryDirectory() as directory:
        node = KafkaNode(Path(directory), release=RELEASE)
        os.environ["JAVA_TOOL_OPTIONS"] = options
        with node:
            del os.environ["JAVA_TOOL_OPTIONS"]
            use(node.bootstrap)
            FILE.write_text(json.dumps(listed(jmx_port), indent=1) + "\n")


if __name__ == "__main__":
    main()
