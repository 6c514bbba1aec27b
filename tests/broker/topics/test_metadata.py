"""What clients are told of topics, brokers and coordinators. Source: Kafka KafkaApis; probed on 4.2.1, item by item."""

from typing import Any
from uuid import UUID

import pytest

from kohort.broker.cluster import DEFAULT_LISTENER, Endpoint
from kohort.broker.topics import publication
from kohort.broker.topics.publication import HIDDEN_MS
from kohort.model.errors import ErrorCode
from kohort.model.ids import TRANSACTION_STATE
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import CLUSTER_ID, Harness
from tests.broker.recorded import recorded

UNASKED = -(1 << 31)


def ask(harness: Harness, *names: str, version: int = 13, **what: Any) -> m.MetadataResponse:
    topics = what.pop("topics", [m.MetadataRequestTopic(name=name) for name in names])
    response: m.MetadataResponse = harness.ask(
        ApiKey.METADATA, m.MetadataRequest(topics=topics, **what), version=version
    )
    return response


def codes(response: m.MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
def test_every_version(version: int) -> None:
    harness = Harness()
    topic_id = harness.create("t", 2)
    response = ask(harness, "t", version=version)
    (broker,), (topic,) = response.brokers, response.topics
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (topic_id if version >= 10 else None)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, (1,), (1,)),
        (1, 1, (1,), (1,)),
    ]
    assert [p.leader_epoch for p in topic.partitions] == [0 if version >= 7 else -1] * 2
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)


# fmt: off
ALL = {  # topics asked for, version: does the answer hold every topic?
    ((), 0):    True,
    ((), 1):    False,
    (None, 1):  True,
    (None, 13): True,
}
# fmt: on


@pytest.mark.parametrize("row", ALL)
def test_all_topics(row: tuple[tuple[()] | None, int]) -> None:
    harness = Harness()
    harness.create("a")
    harness.create("b")
    response = ask(harness, topics=row[0], version=row[1])
    assert {topic.name for topic in response.topics} == ({"a", "b"} if ALL[row] else set())


def test_those_that_exist_come_first_and_once() -> None:
    harness = Harness(auto_create_topics_enable="false")
    harness.create("t")
    response = ask(harness, "x", "t", "t", "x")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0), ("x", 3)]


def test_by_id() -> None:
    harness = Harness()
    topic_id, unknown = harness.create("t"), UUID(int=3)
    asked = [m.MetadataRequestTopic(name=None, topic_id=i) for i in (unknown, topic_id)]
    response = ask(harness, topics=[*asked, m.MetadataRequestTopic(name="t")], version=12)
    seen = [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics]
    assert seen == [("t", topic_id, 0), (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)]


# fmt: off
WHOLE = {  # (version, name, has id): the code of the whole request
    (10, None, False): ErrorCode.INVALID_REQUEST,
    (11, "t", True):   ErrorCode.INVALID_REQUEST,
    (12, None, False): ErrorCode.UNKNOWN_SERVER_ERROR,
    (13, None, False): ErrorCode.UNKNOWN_SERVER_ERROR,
}
# fmt: on


@pytest.mark.parametrize("row", WHOLE)
def test_whole_request_refused(row: tuple[int, str | None, bool]) -> None:
    version, name, has_id = row
    harness = Harness()
    harness.create("t")
    asked = m.MetadataRequestTopic(name=name, topic_id=UUID(int=5) if has_id else None)
    response = ask(harness, topics=[m.MetadataRequestTopic(name="t"), asked], version=version)
    assert {topic.error_code for topic in response.topics} == {WHOLE[row]}
    assert response.error_code == (WHOLE[row] if version == 13 else 0)


