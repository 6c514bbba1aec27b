"""Creating, growing and deleting topics. Rows are those of Kafka's ReplicationControlManager, probed on 4.2.1."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest

from kohort.broker.ports import FLUSH_MS_MIN
from kohort.machine.gradual import CHUNK
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from tests.broker.harness import Asker, Harness
from tests.broker.recorded import recorded

Wanted = m.CreateTopicsRequestCreatableTopic
Assignment = m.CreateTopicsRequestCreatableReplicaAssignment


def wanted(name: str = "t", partitions: int = 1, replicas: int = 1, **what: Any) -> Wanted:
    return Wanted(name=name, num_partitions=partitions, replication_factor=replicas, **what)


def placed(*assignments: Sequence[int], partitions: int = -1, replicas: int = -1, first: int = 0) -> Wanted:
    listed = [Assignment(partition_index=first + i, broker_ids=brokers) for i, brokers in enumerate(assignments)]
    return wanted(partitions=partitions, replicas=replicas, assignments=listed)


def configured(*configs: tuple[str, str | None]) -> Wanted:
    return wanted(
        configs=[m.CreateTopicsRequestCreatableTopicConfig(name=name, value=value) for name, value in configs]
    )


def create(
    harness: Harness, *topics: Wanted, version: int = 7, **what: Any
) -> Sequence[m.CreateTopicsResponseCreatableTopicResult]:
    fields: dict[str, Any] = {"topics": topics, "timeout_ms": 1000}
    request = m.CreateTopicsRequest(**fields | what)
    found: Sequence[m.CreateTopicsResponseCreatableTopicResult] = harness.ask(
        ApiKey.CREATE_TOPICS, request, version=version
    ).topics
    return found


# fmt: off
CREATED = {
    "as asked":                  (wanted(partitions=3),                              ErrorCode.NONE),
    "defaults of the broker":    (wanted(partitions=-1, replicas=-1),                ErrorCode.NONE),
    "longest name":              (wanted("n" * 249),                                 ErrorCode.NONE),
    "name too long":             (wanted("n" * 250),                                 ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no name":                   (wanted(""),                                        ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dot":                       (wanted("."),                                       ErrorCode.INVALID_TOPIC_EXCEPTION),
    "two dots":                  (wanted(".."),                                      ErrorCode.INVALID_TOPIC_EXCEPTION),
    "three dots":                (wanted("..."),                                     ErrorCode.NONE),
    "a space":                   (wanted("a b"),                                     ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an umlaut":                 (wanted("\u00e4"),                                  ErrorCode.INVALID_TOPIC_EXCEPTION),
    "exists":                    (wanted("old.one"),                                 ErrorCode.TOPIC_ALREADY_EXISTS),
    "collides":                  (wanted("old_one"),                                 ErrorCode.INVALID_TOPIC_EXCEPTION),
    "Kafka's metadata":          (wanted("__cluster_metadata"),                      ErrorCode.INVALID_REQUEST),
    "our catalog":               (wanted("__kohort_catalog"),                        ErrorCode.INVALID_REQUEST),
    "no partitions":             (wanted(partitions=0),                              ErrorCode.INVALID_PARTITIONS),
    "-2 partitions":             (wanted(partitions=-2),                             ErrorCode.INVALID_PARTITIONS),
    "a record too many":         (wanted(partitions=9_999, configs=configured(("retention.ms", "1")).configs),
                                  ErrorCode.POLICY_VIOLATION),
    "9999 partitions":           (wanted(partitions=9_999),                          ErrorCode.NONE),
    "10000 partitions":          (wanted(partitions=10_000),                         ErrorCode.POLICY_VIOLATION),
    "no replicas":               (wanted(replicas=0),                                ErrorCode.INVALID_REPLICATION_FACTOR),
    "-2 replicas":               (wanted(replicas=-2),                               ErrorCode.INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (wanted(replicas=2),                               ErrorCode.INVALID_REPLICATION_FACTOR),
    "replicas judged first":     (wanted(partitions=0, replicas=0),                  ErrorCode.INVALID_REPLICATION_FACTOR),
    "placed by hand":            (placed([1], [1]),                                  ErrorCode.NONE),
    "placed and counted":        (placed([1], partitions=1),                         ErrorCode.INVALID_REQUEST),
    "placed and replicated":     (placed([1], replicas=1),                           ErrorCode.INVALID_REQUEST),
    "placed with a gap":         (placed([1], first=1),                              ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "placed nowhere":            (placed([]),                                        ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "placed twice":              (placed([1, 1]),                                    ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "placed on a stranger":      (placed([7]),                                       ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "unknown key":               (configured(("no.such.key", "1")),                  ErrorCode.INVALID_CONFIG),
    "null value":                (configured(("retention.ms", None)),                ErrorCode.INVALID_CONFIG),
    "not a number":              (configured(("retention.ms", "soon")),              ErrorCode.INVALID_CONFIG),
    "number too large":          (configured(("max.message.bytes", "2147483648")),   ErrorCode.INVALID_CONFIG),
    "segment too small":         (configured(("segment.bytes", "1048575")),          ErrorCode.INVALID_CONFIG),
    "smallest segment":          (configured(("segment.bytes", "1048576")),          ErrorCode.NONE),
    "empty cleanup.policy":      (configured(("cleanup.policy", "")),                ErrorCode.NONE),
    "both cleanup policies":     (configured(("cleanup.policy", "compact, delete")), ErrorCode.NONE),
    "a value given twice":       (configured(("cleanup.policy", "delete,delete")),   ErrorCode.NONE),
    "an empty policy among others": (configured(("cleanup.policy", "delete,,compact")), ErrorCode.INVALID_CONFIG),
    "an unknown policy":         (configured(("cleanup.policy", "burn")),            ErrorCode.INVALID_CONFIG),
    "a key given twice":         (configured(("retention.ms", "1"), ("retention.ms", "2")), ErrorCode.NONE),
    "lags that contradict":      (configured(("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")),
                                  ErrorCode.INVALID_CONFIG),
    "tiered storage":            (configured(("remote.storage.enable", "true")),     ErrorCode.INVALID_CONFIG),
    "configuration judged first": (wanted(replicas=0, configs=configured(("x", "1")).configs), ErrorCode.INVALID_CONFIG),
}
# fmt: on


@pytest.mark.parametrize("what", CREATED)
def test_create(what: str) -> None:
    topic, code = CREATED[what]
    harness = Harness()
    harness.create("old.one")
    (result,) = create(harness, topic)
    assert (result.name, result.error_code) == (topic.name, code)
    assert (result.error_message is None) == (code == ErrorCode.NONE)
    is_there = harness.broker.catalog.topic(topic.name) is not None
    assert is_there == (code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


def test_what_was_created_is_told() -> None:
    harness = Harness(num_partitions="5")
    (result,) = create(harness, wanted(partitions=-1, replicas=-1, configs=configured(("retention.ms", "7")).configs))
    assert (result.num_partitions, result.replication_factor) == (5, 1)
    shown = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert len(shown) == 37
    assert list(shown) == sorted(shown)
    assert shown["retention.ms"] == ("7", 1)
    assert shown["segment.ms"] == ("604800000", 5)
    assert shown["min.insync.replicas"] == ("1", 3)


def test_configurations_are_those_that_apache_kafka_told() -> None:
    """The same settings as the recorded broker's: the answers are equal but for the ids."""
    harness = Harness(
        log_index_interval_bytes="256",
        log_index_size_max_bytes="8192",
        log_retention_ms="-1",
        log_cleaner_min_compaction_lag_ms="86400000",
    )
    compared = 0
    for version, request, expected in recorded(ApiKey.CREATE_TOPICS):
        for topic, answer in zip(request.topics, expected.topics, strict=True):
            (result,) = create(harness, topic, version=version)
            known = {config.name for config in answer.configs}
            assert [config for config in result.configs or () if config.name in known] == list(answer.configs)
            assert (result.num_partitions, result.replication_factor) == (
                answer.num_partitions,
                answer.replication_factor,
            )
            assert (result.error_code, result.error_message) == (answer.error_code, answer.error_message)
            compared += 1
    assert compared >= 3


