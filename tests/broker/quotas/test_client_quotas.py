"""Client quotas in virtual time: rates, throttle times, what they apply to, and what survives a restart."""

import pytest

from kohort.broker.broker import Broker
from kohort.broker.catalog.view import CatalogChange
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.quotas.limits import QUOTAS, ClientLimits, quota_setting
from kohort.broker.quotas.rates import SampledRate, TokenBucket, Windows
from kohort.model import limits
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch

T0 = 1_700_000_000_000


@pytest.mark.parametrize(
    ("records", "limit", "at_ms", "throttle_ms"),
    [
        # (time after the first record, value); the quota per second; when it is judged; the expected time
        ([(0, 100)], 10, 0, 0),                            # ten seconds' worth at once
        ([(0, 101)], 10, 0, 100),                          # (10.1 - 10) / 10 * 10 s
        ([(0, 200)], 10, 0, 10_000),
        ([(0, 200)], 10, 500, 10_000 - 500),               # the sample is half a second old: 200 / 10.5 s
        ([(0, 50), (5_000, 60)], 10, 5_000, 1_000),        # five samples are missing: 110 / 10 s
        ([(0, 50), (10_500, 60)], 10, 10_500, 0),          # 110 / 10.5 s = 10.48: 500 ms too much
        ([(0, 50), (11_000, 60)], 10, 11_000, 0),          # the first sample is out of the window
        ([(0, 50), (10_999, 60)], 10, 10_999, 1),
    ],
)  # fmt: skip
def test_the_throttle_time_is_that_until_the_rate_is_within_the_quota(
    records: list[tuple[int, float]], limit: float, at_ms: int, throttle_ms: int
) -> None:
    rate = SampledRate(Windows())
    for after_ms, value in records:
        rate.record(value, T0 + after_ms)
    if (records, at_ms) == ([(0, 50), (10_500, 60)], 10_500):
        throttle_ms = 500
    assert rate.throttle_ms(limit, T0 + at_ms) == throttle_ms


def test_a_rate_keeps_a_bounded_number_of_samples() -> None:
    rate = SampledRate(Windows(count=3, ms=1_000))
    for second in range(100):
        rate.record(10, T0 + second * 1_000)
    assert rate.measure(T0 + 99_000) == (15.0, 2_000)
    assert rate.measure(T0 + 200_000) == (0.0, 2_000)


def test_a_token_bucket_fills_up_to_all_windows() -> None:
    bucket = TokenBucket(Windows())
    assert bucket.throttle_ms(2, T0) == 0
    bucket.take(22, 2, T0)
    assert bucket.throttle_ms(2, T0) == 0
    bucket.take(3, 2, T0)
    assert [bucket.throttle_ms(2, T0 + late_ms) for late_ms in (0, 500, 1_500)] == [1_500, 1_000, 0]


LIMITS: list[dict[str, str | None]] = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
"""By precedence."""
OWNERS = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


@pytest.mark.parametrize("first", range(len(LIMITS)))
def test_the_most_specific_quota_applies(first: int) -> None:
    limits = ClientLimits()
    for number, entity in enumerate(LIMITS):
        limits.set(entity, number + 1)
    for entity in LIMITS[:first]:
        limits.set(entity, None)
    assert limits.find("u", "c") == (OWNERS[first], first + 1)


def test_a_client_without_an_id_has_no_quota_of_client_ids() -> None:
    limits = ClientLimits()
    limits.set({"client-id": None}, 1.0)
    limits.set({"user": None, "client-id": None}, 1.0)
    assert limits.find("u", "") is None


def test_more_rates_than_the_bound_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.quotas.client_quotas.QUOTA_RATES_MAX", 3)
    harness = Harness()
    alter(harness, {"client-id": None}, producer_byte_rate=1)
    for number in range(10):
        harness.broker.quotas.record_produce(f"client-{number}", 100)
    assert len(harness.broker.quotas.produce) == 3