# fmt: off
UNKNOWN = {  # (name, allowed by the broker, by the request): code, does it come into being?
    ("new", True, True):                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
    ("new", True, False):               (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ("new", False, True):               (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ("a_b", True, True):                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),   # collides with a.b
    ("bad name", True, True):           (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ("bad name", True, False):          (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ("__consumer_offsets", True, True): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
}
# fmt: on


@pytest.mark.parametrize("row", UNKNOWN)
def test_unknown_topics(row: tuple[str, bool, bool]) -> None:
    name, broker_allows, request_allows = row
    harness = Harness(auto_create_topics_enable=str(broker_allows).lower(), num_partitions="3")
    harness.create("a.b")
    response = ask(harness, name, allow_auto_topic_creation=request_allows)
    code, is_created = UNKNOWN[row]
    assert codes(response) == {name: code}
    assert (harness.broker.catalog.topic(name) is not None) == is_created
    if is_created:
        harness.node.advance(HIDDEN_MS)
        (topic,) = ask(harness, name).topics
        assert (topic.error_code, topic.is_internal) == (0, name.startswith("__"))
        assert len(topic.partitions) == (50 if topic.is_internal else 3)


def test_old_versions_cannot_forbid_creation() -> None:
    harness = Harness()
    ask(harness, "t", version=3)
    harness.node.advance(HIDDEN_MS)
    assert codes(ask(harness, "t", version=3)) == {"t": 0}


def test_asking_twice_creates_once() -> None:
    harness = Harness()
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])
    for _ in range(2):
        assert codes(harness.begin(ApiKey.METADATA, request)[0]) == {"t": 3}
    harness.node.settle()
    assert [topic.name for topic in harness.broker.catalog.topics()] == ["t"]


def seen(harness: Harness, name: str, topic_id: UUID) -> tuple[bool, bool, bool, bool]:
    """Whether a topic is named by name, by id, among all, and in pages of partitions."""
    described = harness.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, m.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=9)
    )
    by_id = ask(harness, topics=[m.MetadataRequestTopic(name=None, topic_id=topic_id)])
    return (
        codes(ask(harness, name, allow_auto_topic_creation=False)) == {name: 0},
        codes(by_id) == {name: 0},
        name in codes(ask(harness, topics=None)),
        name in {topic.name for topic in described.topics},
    )


def test_a_client_that_asks_again_at_once_hears_of_no_topic() -> None:
    """A group reader of kafka-go, which would wait without partitions. The controller has the topic, brokers name it later."""
    harness = Harness(num_partitions="3")
    assert codes(ask(harness, "t")) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    harness.node.advance(HIDDEN_MS - 1)
    assert codes(ask(harness, "t")) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert seen(harness, "t", topic.topic_id) == (False, False, False, False)
    harness.node.advance(1)
    assert seen(harness, "t", topic.topic_id) == (True, True, True, True)
    assert len(ask(harness, "t").topics[0].partitions) == 3


def test_the_controller_has_the_topic_that_nobody_hears_of() -> None:
    """Source: a 4.2.1. A topic that is created anew by CreateTopics is named when that is answered."""
    harness = Harness()
    ask(harness, "t")
    wanted = [m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)]
    request = m.CreateTopicsRequest(topics=wanted, timeout_ms=1000)
    (refused,) = harness.ask(ApiKey.CREATE_TOPICS, request).topics
    assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    state = m.DeleteTopicsRequestDeleteTopicState(name="t", topic_id=None)
    (deleted,) = harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topics=[state], timeout_ms=1000)).responses
    assert deleted.error_code == 0
    assert seen(harness, "t", harness.create("t", 2)) == (True, True, True, True)


def test_internal_topics_are_named_at_once() -> None:
    """Coordinators wait for them."""
    harness = Harness()
    ask(harness, TRANSACTION_STATE)
    assert codes(ask(harness, TRANSACTION_STATE)) == {TRANSACTION_STATE: 0}


def test_topics_that_are_hidden_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "UNPUBLISHED_TOPICS_MAX", 2)
    harness = Harness()
    names = ["a", "b", "c"]
    ask(harness, *names)
    assert codes(ask(harness, *names, allow_auto_topic_creation=False)) == {"a": 0, "b": 3, "c": 3}
    harness.node.advance(HIDDEN_MS)
    assert codes(ask(harness, *names)) == {"a": 0, "b": 0, "c": 0}
    assert not harness.broker.publication._until, "nothing is kept"