def test_what_is_refused_tells_nothing() -> None:
    (result,) = create(Harness(), wanted(replicas=0))
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())
    assert result.topic_id is None


def test_a_name_given_twice_is_created_not_once() -> None:
    harness = Harness()
    assert [(r.name, r.error_code) for r in create(harness, wanted("a"), wanted("b"), wanted("a"))] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


def test_validate_only_creates_nothing() -> None:
    harness = Harness()
    (result,) = create(harness, wanted(partitions=3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert harness.broker.catalog.topic("t") is None


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create(version: int) -> None:
    (result,) = create(Harness(), wanted(), version=version)
    assert (result.error_code, result.num_partitions) == (0, 1 if version >= 5 else -1)
    assert (result.topic_id is not None) == (version >= 7)


def test_topic_is_seen_when_it_is_durable_and_not_before() -> None:
    harness = Harness()
    request = m.CreateTopicsRequest(topics=[wanted()], timeout_ms=1000)
    answers = harness.begin(ApiKey.CREATE_TOPICS, request)
    assert (answers, harness.broker.catalog.topic("t")) == ([], None)
    second = harness.begin(ApiKey.CREATE_TOPICS, request)
    assert second[0].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "it is under way"
    harness.node.run_turn()
    assert answers[0].topics[0].error_code == 0
    assert harness.broker.catalog.topic("t") is not None


@pytest.mark.parametrize(("timeout_ms", "longest_ms"), [(1, FLUSH_MS_MIN), (FLUSH_MS_MIN + 1, FLUSH_MS_MIN + 1)])
@pytest.mark.parametrize("is_over", [False, True])
def test_deadline_of_create(timeout_ms: int, longest_ms: int, is_over: bool) -> None:
    """What has begun is not given up after a moment: the answer would not tell what happened."""
    waited_ms, codes = (longest_ms, [ErrorCode.REQUEST_TIMED_OUT]) if is_over else (longest_ms - 1, [])
    harness = Harness()
    harness.hold()
    answers = harness.begin(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[wanted()], timeout_ms=timeout_ms))
    harness.node.advance(waited_ms)
    assert [answer.topics[0].error_code for answer in answers] == codes
    harness.let_go()
    assert len(answers) == 1
    assert harness.broker.catalog.topic("t") is not None, "it happened nonetheless"


# Deletion.


def delete(harness: Harness, *topics: tuple[str | None, UUID | None], version: int = 6) -> dict[tuple[Any, Any], int]:
    request = m.DeleteTopicsRequest(
        topic_names=[name or "" for name, _ in topics],
        topics=[m.DeleteTopicsRequestDeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics],
        timeout_ms=1000,
    )
    response = harness.ask(ApiKey.DELETE_TOPICS, request, version=version)
    return {(result.name, result.topic_id): result.error_code for result in response.responses}


def test_delete_by_name_and_by_id() -> None:
    harness = Harness()
    a, b, unknown = harness.create("a"), harness.create("b"), UUID(int=77)
    seen = delete(harness, ("a", None), (None, b), ("x", None), (None, unknown))
    assert seen == {
        ("a", a): 0,
        ("b", b): 0,
        ("x", None): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, unknown): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert list(harness.broker.catalog.topics()) == []


def test_deletions_that_are_ambiguous() -> None:
    harness = Harness()
    a, b, c = harness.create("a"), harness.create("b"), harness.create("c")
    seen = delete(harness, ("a", a), (None, None), ("b", None), ("b", None), ("c", None), (None, c))
    assert set(seen.values()) == {ErrorCode.INVALID_REQUEST}
    assert {topic.name for topic in harness.broker.catalog.topics()} == {"a", "b", "c"}
    assert delete(harness, (None, b)) == {("b", b): 0}


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    harness = Harness(delete_topic_enable="false")
    harness.create("a")
    assert delete(harness, ("a", None), version=version) == {("a", None): code}


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_of_delete(version: int) -> None:
    harness = Harness()
    harness.create("a")
    assert list(delete(harness, ("a", None), version=version).values()) == [0]
    assert harness.broker.catalog.topic("a") is None


def test_topic_of_the_same_name_begins_anew() -> None:
    harness = Harness()
    first = harness.create("a")
    harness.write("a", b"x")
    delete(harness, ("a", None))
    assert harness.create("a") != first
    assert harness.write("a", b"y") == 0


def test_internal_topics_can_be_deleted() -> None:
    harness = Harness()
    harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert list(delete(harness, ("__consumer_offsets", None)).values()) == [0]


def test_others_hear_of_changes_before_they_are_answered() -> None:
    harness = Harness()
    heard: list[tuple[dict[str, int], dict[str, int], list[str], tuple[str, ...]]] = []

    def listen(delta: ImageDelta) -> None:
        created = {topic.name: topic.partition_count for topic in delta.created}
        changed = {topic.name: topic.partition_count for topic in delta.changed}
        heard.append((created, changed, [topic.name for topic in delta.deleted], delta.changed_group_configs))

    harness.broker.catalog.watch(listen)
    harness.create("t")
    assert grow(harness, 3) == 0
    configure(harness, 2, "t", "retention.ms")
    configure(harness, 32, "g", "consumer.session.timeout.ms")
    delete(harness, ("t", None))
    assert heard == [
        ({"t": 1}, {}, [], ()),
        ({}, {"t": 3}, [], ()),
        ({}, {"t": 3}, [], ()),
        ({}, {}, [], ("g",)),
        ({}, {}, ["t"], ()),
    ]


def configure(harness: Harness, resource_type: int, name: str, key: str) -> None:
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value="50000")
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[change]
    )
    (answer,) = harness.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=[resource])
    ).responses
    assert answer.error_code == 0, answer