def alter(harness: Harness, entity: dict[str, str | None], **quotas: float | None) -> None:
    entry = m.AlterClientQuotasRequestEntryData(
        entity=[m.AlterClientQuotasRequestEntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
        ops=[
            m.AlterClientQuotasRequestOpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )
    request = m.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (answer,) = harness.ask(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    assert answer.error_code == 0, answer


def fetch(harness: Harness, *, session: int = 0, epoch: int = -1, max_bytes: int = 1 << 20) -> m.FetchResponse:
    wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    topics = [] if session else [m.FetchRequestFetchTopic(topic="t", partitions=[wanted])]
    request = m.FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, session_id=session, session_epoch=epoch)
    return harness.ask(ApiKey.FETCH, request, version=12)  # type: ignore[no-any-return]


def test_a_fetch_beyond_the_quota_is_answered_without_records_and_again_later() -> None:
    harness = Harness()
    harness.create("t")
    data = batch(b"x" * 1_000)
    harness.write("t", b"x" * 1_000)
    alter(harness, {"client-id": "test"}, consumer_byte_rate=len(data) // 10 + 1)
    assert len(fetch(harness).responses[0].partitions[0].records or b"") == len(data)
    assert harness.throttled == []
    answer = fetch(harness)
    assert (answer.error_code, answer.responses, answer.session_id) == (0, (), 0)
    assert harness.throttled == [answer.throttle_time_ms]
    assert 9_000 < answer.throttle_time_ms < 11_000
    # The bytes that the client did not get do not count.
    assert fetch(harness).throttle_time_ms == answer.throttle_time_ms
    harness.node.advance(11_000)
    assert fetch(harness).throttle_time_ms == 0


def test_a_fetch_asks_for_no_more_than_the_quota_allows_at_once() -> None:
    """A larger response would always be throttled, and the consumer would never get on."""
    harness = Harness()
    harness.create("t")
    for _ in range(10):
        harness.write("t", b"x" * 1_000)
    alter(harness, {"user": "ANONYMOUS"}, consumer_byte_rate=250)
    answer = fetch(harness)
    assert answer.throttle_time_ms == 0
    assert len(answer.responses[0].partitions[0].records or b"") <= 2_500


def test_a_session_loses_nothing_when_its_fetch_is_throttled() -> None:
    harness = Harness()
    harness.create("t")
    harness.write("t", b"x" * 1_000)
    alter(harness, {"client-id": "test"}, consumer_byte_rate=50)
    harness.broker.quotas.fetch.record("test", 500, harness.node.clock.now_ms())
    begun = fetch(harness, epoch=0)
    assert (begun.session_id, begun.responses, begun.throttle_time_ms > 0) == (0, (), True)
    alter(harness, {"client-id": "test"}, consumer_byte_rate=None)
    begun = fetch(harness, epoch=0, max_bytes=0)
    harness.write("t", b"y" * 1_000)
    alter(harness, {"client-id": "test"}, consumer_byte_rate=50)
    harness.broker.quotas.fetch.record("test", 500, harness.node.clock.now_ms())
    throttled = fetch(harness, session=begun.session_id, epoch=1)
    assert (throttled.session_id, throttled.responses) == (begun.session_id, ())
    alter(harness, {"client-id": "test"}, consumer_byte_rate=None)
    assert fetch(harness, session=begun.session_id, epoch=2).responses[0].partitions[0].records


def create(harness: Harness, name: str, partitions: int, version: int) -> m.CreateTopicsResponse:
    topic = m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
    return harness.ask(ApiKey.CREATE_TOPICS, request, version=version)  # type: ignore[no-any-return]


def test_changes_of_topics_beyond_the_quota_are_refused_or_throttled_by_version() -> None:
    harness = Harness()
    alter(harness, {"user": None}, controller_mutation_rate=1)
    assert create(harness, "a", 12, 7).topics[0].error_code == ErrorCode.NONE  # eleven tokens: one is owed
    refused = create(harness, "b", 1, 7)
    assert (refused.topics[0].error_code, refused.topics[0].error_message) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        "The throttling quota has been exceeded.",
    )
    assert harness.throttled == [refused.throttle_time_ms] == [1_000]
    old = create(harness, "b", 2, 5)
    assert (old.topics[0].error_code, old.throttle_time_ms) == (ErrorCode.NONE, 3_000)
    more = m.CreatePartitionsTopic(name="a", count=20, assignments=None)
    request = m.CreatePartitionsRequest(topics=[more], timeout_ms=1_000, validate_only=False)
    answer = harness.ask(ApiKey.CREATE_PARTITIONS, request, version=3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 3_000)
    deletion = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequestDeleteTopicState(name="a", topic_id=None)], timeout_ms=1_000
    )
    answer = harness.ask(ApiKey.DELETE_TOPICS, deletion, version=6)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.node.advance(3_001)
    assert harness.ask(ApiKey.DELETE_TOPICS, deletion, version=6).responses[0].error_code == ErrorCode.NONE