@pytest.mark.parametrize(
    ("version", "topic_operations", "cluster_operations"),
    [(7, UNASKED, UNASKED), (8, 3576, 8096), (10, 3576, 8096), (11, 3576, UNASKED), (13, 3576, UNASKED)],
)
def test_authorized_operations(version: int, topic_operations: int, cluster_operations: int) -> None:
    harness = Harness()
    harness.create("t")
    wishes = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    response = ask(harness, "t", version=version, **wishes)
    assert response.topics[0].topic_authorized_operations == topic_operations
    assert response.cluster_authorized_operations == cluster_operations
    unasked = ask(harness, "t", version=version)
    assert (unasked.topics[0].topic_authorized_operations, unasked.cluster_authorized_operations) == (UNASKED, UNASKED)


def test_recorded_answers_of_apache_kafka() -> None:
    """Metadata of a real run, asked of a broker with the same topics: equal but for the order of topics and partitions."""
    compared = 0
    for version, request, expected in recorded(ApiKey.METADATA):
        named = [topic for topic in expected.topics if topic.error_code == 0]
        harness = Harness(auto_create_topics_enable="false")
        harness.cluster.cluster_id = expected.cluster_id
        address = Endpoint(expected.brokers[0].host, expected.brokers[0].port)
        harness.cluster.here.endpoints[DEFAULT_LISTENER] = address
        if any(topic.error_code == 0 and topic.partitions[0].leader_epoch > 0 for topic in named):
            continue
        ids = {topic.name: harness.create(topic.name, len(topic.partitions)) for topic in named}
        if any(topic.topic_id is not None for topic in request.topics or ()):
            asked = [m.MetadataRequestTopic(name=None, topic_id=one) for one in ids.values()]
        else:
            asked = request.topics
        seen = ask(harness, topics=asked, version=version, allow_auto_topic_creation=False)
        assert comparable(seen) == comparable(expected)
        compared += 1
    assert compared > 50


def comparable(response: m.MetadataResponse) -> tuple[Any, ...]:
    topics = sorted(
        (
            topic.name,
            topic.error_code,
            topic.is_internal,
            sorted((p.partition_index, p.leader_id) for p in topic.partitions),
        )
        for topic in response.topics
    )
    brokers = [(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers]
    return (topics, brokers, response.cluster_id, response.controller_id, response.cluster_authorized_operations)


# DescribeTopicPartitions


def pages(harness: Harness, *names: str, limit: int, cursor: tuple[str, int] | None = None) -> Any:
    at = m.DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    response = harness.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
    after = response.next_cursor
    shown = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in response.topics]
    return shown, (after.topic_name, after.partition_index) if after else None


def three_topics() -> Harness:
    harness = Harness()
    for name in ("c", "a", "b"):
        harness.create(name, 2)
    return harness


# fmt: off
PAGES = {  # (names, limit, cursor): what is shown, where the next page begins
    ((), 100, None):               ([("a", 0, [0, 1]), ("b", 0, [0, 1]), ("c", 0, [0, 1])], None),
    ((), 3, None):                 ([("a", 0, [0, 1]), ("b", 0, [0])], ("b", 1)),
    ((), 2, None):                 ([("a", 0, [0, 1])], ("b", 0)),
    ((), 0, None):                 ([("a", 0, [0])], ("a", 1)),
    ((), 3, ("b", 1)):             ([("b", 0, [1]), ("c", 0, [0, 1])], None),
    ((), 9, ("bb", 1)):            ([("c", 0, [0, 1])], None),
    (("c", "x", "a"), 9, None):    ([("a", 0, [0, 1]), ("c", 0, [0, 1]), ("x", 3, [])], None),
    (("c", "a"), 9, ("c", 1)):     ([("c", 0, [1])], None),
    (("c", "a"), 9, ("b", 0)):     ([("a", 42, []), ("c", 42, [])], None),
    (("a",), 9, ("a", -1)):        ([("a", 42, [])], None),
}
# fmt: on


@pytest.mark.parametrize("row", PAGES)
def test_pages_of_partitions(row: tuple[tuple[str, ...], int, tuple[str, int] | None]) -> None:
    names, limit, cursor = row
    assert pages(three_topics(), *names, limit=limit, cursor=cursor) == PAGES[row]