# More partitions.


def grow(harness: Harness, count: int, *, assignments: list[list[int]] | None = None, **what: Any) -> int:
    placed = [m.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments or ()]
    topic = m.CreatePartitionsTopic(name="t", count=count, assignments=placed if assignments is not None else None)
    request = m.CreatePartitionsRequest(topics=[topic], timeout_ms=1000, **what)
    return int(harness.ask(ApiKey.CREATE_PARTITIONS, request).results[0].error_code)


# fmt: off
GROWN: dict[tuple[int, tuple[tuple[int, ...], ...] | None], ErrorCode] = {  # of a topic with two partitions
    (3, None):         ErrorCode.NONE,
    (2, None):         ErrorCode.INVALID_PARTITIONS,
    (1, None):         ErrorCode.INVALID_PARTITIONS,
    (0, None):         ErrorCode.INVALID_PARTITIONS,
    (10_001, None):    ErrorCode.NONE,
    (10_002, None):    ErrorCode.NONE,
    (10_003, None):    ErrorCode.POLICY_VIOLATION,
    (10_003, ((5,),)): ErrorCode.POLICY_VIOLATION,
    (3, ((1,),)):      ErrorCode.NONE,
    (4, ((1,),)):      ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    (3, ((5,),)):      ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    (3, ((1, 1),)):    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
}
# fmt: on


