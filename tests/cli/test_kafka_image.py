"""
The place of Apache Kafka's images: the start sequences of Testcontainers' modules find the scripts, the variables and the lines
that they expect. No container is started: the scripts run in a mount namespace of their own, with /etc and /tmp of the image.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.cli.kafka_image import configs_of, started_lines
from kohort.cli.serve import parser
from kohort.cli.serve_settings import node_settings
from kohort.client import Client
from kohort.testing.kafka import maven_jars
from kohort.testing.ports import free_ports
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.jvm import Jvm
from tests.conftest import NIGHTLY

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "testcontainers"
SECONDS_MAX = 120

VARIABLES = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
"""Source: KafkaHelper.envVars of Testcontainers for Java 2.0.5 with its KafkaContainer."""
COMMAND = "while [ ! -f /tmp/testcontainers_start.sh ]; do sleep 0.1; done; /tmp/testcontainers_start.sh"
"""Source: KafkaHelper.COMMAND."""
ADVERTISED = "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:32768,BROKER://f00:9093"
SCRIPTS = {
    "KafkaContainer of Java": ["#!/bin/bash", ADVERTISED, "/etc/kafka/docker/run "],
    "ConfluentKafkaContainer of Java": ["#!/bin/bash", ADVERTISED, "/etc/confluent/docker/run "],
    "KafkaContainer of Java, deprecated": [
        "#!/bin/bash",
        ADVERTISED,
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure",
        "echo 'kafka-storage format -t \"'$CLUSTER_ID'\" -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure",
        "echo '' > /etc/confluent/docker/ensure ",
        "/etc/confluent/docker/run ",
    ],
    "Go": [
        "#!/bin/bash",
        "source /etc/confluent/docker/bash-config",
        ADVERTISED,
        "echo Starting Kafka KRaft mode",
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure",
        "echo 'kafka-storage format --ignore-formatted' >> /etc/confluent/docker/configure",
        "echo '' > /etc/confluent/docker/ensure",
        "/etc/confluent/docker/configure",
        "/etc/confluent/docker/launch",
    ],
}
"""
What each module writes into /tmp/testcontainers_start.sh. Sources: the classes of those names; modules/kafka of Testcontainers
for Go.
"""
WAITED_FOR = (
    r".*Transitioning from RECOVERY to RUNNING.*",
    r".*\[KafkaServer id=\d+\] started.*",
    r".*Kafka Server started.*",
)


def test_variables_are_configurations() -> None:
    given = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LISTENER_NAME_A__B_SSL_CLIENT_AUTH": "none",
        "KAFKA_X___Y": "z=1",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KOHORT_NUM_PARTITIONS": "4",
        "PATH": "/bin",
    }
    assert list(configs_of(given)) == ["listener.name.a_b.ssl.client.auth=none", "num.partitions=3", "x-y=z=1"]


def test_the_variables_hold_with_the_option_only_and_options_win() -> None:
    given = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_DEFAULT_REPLICATION_FACTOR": "1"}
    for options, partitions in (([], 1), (["--kafka-image"], 3), (["--kafka-image", "--set", "num.partitions=5"], 5)):
        with node_settings(parser().parse_args(["--for-tests", *options]), given) as settings:
            assert settings.config.get_int("num.partitions") == partitions


@pytest.mark.parametrize("pattern", WAITED_FOR)
def test_the_lines_that_modules_wait_for(pattern: str) -> None:
    assert any(re.fullmatch(pattern, line) for line in started_lines(1).splitlines())


def test_the_image_has_the_files() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    (source,) = re.findall(r"^COPY --chown=\S+ (\S+) /etc$", text, re.MULTILINE)
    assert (ROOT / source).is_dir()
    assert "!deploy/testcontainers" in (ROOT / ".dockerignore").read_text().splitlines()
    (command,) = re.findall(r'^CMD \["(\S+)"\]$', text, re.MULTILINE)
    assert os.access(ROOT / source / Path(command).relative_to("/etc"), os.X_OK)


def _kept(directory: Path) -> str:
    """Keeps a checkout below /tmp in sight."""
    if not ROOT.is_relative_to("/tmp"):
        return ""
    inside = directory / ROOT.relative_to("/tmp")
    return f"mkdir -p {inside} && mount --bind {ROOT} {inside} &&"


@contextmanager
def container(directory: Path, script: list[str], variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The command of a container, into which a module then copies its script."""
    (directory / "bin").mkdir()
    program = directory / "bin" / "kohort"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kohort.cli.main "$@"\n')
    program.chmod(0o755)
    (directory / "upper").mkdir()
    (directory / "work").mkdir()
    layers = f"lowerdir=/etc,upperdir={directory}/upper,workdir={directory}/work"
    prepare = (
        f"mount -t tmpfs none {directory}/upper && mkdir {directory}/upper/u {directory}/upper/w && "
        f"mount -t overlay -o {layers.replace('/upper,', '/upper/u,').replace('/work', '/upper/w')} overlay /etc && "
        f"cp -r {IMAGE}/etc/. /etc/ && {_kept(directory)} mount --rbind {directory} /tmp && "
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KOHORT_", "KAFKA_"))}
    environment |= variables
    environment |= {"PATH": f"/tmp/bin:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # The broker is a child of a child: it ends with the namespace.
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", f"{prepare} exec sh -c '{COMMAND}'"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            part = directory / "part"
            part.write_text("\n".join(script) + "\n")
            part.chmod(0o777)
            part.rename(directory / "testcontainers_start.sh")
            yield process
        finally:
            process.kill()


@pytest.mark.clients
@pytest.mark.parametrize(
    "module", [module if module == "Go" else pytest.param(module, marks=NIGHTLY) for module in SCRIPTS]
)
def test_a_module_starts_the_broker(module: str, tmp_path: Path) -> None:
    probe = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no file system can be mounted here: {probe.stderr.strip()}")
    ports = free_ports(3)
    variables, script = dict(VARIABLES), list(SCRIPTS[module])
    for fixed, port in zip((9092, 9093, 9094), ports, strict=True):
        variables["KAFKA_LISTENERS"] = variables["KAFKA_LISTENERS"].replace(f":{fixed}", f":{port}")
    with container(tmp_path, script, variables) as process:
        assert process.stdout is not None
        waited, said = set(WAITED_FOR), ""
        for line in process.stdout:
            said += line
            waited -= {pattern for pattern in waited if re.fullmatch(pattern, line.rstrip())}
            if not waited:
                break
        assert not waited, said
        for port, advertised in zip(ports, ("localhost:32768", "f00:9093"), strict=False):
            with Client(f"127.0.0.1:{port}") as client:
                (broker,) = client.send(ApiKey.METADATA, messages.MetadataRequest(topics=())).brokers
            assert (broker.node_id, f"{broker.host}:{broker.port}") == (1, advertised)


@NIGHTLY
@pytest.mark.java
@pytest.mark.maven
def test_the_variables_are_those_of_the_module(tmp_path: Path) -> None:
    jars = maven_jars(Path(__file__).with_name("testcontainers.xml"), ROOT / "build" / "testcontainers")
    with Jvm(jars) as jvm:
        helper = jvm.class_object("org.testcontainers.kafka.KafkaHelper")
        method = helper.getDeclaredMethod("envVars", jvm.array("java.lang.Class"))
        method.setAccessible(True)
        found = dict(method.invoke(None, jvm.array("java.lang.Object")))
        field = helper.getDeclaredField("COMMAND")
        field.setAccessible(True)
        assert list(field.get(None))[-1] == COMMAND
    assert found.items() <= VARIABLES.items()
    assert VARIABLES.keys() - found.keys() <= {"KAFKA_NODE_ID", "KAFKA_CONTROLLER_QUORUM_VOTERS"}
