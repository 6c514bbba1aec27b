"""Client telemetry (KIP-714): subscriptions, intervals, refusals, and the metrics that arrive."""

from collections.abc import Generator, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.catalog.view import CatalogChange, Setting
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.telemetry.instances import ClientInstance, ClientInstances
from kohort.broker.telemetry.otlp import DataPoint, TooManyFieldsError, read_metrics
from kohort.broker.telemetry.received import PushingClient, ReceivedMetrics
from kohort.model.errors import CorruptError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.compression import Codec, compress
from tests.broker.harness import Harness
from tests.broker.telemetry.otlp_messages import field, gauge, histogram, message, total

INTERVAL_MS = 1_000


def subscribed(name: str = "all", **configs: str) -> Harness:
    harness = Harness()
    subscribe(harness, name, **{"metrics": "*", "interval.ms": str(INTERVAL_MS)} | configs)
    return harness


def subscribe(harness: Harness, name: str, **configs: str) -> None:
    setting = Setting(CLIENT_METRICS_KIND, name, dict(configs) or None)
    harness.broker.catalog.change(CatalogChange(settings=(setting,)), lambda _code: None)
    harness.node.settle()


def get(harness: Harness, instance: UUID | None = None, client_id: str = "test") -> Any:
    request = m.GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    return harness.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, request, client_id=client_id)


