"""
Own configurations of virtual brokers: which of them take effect, where, and what each broker shows.

In Kafka each broker applies its own value to its own replicas and connections. The leader validates what producers send.
Source: KIP-226; Kafka DynamicBrokerConfig, DynamicLogConfig, ConfigHelper.
"""

import logging

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire.apis import ApiKey
from tests.broker.configs.test_configs import BROKER, DELETE, SET, TOPIC, alter, describe, shown
from tests.broker.harness import batch, produce_request
from tests.broker.virtual_cluster import BROKERS, VirtualCluster

NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE
DYNAMIC, DYNAMIC_DEFAULT, DEFAULT = 2, 3, 5
KEY = "message.max.bytes"


def set_own(cluster: VirtualCluster, node_id: int, key: str, value: str | None) -> None:
    """Change the own configuration of a broker, at this broker."""
    operation = DELETE if value is None else SET
    assert alter(cluster, (key, operation, value), kind=BROKER, name=str(node_id), at=node_id) == NONE


def led_by_each() -> VirtualCluster:
    """Broker N leads partition N - 1 of topic `t`."""
    cluster = VirtualCluster()
    cluster.assign("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    return cluster


def produced(cluster: VirtualCluster, topic: str = "t") -> list[int]:
    """What the leader of each partition answers to a batch of more than a thousand bytes."""
    codes = []
    for index in BROKERS:
        leader = cluster.state(topic, index - 1).leader_id
        request = produce_request(topic, {index - 1: batch(b"x" * 1000)})
        (answer,) = cluster.ask(ApiKey.PRODUCE, request, version=12, at=leader).responses
        codes.append(int(answer.partition_responses[0].error_code))
    return codes


# fmt: off
BOUNDS: dict[tuple[tuple[str, str], ...], list[int]] = {  # (broker, message.max.bytes): the answers of brokers 1, 2 and 3
    ():                                    [NONE, NONE, NONE],
    (("1", "500"),):                       [TOO_LARGE, NONE, NONE],
    (("2", "500"),):                       [NONE, TOO_LARGE, NONE],
    (("1", "500"), ("3", "500")):          [TOO_LARGE, NONE, TOO_LARGE],
    (("", "500"),):                        [TOO_LARGE, TOO_LARGE, TOO_LARGE],
    (("", "500"), ("1", "5000")):          [NONE, TOO_LARGE, TOO_LARGE],
    (("", "500"), ("3", "5000")):          [TOO_LARGE, TOO_LARGE, NONE],
    (("", "5000"), ("2", "500")):          [NONE, TOO_LARGE, NONE],
}
# fmt: on


@pytest.mark.parametrize("values", BOUNDS)
@pytest.mark.parametrize("is_open", [False, True])
def test_the_leader_applies_its_own_value(values: tuple[tuple[str, str], ...], is_open: bool) -> None:
    cluster = led_by_each()
    if is_open:
        assert produced(cluster) == [NONE] * 3
    for name, value in values:
        assert alter(cluster, (KEY, SET, value), kind=BROKER, name=name, at=int(name or 1)) == NONE
    assert produced(cluster) == BOUNDS[values]


@pytest.mark.parametrize("own", [1, 2, 3])
@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_value_for_all_must_not_contradict_the_own_value_of_any_broker(own: int, asked: int) -> None:
    """No topic could be created then. Kafka stores it, and refuses topics with configurations."""
    cluster = VirtualCluster()
    set_own(cluster, own, "log.cleaner.min.compaction.lag.ms", "50")
    change = ("log.cleaner.max.compaction.lag.ms", SET, "5")
    assert alter(cluster, change, kind=BROKER, name="", at=asked) == ErrorCode.INVALID_REQUEST
    set_own(cluster, own, "log.cleaner.min.compaction.lag.ms", None)
    assert alter(cluster, change, kind=BROKER, name="", at=asked) == NONE
    cluster.create("new", cleanup_policy="compact")


def test_a_topic_goes_before_its_leader() -> None:
    cluster = VirtualCluster()
    cluster.assign("t", (1,), (2,), (3,), max_message_bytes="5000")
    for node_id in BROKERS:
        set_own(cluster, node_id, KEY, "500")
    assert produced(cluster) == [NONE] * 3


def test_a_value_that_was_taken_back_has_no_effect() -> None:
    cluster = led_by_each()
    set_own(cluster, 2, KEY, "500")
    assert produced(cluster) == [NONE, TOO_LARGE, NONE]
    set_own(cluster, 2, KEY, None)
    assert produced(cluster) == [NONE] * 3


def test_the_next_leader_applies_its_value() -> None:
    cluster = led_by_each()
    set_own(cluster, 2, KEY, "500")
    cluster.stop(1)
    assert cluster.state("t", 0).leader_id == 2
    assert produced(cluster) == [TOO_LARGE, TOO_LARGE, NONE]
    cluster.start(1)
    cluster.stop(2)
    assert cluster.state("t", 0).leader_id in (1, 3)
    assert produced(cluster) == [NONE] * 3


# fmt: off
LOGS = {  # own key of broker 2: the field of the logs that it leads, its value, and the value of the other logs
    ("log.retention.ms", "5000"):          ("retention_ms", 5_000, 604_800_000),
    ("log.retention.bytes", "7"):          ("retention_bytes", 7, -1),
    ("log.segment.bytes", "2000000"):      ("segment_bytes", 2_000_000, 1 << 30),
    ("log.roll.ms", "60000"):              ("segment_ms", 60_000, 604_800_000),
    ("log.cleanup.policy", "compact"):     ("cleanup_policy", "compact", "delete"),
}
# fmt: on


@pytest.mark.parametrize("row", LOGS)
def test_logs_have_the_values_of_their_leader(row: tuple[str, str]) -> None:
    cluster = led_by_each()
    produced(cluster)
    set_own(cluster, 2, *row)
    field, own, other = LOGS[row]
    found = [getattr(cluster.broker.partitions.opened["t"].partitions[index].log.config, field) for index in range(3)]
    assert found == [other, own, other]


def test_each_broker_shows_its_own_value_of_topics_and_of_itself() -> None:
    cluster = led_by_each()
    assert alter(cluster, (KEY, SET, "5000"), kind=BROKER, name="") == NONE
    set_own(cluster, 2, KEY, "500")
    for node_id, value, source in ((1, "5000", DYNAMIC_DEFAULT), (2, "500", DYNAMIC), (3, "5000", DYNAMIC_DEFAULT)):
        of_topic = describe(cluster, TOPIC, "t", "max.message.bytes", at=node_id)
        assert shown(of_topic, "max.message.bytes")[:2] == (value, source)
        of_broker = describe(cluster, BROKER, str(node_id), KEY, at=node_id)
        assert shown(of_broker, KEY)[:2] == (value, source)


def test_what_brokers_share_has_the_value_of_the_first_one(caplog: pytest.LogCaptureFixture) -> None:
    cluster = VirtualCluster()
    with caplog.at_level(logging.INFO, "kohort.broker"):
        set_own(cluster, 2, "log.cleaner.backoff.ms", "5")
        set_own(cluster, 2, KEY, "500")
        set_own(cluster, 1, "log.cleaner.backoff.ms", "7")
    assert [line.getMessage() for line in caplog.records] == [
        "config.without_effect key=log.cleaner.backoff.ms broker=2",
        "config.changed key='message.max.bytes' broker=2",
        "config.changed key='log.cleaner.backoff.ms'",
    ]
    assert cluster.broker.config.get_int("log.cleaner.backoff.ms") == 7
    shown_value = shown(describe(cluster, BROKER, "2", "log.cleaner.backoff.ms", at=2), "log.cleaner.backoff.ms")
    assert shown_value[:2] == ("5", DYNAMIC)
