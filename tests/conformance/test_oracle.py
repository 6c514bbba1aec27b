"""Apache Kafka beside us: started, asked, stopped; and what the recording says of it is true."""

from pathlib import Path

import pytest

from kohort.testing.kafka import RELEASE, KafkaNode, UnavailableKafkaError, kafka_jars
from kohort_lab.conformance import library
from kohort_lab.conformance.own_brokers import replay_oracle

SCENARIOS = (
    "group_of_two/",
    "static_member/",
    "fetch_errors/",
    "generated-group/0",
    "generated-log/1",
    "generated-topics/3",
    "txn_commit/0",
    "txn_commit/tv1/0",
)


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.timeout(600)
def test_the_recording_is_what_the_oracle_says() -> None:
    scenarios = [scenario for scenario in library.all_scenarios(library.home()) if scenario.name.startswith(SCENARIOS)]
    try:
        found = replay_oracle(scenarios)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    assert found.differences == []
    assert len(found.comparisons) > len(SCENARIOS)


def test_no_maven_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "pom.xml").write_text("<project/>")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableKafkaError, match="Maven"):
        kafka_jars(tmp_path)


OTHER = "4.2.1"


def test_every_release_has_jars_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "pom.xml").write_text("<project/>")
    maven = tmp_path / "mvn"
    maven.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert kafka_jars(tmp_path, OTHER).name == f"kafka-{OTHER}"
    assert kafka_jars(tmp_path, OTHER).name == f"kafka-{OTHER}"
    assert kafka_jars(tmp_path).name == f"kafka-{RELEASE}"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.rpartition("-Dkafka.version=")[2] for line in asked] == [OTHER, RELEASE]


def test_no_pom_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnavailableKafkaError, match="names Apache Kafka's jars"):
        kafka_jars(tmp_path)


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.timeout(300)
def test_a_node_that_does_not_come_up_shows_its_log(tmp_path: Path) -> None:
    try:
        node = KafkaNode(tmp_path, {"num.network.threads": "none"})
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with pytest.raises(RuntimeError, match=r"num\.network\.threads"):
        node.start()