@pytest.mark.parametrize("row", GROWN)
def test_grow(row: tuple[int, tuple[tuple[int, ...], ...] | None]) -> None:
    count, assignments = row
    harness = Harness()
    harness.create("t", 2)
    harness.write("t", b"x", partition=1)
    code = grow(harness, count, assignments=None if assignments is None else [list(one) for one in assignments])
    assert code == GROWN[row]
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    assert topic.partition_count == (2 if code else count)
    assert harness.write("t", b"y", partition=1) == 1


def test_the_new_partitions_of_all_topics_of_a_request_count() -> None:
    """Seen on a 4.4.0: unknown topics, topics that would not grow and names given twice do not count."""
    harness = Harness()
    harness.create("a")
    harness.create("b", 2)

    def grown(*topics: tuple[str, int]) -> list[tuple[str, int, str | None]]:
        request = m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in topics],
            timeout_ms=1000,
            validate_only=True,
        )
        results = harness.ask(ApiKey.CREATE_PARTITIONS, request).results
        return [(each.name, each.error_code, each.error_message) for each in results]

    too_many = (ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")
    assert [code for _, code, _ in grown(("a", 5_001), ("b", 5_002), ("none", 99_999))] == [0, 0, 3]
    assert [code for _, code, _ in grown(("a", 10_001), ("b", 1))] == [0, ErrorCode.INVALID_PARTITIONS]
    assert grown(("a", 5_001), ("b", 5_003), ("none", 1)) == [(name, *too_many) for name in ("a", "b", "none")]
    assert grown(("a", 2_147_483_647), ("b", 2_147_483_647)) == [(name, *too_many) for name in ("a", "b")]
    twice = ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert grown(("a", 20_000), ("a", 3), ("b", 3)) == [twice, ("b", 0, None)]
    assert grown(("a", 20_000), ("a", 3), ("b", 20_000)) == [twice, ("b", *too_many)]


LARGE: dict[tuple[tuple[str, int], ...], list[tuple[int, str | None]]] = {
    (("a", 4_999), ("b", 4_999)): [(0, None)] * 2,
    (("a", 5_000), ("b", 4_999)): [(44, "Unable to perform excessively large batch operation.")] * 2,
    (("a", 10_000),): [(44, "Unable to perform excessively large batch operation.")],
    (("a", 10_001),): [(44, "Excessively large number of partitions per request.")],
    (("old", 5), ("a", 9_999)): [(44, "Excessively large number of partitions per request.")] * 2,
    (("old", 9_000), ("a", 1_000)): [(36, "Topic 'old' already exists."), (0, None)],
    (("d", 5_000), ("d", 4_000), ("a", 900)): [(42, "Duplicate topic name."), (0, None)],
    (("a", 2_147_483_647), ("b", -1), ("c", -5)): [(44, "Excessively large number of partitions per request.")] * 3,
}
"""Topics with their partitions, and the answers of a 4.4.0."""


@pytest.mark.parametrize("topics", LARGE)
def test_a_request_makes_10_000_records_at_most(topics: tuple[tuple[str, int], ...]) -> None:
    harness = Harness()
    harness.create("old")
    results = create(harness, *(wanted(name, count) for name, count in topics), validate_only=True)
    assert [(each.error_code, each.error_message) for each in results] == LARGE[topics]


def test_grow_what_is_not_there() -> None:
    assert grow(Harness(), 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validate_only_grows_nothing() -> None:
    harness = Harness()
    harness.create("t")
    assert grow(harness, 3, validate_only=True) == 0
    assert harness.broker.catalog.topic("t").partition_count == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("is_id_first", [False, True])
def test_the_name_and_the_id_of_one_topic_are_refused_together(is_id_first: bool) -> None:
    """One result, with both. Source: a 4.2.1."""
    harness = Harness()
    topic_id = harness.create("t")
    states = [m.DeleteTopicsRequestDeleteTopicState(name="t"), m.DeleteTopicsRequestDeleteTopicState(topic_id=topic_id)]
    request = m.DeleteTopicsRequest(topics=states[::-1] if is_id_first else states, timeout_ms=1000)
    (result,) = harness.ask(ApiKey.DELETE_TOPICS, request).responses
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.INVALID_REQUEST)
    assert result.error_message == "The provided topic name maps to an ID that was already supplied."
    assert harness.broker.catalog.topic("t") is not None


def test_many_topics_are_created_grown_and_deleted_in_steps() -> None:
    """Each step is small, all are answered together, in their order, and a repeated name is refused wherever it is."""
    harness = Harness()
    names = [f"t{number}" for number in range(300)]
    wanted = [
        m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (*names, "twice", "twice")
    ]
    response = harness.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=wanted, timeout_ms=1000))
    assert [(each.name, each.error_code) for each in response.topics] == [
        *((name, 0) for name in names),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    grown = [m.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (*names, names[0])]
    response = harness.ask(ApiKey.CREATE_PARTITIONS, m.CreatePartitionsRequest(topics=grown, timeout_ms=1000))
    assert [(each.name, each.error_code) for each in response.results] == [
        (names[0], ErrorCode.INVALID_REQUEST),
        *((name, 0) for name in names[1:]),
    ]
    states = [m.DeleteTopicsRequestDeleteTopicState(name=name) for name in names]
    response = harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topics=states, timeout_ms=1000))
    assert [(each.name, each.error_code) for each in response.responses] == [(name, 0) for name in names]
    assert not list(harness.broker.catalog.topics())


