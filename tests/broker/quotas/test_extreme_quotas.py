"""
Quotas at the edges of a double: what is stored, what happens to requests then and after a restart, and what a change costs.

`KAFKA` has what Apache Kafka 4.4.0 answered to AlterClientQuotas. Of a throttle time that is too long, it puts the lower half
into its responses; Kohort puts the largest time.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.broker import Broker
from kohort.broker.catalog.view import CatalogChange
from kohort.broker.quotas.limits import quota_setting
from kohort.broker.quotas.rates import SampledRate, TokenBucket, Windows, whole_ms
from kohort.model.errors import ErrorCode
from kohort.model.numbers import INT32_MAX
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.calls import calls
from tests.broker.harness import Harness
from tests.broker.quotas.test_client_quotas import T0, create, fetch

INF, NAN = math.inf, math.nan
REFUSED = int(ErrorCode.INVALID_REQUEST)
CLIENT: dict[str, str | None] = {"client-id": None}
ENTITIES: dict[str, dict[str, str | None]] = {
    "request_percentage": CLIENT,
    "producer_byte_rate": CLIENT,
    "consumer_byte_rate": CLIENT,
    "controller_mutation_rate": CLIENT,
    "connection_creation_rate": {"ip": None},
}
VALUES = (
    5e-324,
    1e-320,
    1e-7,
    1e-6,
    0.4,
    INF,
    NAN,
    -INF,
    -1.0,
    0.0,
    -0.0,
    1.7976931348623157e308,
    2.0**63,
    9.3e18,
    1.5,
    1 + 1e-7,
)
_ALL = {value: 0 if 0 < value < INF else REFUSED for value in VALUES}
_WHOLE = _ALL | dict.fromkeys((0.4, INF, 1.7976931348623157e308, 9.3e18, 1.5), REFUSED)
KAFKA: dict[str, dict[float, int]] = {
    "request_percentage": _ALL,
    "producer_byte_rate": _WHOLE,
    "consumer_byte_rate": _WHOLE,
    "controller_mutation_rate": _ALL,
    "connection_creation_rate": _WHOLE | {2.0**63: REFUSED},
}
TINY = (5e-324, 1e-320, 1e-7)


def code_of(harness: Harness, key: str, value: float, *, remove: bool = False) -> int:
    entity = [
        m.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in ENTITIES[key].items()
    ]
    op = m.AlterClientQuotasRequestOpData(key=key, value=value, remove=remove)
    request = m.AlterClientQuotasRequest(
        entries=[m.AlterClientQuotasRequestEntryData(entity=entity, ops=[op])], validate_only=False
    )
    (answer,) = harness.ask(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    return int(answer.error_code)


def reopened(harness: Harness) -> Harness:
    return Harness(store=harness.store, node=harness.node)


@pytest.mark.parametrize("key", KAFKA)
def test_values_are_stored_or_refused_as_by_kafka(key: str) -> None:
    harness = Harness()
    for value, code in KAFKA[key].items():
        assert code_of(harness, key, value) == code, value
        described = harness.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, m.DescribeClientQuotasRequest(components=[], strict=False)
        ).entries
        if code == 0:
            again = reopened(harness).ask(
                ApiKey.DESCRIBE_CLIENT_QUOTAS, m.DescribeClientQuotasRequest(components=[], strict=False)
            )
            for entries in (described, again.entries):
                ((shown,),) = [entry.values for entry in entries]
                assert shown.value == value
            assert code_of(harness, key, value, remove=True) == 0
    assert not harness.broker.catalog.settings("quota")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("key", KAFKA)
@pytest.mark.parametrize("value", VALUES)
def test_every_request_is_answered_under_any_quota(key: str, value: float, restarted: bool) -> None:
    """A quota below one unit throttles: requests for a window, connections for a second, other uses up to the largest time."""
    harness = Harness()
    harness.create("t")
    harness.write("t", b"x")
    is_stored = code_of(harness, key, value) == 0
    if restarted:
        harness = reopened(harness)
    is_tiny = is_stored and value in TINY
    quotas, longest = harness.broker.quotas, INT32_MAX
    throttled = {
        "request_percentage": [quotas.record_request("c", 1_000_000) for _ in range(3)],
        "producer_byte_rate": [quotas.record_produce("c", 100) for _ in range(3)],
        "consumer_byte_rate": [fetch(harness).throttle_time_ms for _ in range(3)],
        "controller_mutation_rate": [create(harness, name, 1, 5).throttle_time_ms for name in "abc"],
        "connection_creation_rate": [quotas.connection_delay_ms("10.0.0.1") for _ in range(3)],
    }
    bounds = {"request_percentage": 1_000, "connection_creation_rate": 1_000}
    for each, found in throttled.items():
        assert all(0 <= throttle_ms <= bounds.get(each, longest) for throttle_ms in found)
        assert any(found) <= (each == key and is_stored and value < 2), each
    if is_tiny:
        assert throttled[key] == [bounds.get(key, longest)] * 3
    is_refused = key == "controller_mutation_rate" and is_stored and value < 0.1
    strict = create(harness, "d", 1, 7).topics[0].error_code
    assert strict == (ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_refused else 0)


@given(
    st.lists(st.tuples(st.floats(0, 1e18), st.integers(-20_000, 20_000)), max_size=10),
    st.floats(min_value=0, exclude_min=True) | st.just(NAN),
)
def test_arithmetic_of_rates_never_raises(uses: list[tuple[float, int]], limit: float) -> None:
    rate, bucket, now_ms = SampledRate(Windows()), TokenBucket(Windows()), T0
    for value, later_ms in uses:
        now_ms += later_ms
        rate.record(value, now_ms)
        bucket.take(value, limit, now_ms)
        for throttle_ms in (rate.throttle_ms(limit, now_ms), bucket.throttle_ms(limit, now_ms)):
            assert 0 <= throttle_ms <= INT32_MAX
    # Whatever the limit was, an infinite one throttles nobody.
    assert (rate.throttle_ms(INF, now_ms + 1), bucket.throttle_ms(INF, now_ms + 1)) == (0, 0)


def test_a_clock_that_goes_back_takes_no_tokens() -> None:
    bucket = TokenBucket(Windows())
    bucket.take(22, 2, T0)
    assert [bucket.throttle_ms(2, T0 - 1_000), bucket.throttle_ms(2, T0)] == [0, 0]


def test_durations_are_bounded() -> None:
    durations = (INF, NAN, -INF, -1.0, 0.0, 0.4, 0.5, 1e300, INT32_MAX + 1.0)
    assert [whole_ms(each) for each in durations] == [INT32_MAX, 0, 0, 0, 0, 0, 1, INT32_MAX, INT32_MAX]


def test_an_address_with_two_names_keeps_the_other_quota() -> None:
    harness = Harness()
    for name, rate in (("localhost", 1.0), ("127.0.0.1", 2.0)):
        setting = quota_setting({"ip": name}, {"connection_creation_rate": rate})
        harness.broker.catalog.change(CatalogChange(settings=(setting,)), lambda _code: None)
    harness.node.settle()
    limits = harness.broker.quotas._limits_of_addresses
    assert limits.find("127.0.0.1") == 2.0
    for name, left in (("127.0.0.1", 1.0), ("localhost", None)):
        removed = quota_setting({"ip": name}, {})
        harness.broker.catalog.change(CatalogChange(settings=(removed,)), lambda _code: None)
        harness.node.settle()
        assert limits.find("127.0.0.1") == left
    assert not limits


def test_the_cost_of_a_change_does_not_grow_with_the_number_of_entities() -> None:
    costs = []
    for entities in (10, 1_000):
        node = VirtualNode()
        harness = Harness(node=node)
        many = tuple(
            quota_setting({"user": f"u{number}", "client-id": "c"}, {"producer_byte_rate": 9.0})
            for number in range(entities)
        )
        harness.broker.catalog.change(CatalogChange(settings=many), lambda _code: None)
        node.settle()
        assert code_of(harness, "producer_byte_rate", 1.0) == 0
        costs.append(
            [
                calls(lambda harness=harness: code_of(harness, "producer_byte_rate", 2.0)),  # type: ignore[misc]
                calls(lambda broker=harness.broker: broker.quotas.record_produce("c", 1)),  # type: ignore[misc]
            ]
        )
        assert isinstance(harness.broker, Broker)
    assert costs[0] == costs[1]