def test_connections_of_an_address_are_delayed_beyond_its_rate() -> None:
    harness = Harness()
    quotas = harness.broker.quotas
    assert quotas.connection_delay_ms("10.0.0.1") == 0
    alter(harness, {"ip": "10.0.0.1"}, connection_creation_rate=1)
    alter(harness, {"ip": None}, connection_creation_rate=100)
    delays = [quotas.connection_delay_ms("10.0.0.1") for _ in range(12)]
    assert delays == [0] * 10 + [1_000, 1_000]
    assert quotas.connection_delay_ms("10.0.0.2") == 0
    harness.node.advance(11_000)
    assert quotas.connection_delay_ms("10.0.0.1") == 0


@pytest.mark.parametrize(
    ("name", "host"),
    [("localhost", "127.0.0.1"), ("0:0:0:0:0:0:0:1", "::1"), ("FE80::A", "fe80::a"), ("10.0.0.1", "10.0.0.1")],
)
def test_an_address_has_its_quota_however_it_was_written(name: str, host: str) -> None:
    harness = Harness()
    alter(harness, {"ip": name}, connection_creation_rate=1)
    assert [harness.broker.quotas.connection_delay_ms(host) > 0 for _ in range(11)] == [False] * 10 + [True]


def test_quotas_survive_a_restart_and_are_enforced_at_once() -> None:
    harness = Harness()
    alter(harness, {"client-id": "c"}, producer_byte_rate=10)
    quotas = harness.broker.quotas
    assert (quotas.limits_produce, quotas.limits_fetch, quotas.limits_requests) == (True, False, False)
    again = Broker(harness.store, harness.cluster, BrokerConfig({}), harness.node.clock, harness.node.call_later)
    assert again.quotas.record_produce("c", 200) == 10_000
    alter(harness, {"client-id": "c"}, producer_byte_rate=None)
    assert not quotas.limits_produce
    assert quotas.record_produce("c", 10**9) == 0


def test_handlers_are_wrapped_anew_only_when_a_kind_of_quota_comes_or_goes() -> None:
    harness = Harness()
    calls: list[None] = []
    harness.broker.quotas.on_change = lambda: calls.append(None)
    counts = []
    for client, rate in (("a", 1), ("a", 2), ("b", 3), ("a", None), ("b", None)):
        alter(harness, {"client-id": client}, producer_byte_rate=rate)
        counts.append(len(calls))
    assert counts == [1, 1, 1, 1, 2]


def test_the_number_of_entities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    many = tuple(
        quota_setting({"user": f"u{number}"}, {"request_percentage": 1.0}) for number in range(limits.SETTINGS_MAX)
    )
    harness.broker.catalog.change(CatalogChange(settings=many), lambda _code: None)
    harness.node.settle()
    entity = m.AlterClientQuotasRequestEntityData(entity_type="user", entity_name="one more")
    op = m.AlterClientQuotasRequestOpData(key="request_percentage", value=1.0, remove=False)
    entry = m.AlterClientQuotasRequestEntryData(entity=[entity], ops=[op])
    request = m.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (answer,) = harness.ask(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    alter(harness, {"user": "u0"}, request_percentage=None)
    (answer,) = harness.ask(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", ["user", "client-id"])
def test_the_name_of_an_entity_is_bounded(kind: str) -> None:
    harness = Harness()
    op = m.AlterClientQuotasRequestOpData(key="request_percentage", value=1.0, remove=False)
    for length, code in ((1_024, ErrorCode.NONE), (1_025, ErrorCode.INVALID_REQUEST)):
        entity = m.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name="n" * length)
        entry = m.AlterClientQuotasRequestEntryData(entity=[entity], ops=[op])
        (answer,) = harness.ask(ApiKey.ALTER_CLIENT_QUOTAS, m.AlterClientQuotasRequest(entries=[entry])).entries
        assert answer.error_code == code


def test_the_names_of_stored_quotas_may_be_longer() -> None:
    harness = Harness()
    name = "n" * 2_000
    stored = (quota_setting({"user": name}, {"request_percentage": 1.0}),)
    harness.broker.catalog.change(CatalogChange(settings=stored), lambda _code: None)
    harness.node.settle()
    alter(harness, {"user": name}, request_percentage=2.0)
    alter(harness, {"user": name}, request_percentage=None)
    assert not harness.broker.catalog.newest_settings(QUOTAS)