def push(
    harness: Harness,
    answer: Any,
    metrics: bytes = b"",
    *,
    codec: int = 0,
    subscription: int | None = None,
    terminating: bool = False,
) -> ErrorCode:
    request = m.PushTelemetryRequest(
        client_instance_id=answer.client_instance_id,
        subscription_id=answer.subscription_id if subscription is None else subscription,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
    return ErrorCode(harness.ask(ApiKey.PUSH_TELEMETRY, request).error_code)


def values(harness: Harness) -> dict[str, float]:
    """The values that /metrics shows, by name and the labels that the client chose."""
    now_ms = harness.node.clock.now_ms()
    return {
        " ".join([series.name, *(f"{key}={text}" for key, text in series.labels[2:])]): series.value
        for series in harness.broker.telemetry.received.series(now_ms)
    }


def test_the_apis_are_listed_while_there_is_a_subscription() -> None:
    """A client that finds them asks for its subscriptions, and librdkafka logs that it did."""
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    harness = subscribed()

    def listed() -> set[ApiKey]:
        request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
        return telemetry & {
            API_KEYS[api.api_key] for api in harness.ask(ApiKey.API_VERSIONS, request, version=4).api_keys
        }

    assert listed() == telemetry
    subscribe(harness, "all")
    assert listed() == set()


def test_a_client_without_a_subscription_is_to_push_nothing() -> None:
    answer = get(Harness())
    assert (answer.error_code, answer.push_interval_ms, answer.requested_metrics) == (0, 300_000, ())
    assert list(answer.accepted_compression_types) == [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (1_048_576, True)
    assert answer.client_instance_id


@pytest.mark.parametrize(
    ("subscriptions", "metrics", "interval_ms"),
    [
        ([{"metrics": "a.,b."}], ["a.", "b."], 300_000),
        ([{"metrics": "a.", "interval.ms": "500"}, {"metrics": "b.", "interval.ms": "700"}], ["a.", "b."], 500),
        ([{"metrics": "a."}, {"metrics": "*"}], ["*"], 300_000),
        ([{"metrics": "a.", "match": "client_id=te.*"}], ["a."], 300_000),
        ([{"metrics": "a.", "match": "client_id=te"}], [], 300_000),
        ([{"metrics": "a.", "match": "client_software_name=tests,client_software_version=1\\..*"}], ["a."], 300_000),
        ([{"metrics": "a.", "match": "client_software_name=tests,client_id=other"}], [], 300_000),
        ([{"metrics": "a.", "match": "client_source_address=127\\.0\\.0\\.1"}], ["a."], 300_000),
        ([{"metrics": "a.", "match": "client_source_port=4711"}], ["a."], 300_000),
    ],
)
def test_the_subscription_is_the_union_of_those_that_match(
    subscriptions: list[dict[str, str]], metrics: list[str], interval_ms: int
) -> None:
    harness = Harness()
    for number, configs in enumerate(subscriptions):
        subscribe(harness, f"s{number}", **configs)
    answer = get(harness)
    assert (sorted(answer.requested_metrics), answer.push_interval_ms) == (metrics, interval_ms)


def test_a_client_asks_and_pushes_once_in_an_interval() -> None:
    harness = subscribed()
    answer = get(harness)
    assert get(harness, answer.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(harness, answer) == ErrorCode.NONE  # the first push may come at any time
    assert push(harness, answer) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.node.advance(INTERVAL_MS - 1)
    assert push(harness, answer) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.node.advance(1)
    assert push(harness, answer) == ErrorCode.NONE
    assert get(harness, answer.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(harness, answer, terminating=True) == ErrorCode.NONE
    harness.node.advance(INTERVAL_MS)
    assert push(harness, answer) == ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_has_another_number() -> None:
    harness = subscribed()
    answer = get(harness)
    subscribe(harness, "more", metrics="b.", match="client_id=test")
    assert push(harness, answer) == ErrorCode.NONE  # `*` is all, whatever is added
    subscribe(harness, "all")
    harness.node.advance(INTERVAL_MS)
    assert push(harness, answer) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert harness.broker.telemetry.unknown_subscriptions == 1
    # The client asks again, at once.
    again = get(harness, answer.client_instance_id)
    assert (again.error_code, list(again.requested_metrics)) == (0, ["b."])
    assert again.subscription_id != answer.subscription_id


@pytest.mark.parametrize("instance", [UUID(int=0), UUID(int=1)])
def test_reserved_ids_do_not_push(instance: UUID) -> None:
    request = m.PushTelemetryRequest(client_instance_id=instance, subscription_id=0, terminating=False, metrics=b"")
    answer = Harness().ask(ApiKey.PUSH_TELEMETRY, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


METRICS = message(
    [
        gauge("org.apache.kafka.producer.connection.count", 3, node="n-1"),
        total("org.apache.kafka.producer.records.total", 10),
        total("org.apache.kafka.producer.open", 7, is_delta=False, is_monotonic=False),
        histogram("skipped"),
    ]
)
SHOWN = {
    "kohort_client_producer_connection_count node=n-1": 3.0,
    "kohort_client_producer_records_total": 10.0,
    "kohort_client_producer_open": 7.0,
}


@pytest.mark.parametrize("codec", list(Codec))
def test_pushed_metrics_are_shown_whatever_their_compression(codec: Codec) -> None:
    harness = subscribed()
    assert push(harness, get(harness), compress(METRICS, codec), codec=codec) == ErrorCode.NONE
    assert values(harness) == SHOWN


def test_differences_of_counters_are_added_up() -> None:
    harness = subscribed()
    answer = get(harness)
    for _ in range(3):
        assert push(harness, answer, METRICS) == ErrorCode.NONE
        harness.node.advance(INTERVAL_MS)
    assert values(harness) == SHOWN | {"kohort_client_producer_records_total": 30.0}


def test_values_of_a_client_that_does_not_push_any_more_are_forgotten() -> None:
    harness = subscribed()
    push(harness, get(harness), METRICS)
    harness.node.advance(59_999)
    assert values(harness)
    harness.node.advance(1)
    assert not values(harness)
    assert len(harness.broker.telemetry.received) == 0


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (b"\x0a\x7f", 0, ErrorCode.INVALID_RECORD),                                # longer than the message
        (b"\x0a", 0, ErrorCode.INVALID_RECORD),
        (b"\xff" * 20, 0, ErrorCode.INVALID_RECORD),
        (field(1, field(2, field(2, field(1, b"\xff")))), 0, ErrorCode.INVALID_RECORD),  # a name that is not UTF-8
        (b"\x0b", 0, ErrorCode.INVALID_RECORD),                                    # a group
        (b"no frame", 4, ErrorCode.INVALID_RECORD),
        (b"", 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"", -1, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(1_048_577), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(bytes(5 << 20), Codec.ZSTD), 4, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)  # fmt: skip
def test_pushes_that_are_refused(metrics: bytes, codec: int, code: ErrorCode) -> None:
    harness = subscribed()
    assert push(harness, get(harness), metrics, codec=codec) == code
    assert not values(harness)


@given(st.binary(max_size=200) | st.lists(st.integers(0, len(METRICS) - 1), max_size=5))
def test_any_bytes_are_read_or_refused(changed: bytes | list[int]) -> None:
    data = bytearray(METRICS)
    if isinstance(changed, bytes):
        data = bytearray(changed)
    else:
        for place in changed:
            data[place] ^= 0x55
    try:
        for point in read_metrics(bytes(data)):
            assert point is None or isinstance(point.value, float)
    except CorruptError:
        pass


def test_the_work_for_a_push_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.telemetry.telemetry.TELEMETRY_POINTS_MAX", 3)
    harness = subscribed()
    metrics = message(gauge(f"g{number}", number) for number in range(10))
    assert push(harness, get(harness), metrics) == ErrorCode.NONE
    assert (len(values(harness)), harness.broker.telemetry.received.dropped) == (3, 1)


def test_what_clients_make_the_broker_show_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.telemetry.received.TELEMETRY_SERIES_MAX", 5)
    monkeypatch.setattr("kohort.broker.telemetry.received.TELEMETRY_NAMES_MAX", 2)
    received = ReceivedMetrics()
    instance = uuid4()
    client = received.begin(instance, "c" * 1_000, 0, 10)

    def add(name: str, label: str = "", *, is_counter: bool = False) -> None:
        received.add(client, DataPoint(name, (("1 label", label),), 1.0, is_counter, is_counter))

    for number in range(3):
        add(f"name{number}")
    assert (len(received), received.dropped) == (2, 1)
    add("name0", is_counter=True, label="of another type")
    add("n" * 201)
    for number in range(9):
        add("name1", str(number))
    assert (len(received), received.dropped) == (5, 9)
    series = list(received.series(0))
    assert all(len(text) <= 200 for each in series for _, text in each.labels)
    assert {each.labels[2][0] for each in series} == {"_1_label"}
    assert list(received.series(10)) == []
    assert len(received) == 0
    # Names that have no value any more have room for others.
    client = received.begin(instance, "c", 20, 30)
    add("other", is_counter=True)
    add("name0", is_counter=True)
    assert {each.name for each in received.series(20)} == {"kohort_client_other_total", "kohort_client_name0_total"}


def test_texts_of_clients_are_cut_before_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "é" * 1_999_999 + "x"
    (read,) = read_metrics(message([gauge("name", 1, **{text: text})]))
    assert read is not None
    assert read.attributes == (("é" * 200, "é" * 200),)
    assert list(read_metrics(message([gauge("n" * 500, 1)]))) == [DataPoint("n" * 201, (), 1.0, False, False)]
    # The cut is within a character of three bytes.
    (read,) = read_metrics(message([gauge("name", 1, k="a" + "€" * 300)]))
    assert read is not None
    assert read.attributes == (("k", "a" + "€" * 199),)
    monkeypatch.setattr("kohort.broker.telemetry.received.TELEMETRY_TEXT_BYTES_MAX", 1_000)
    received = ReceivedMetrics()
    client = received.begin(uuid4(), "c", 0, 10)
    for number in range(9):
        received.add(client, DataPoint(f"name{number}", (("label", "x" * 200),), 1.0, False, False))
    assert (len(received), received.dropped) == (2, 7)
    assert list(received.series(10)) == []
    received.add(client, DataPoint("name", (("label", "x" * 200),), 1.0, False, False))
    assert len(received) == 1


def test_the_fields_of_a_push_are_counted_as_work() -> None:
    """Compressed runs of empty fields are the most work for a byte: at each depth, in steps, and not without end."""
    empty = field(15, 0)
    deep = message([gauge("name", 1) + empty * 5_000])
    assert [each is None for each in read_metrics(deep)] == [True] * 5 + [False]
    nested = field(1, field(2, field(2, field(1, "name") + field(5, field(1, field(7, empty * 100_000))))))
    for data in (empty * 100_001, nested):
        steps = read_metrics(data)
        assert [next(steps) for _ in range(100)] == [None] * 100
        with pytest.raises(TooManyFieldsError):
            next(steps)
    harness = subscribed()
    data = compress(empty * 2_000_000, Codec.ZSTD)
    assert len(data) < 1_000
    assert push(harness, get(harness), data, codec=Codec.ZSTD) == ErrorCode.TELEMETRY_TOO_LARGE
    assert harness.broker.telemetry.refused == 1


def test_clients_without_values_take_no_room_and_a_push_looks_at_no_other_client() -> None:
    received = ReceivedMetrics()
    point = DataPoint("name", (), 1.0, False, False)
    for _ in range(100):
        received.begin(uuid4(), "c", 0, 10)
    assert len(received._clients) == 0
    clients = [received.begin(uuid4(), "c", now_ms, now_ms + 1_000) for now_ms in range(200)]
    for client in clients:
        received.add(client, point)
    visited: list[int] = []

    class Counted(dict[UUID, PushingClient]):
        def __getitem__(self, key: UUID) -> PushingClient:
            visited.append(1)
            return super().__getitem__(key)

        def __iter__(self) -> Iterator[UUID]:
            raise AssertionError("a push walks over all clients")

        items = values = keys = __iter__  # type: ignore[assignment]

    received._clients = Counted(received._clients)
    received.begin(clients[0].instance_id, "c", 999, 5_000)
    assert visited == []
    received.begin(uuid4(), "c", 1_050, 2_050)
    # One of them has pushed again, 50 others expire.
    assert (len(received), len(visited)) == (150, 51)
    received._clients = dict(dict.items(received._clients))
    (left,) = received.series(1_199)
    assert left.labels[0] == ("client_instance_id", uuid_text(clients[0].instance_id))


def test_metrics_of_a_client_that_was_asked_for_none_are_not_read() -> None:
    harness = Harness()
    assert push(harness, get(harness), METRICS) == ErrorCode.NONE
    assert not values(harness)


def result(steps: Generator[None, None, ClientInstance]) -> ClientInstance:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            instance: ClientInstance = end.value
            return instance


def test_the_number_of_instances_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.telemetry.instances.CLIENT_INSTANCES_MAX", 3)
    instances = ClientInstances({})
    ids = [uuid4() for _ in range(5)]
    for instance in ids:
        result(instances.of(instance, dict, 0))
    assert [instance in instances for instance in ids] == [False, False, True, True, True]
    result(instances.of(ids[2], dict, 900_000))
    assert len(instances) == 1


def test_subscriptions_are_matched_in_steps_and_each_is_compiled_once() -> None:
    configs = {"metrics": "a.", "match": "client_id=a+"}
    instances = ClientInstances({f"s{number}": configs for number in range(200)})
    steps = instances.of(uuid4(), lambda: {"client_id": "aa"}, 0)
    assert sum(1 for _ in steps) == 4
    before = dict(instances._subscriptions)
    changed = Setting(CLIENT_METRICS_KIND, "s7", {"metrics": "b.", "match": "client_id=a+"})
    instances.on_subscriptions([changed, Setting(CLIENT_METRICS_KIND, "s8", None)])
    assert {name for name, each in before.items() if instances._subscriptions.get(name) is not each} == {"s7", "s8"}
    instance = result(instances.of(uuid4(), lambda: {"client_id": "aa"}, 0))
    assert instance.metrics == ["a.", "b."]


def test_a_property_that_is_too_long_for_an_expression_matches_none() -> None:
    instances = ClientInstances({"s": {"metrics": "a.", "match": "client_id=a+"}})
    for size, metrics in ((1_024, ["a."]), (1_025, [])):
        properties = {"client_id": "a" * size}
        assert result(instances.of(uuid4(), properties.copy, 0)).metrics == metrics


def test_a_stored_subscription_that_is_invalid_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    instances = ClientInstances({"bad": {"metrics": "a.", "match": "client_id=("}, "good": {"metrics": "b."}})
    assert result(instances.of(uuid4(), dict, 0)).metrics == ["b."]
    assert "telemetry.subscription_set_aside name='bad'" in caplog.text