# DescribeCluster


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_describe_cluster(version: int, endpoint_type: int, code: int) -> None:
    request = m.DescribeClusterRequest(endpoint_type=endpoint_type, include_cluster_authorized_operations=True)
    response = Harness().ask(ApiKey.DESCRIBE_CLUSTER, request, version=version)
    assert response.error_code == code
    if not code:
        assert (response.cluster_id, response.controller_id, len(response.brokers)) == (CLUSTER_ID, 1, 1)
        assert response.cluster_authorized_operations == 8096


# FindCoordinator

SHARE_KEY = "group:AAAAAAAAAAAAAAAAAAAAAA:0"

# fmt: off
COORDINATORS = {  # (version, key type, key) of a cluster that coordinates groups: the code at first, and once it is there
    (0, 0, "g"):        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE),
    (3, 0, "g"):        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE),
    (6, 0, "g"):        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE),
    (6, 1, "tx"):       (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (5, 2, SHARE_KEY):  (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    (6, 2, "g"):        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    (6, 2, SHARE_KEY):  (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (6, 3, "g"):        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
}
# fmt: on


@pytest.mark.parametrize("row", COORDINATORS)
def test_find_coordinator(row: tuple[int, int, str]) -> None:
    version, key_type, key = row
    harness = Harness()
    request = m.FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    for code in COORDINATORS[row]:
        answer = harness.ask(ApiKey.FIND_COORDINATOR, request, version=version)
        answer = answer.coordinators[0] if version >= 4 else answer
        assert answer.error_code == code
        assert (answer.node_id, answer.host, answer.port) == ((-1, "", -1) if code else (1, "localhost", 9092))
        assert (answer.error_message == "NONE") == (not code and 1 <= version < 4)


def test_many_coordinators_at_once() -> None:
    harness = Harness()
    request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    harness.ask(ApiKey.FIND_COORDINATOR, request)
    found = harness.ask(ApiKey.FIND_COORDINATOR, request).coordinators
    assert [(one.key, one.error_code) for one in found] == [("a", 0), ("b", 0)]


def test_topic_of_the_coordinator() -> None:
    harness = Harness(offsets_topic_num_partitions="7")
    harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=0, coordinator_keys=["a"]))
    topic = harness.broker.catalog.topic("__consumer_offsets")
    assert topic is not None
    assert topic.partition_count == 7
    assert topic.configs == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


# ApiVersions

# fmt: off
SOFTWARE = {
    ("java", "4.2.1"): ErrorCode.NONE,
    ("a", "1"):        ErrorCode.NONE,
    ("", "1"):         ErrorCode.INVALID_REQUEST,
    ("a", ""):         ErrorCode.INVALID_REQUEST,
    ("-a", "1"):       ErrorCode.INVALID_REQUEST,
    ("a.", "1"):       ErrorCode.INVALID_REQUEST,
    ("a b", "1"):      ErrorCode.INVALID_REQUEST,
}
# fmt: on


@pytest.mark.parametrize("software", SOFTWARE)
def test_client_software(software: tuple[str, str]) -> None:
    request = m.ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])
    response = Harness().ask(ApiKey.API_VERSIONS, request, version=4)
    assert response.error_code == SOFTWARE[software]
    assert bool(response.api_keys) == (not response.error_code)


# fmt: off
EXPECTED_BROKERS = {  # software, cluster id, broker id: the answer of Apache Kafka 4.4.0
    ("a", None, -1):               ErrorCode.NONE,
    ("a", CLUSTER_ID, 1):          ErrorCode.NONE,
    ("a", CLUSTER_ID, -1):         ErrorCode.INVALID_REQUEST,
    ("a", None, 1):                ErrorCode.INVALID_REQUEST,
    ("a", None, -2):               ErrorCode.INVALID_REQUEST,
    ("a", "", -1):                 ErrorCode.INVALID_REQUEST,
    ("a", "", 1):                  ErrorCode.REBOOTSTRAP_REQUIRED,
    ("a", "another", 1):           ErrorCode.REBOOTSTRAP_REQUIRED,
    ("a", CLUSTER_ID.upper(), 1):  ErrorCode.REBOOTSTRAP_REQUIRED,
    ("a", CLUSTER_ID, 2):          ErrorCode.REBOOTSTRAP_REQUIRED,
    ("a", CLUSTER_ID, -2):         ErrorCode.REBOOTSTRAP_REQUIRED,
    ("", CLUSTER_ID, 1):           ErrorCode.INVALID_REQUEST,
    ("", "another", 1):            ErrorCode.INVALID_REQUEST,
}
# fmt: on