@pytest.mark.parametrize(
    ("partitions", "left"),
    [
        ([9_999, 6_000, 4_000, 6_000], [3, 1, 0]),
        ([1] * (2 * CHUNK + 1), [CHUNK + 1, 1, 0]),
    ],
)
def test_few_partitions_are_deleted_in_one_turn(partitions: list[int], left: list[int]) -> None:
    harness = Harness()
    for number, count in enumerate(partitions):
        harness.create(f"t{number}", partitions=count)
    states = [m.DeleteTopicsRequestDeleteTopicState(name=f"t{number}") for number in range(len(partitions))]
    request = m.DeleteTopicsRequest(topics=states, timeout_ms=1000)

    def count_left() -> int:
        harness.node.run_turn()
        return len(list(harness.broker.catalog.topics()))

    steps = harness.broker.handlers[ApiKey.DELETE_TOPICS](request, Asker(6), lambda _answer: None)
    found = [count_left() for _ in steps]
    assert [count for count, _ in groupby(found) if count < len(partitions)] == left


def test_a_topic_that_another_request_deletes_meanwhile_is_unknown() -> None:
    harness = Harness()
    names = [f"t{number}" for number in range(2 * CHUNK)]
    for name in names:
        harness.create(name)
    states = [m.DeleteTopicsRequestDeleteTopicState(name=name) for name in names]
    answers: list[m.DeleteTopicsResponse] = []
    request = m.DeleteTopicsRequest(topics=states, timeout_ms=1000)
    steps = harness.broker.handlers[ApiKey.DELETE_TOPICS](request, Asker(6), answers.append)
    next(steps)
    other = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name=names[-1])], timeout_ms=1000)
    assert harness.ask(ApiKey.DELETE_TOPICS, other).responses[0].error_code == 0
    assert drain(steps) is None
    harness.node.settle()
    codes = {result.name: result.error_code for result in answers[0].responses}
    assert codes == dict.fromkeys(names, 0) | {names[-1]: ErrorCode.UNKNOWN_TOPIC_ID}