@pytest.mark.parametrize("expected", EXPECTED_BROKERS)
def test_a_client_may_name_the_broker_that_it_expects(expected: tuple[str, str | None, int]) -> None:
    """Source: KIP-1242."""
    software, cluster_id, node_id = expected
    request = m.ApiVersionsRequest(
        client_software_name=software, client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    harness = Harness(release="4.4.0")
    response = harness.ask(ApiKey.API_VERSIONS, request, version=5)
    assert response.error_code == EXPECTED_BROKERS[expected]
    is_refused = bool(response.error_code)
    assert bool(response.api_keys) == bool(response.supported_features) == (not is_refused)
    assert (response.finalized_features_epoch == -1) == is_refused
    # Version 4 has no such fields.
    older = harness.ask(ApiKey.API_VERSIONS, request, version=4)
    assert older.error_code == (ErrorCode.NONE if software else ErrorCode.INVALID_REQUEST)


SUPPORTED_FEATURES = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 29),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
"""As Apache Kafka 4.2.1 shows them; it shows that of streams groups too."""
BY_API = {"group.version", "share.version", "transaction.version"}
"""Features of coordinators, which this broker has none of."""
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""APIs that Kafka lists only if a receiver of metrics is configured, and Kohort if there is a subscription."""


@pytest.mark.parametrize("version", range(5))
def test_api_versions_are_those_of_kafka_for_what_is_served(version: int) -> None:
    harness = Harness(release="4.2.1")
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = harness.ask(ApiKey.API_VERSIONS, request, version=version)
    shown = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert set(shown) == set(harness.broker.handlers) - TELEMETRY
    for call_version, _, kafka in recorded(ApiKey.API_VERSIONS)[:3]:
        theirs = {api.api_key: (api.min_version, api.max_version) for api in kafka.api_keys}
        assert call_version >= 0
        assert {key: theirs[key] for key in shown} == shown
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    assert supported.items() <= SUPPORTED_FEATURES.items()
    assert (
        set(supported)
        == {name for name, (oldest, _) in SUPPORTED_FEATURES.items() if version == 4 or (version == 3 and oldest)}
        - BY_API
    )
    assert finalized == (
        {name: newest for name, (_, newest) in SUPPORTED_FEATURES.items() if name not in BY_API} if version >= 3 else {}
    )


def test_features_appear_with_their_apis() -> None:
    harness = Harness()
    handlers = harness.broker.handlers
    harness.broker.serve(ApiKey.CONSUMER_GROUP_HEARTBEAT, handlers[ApiKey.METADATA])
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = harness.ask(ApiKey.API_VERSIONS, request, version=4)
    shown = [(f.name, f.max_version_level, f.min_version_level) for f in response.finalized_features]
    assert [each for each in shown if each[0] in BY_API] == [("group.version", 1, 1)]
    old = harness.ask(ApiKey.API_VERSIONS, request, version=3)
    # Before version 4 there is no place for a feature whose levels begin at 0.
    assert ([each.name for each in old.supported_features], len(old.finalized_features)) == (["metadata.version"], 4)
    versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ApiKey.END_TXN not in versions
    assert versions[ApiKey.PRODUCE] == (0, 13)


def test_a_coordinator_is_found_once_it_is_hosted() -> None:
    harness = Harness()

    def find() -> int:
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
        (found,) = harness.ask(ApiKey.FIND_COORDINATOR, request).coordinators
        return int(found.error_code)

    assert find() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.broker.catalog.topic(TRANSACTION_STATE) is None
    harness.coordinators[TRANSACTION_STATE] = None
    assert find() == ErrorCode.COORDINATOR_NOT_AVAILABLE, "until its topic was created"
    assert find() == ErrorCode.NONE
