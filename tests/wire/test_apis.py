"""The API table equals the ApiVersions response of Apache Kafka 4.2.1."""

import gzip
import json
from pathlib import Path

from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

RECORDED = Path(__file__).parent.parent / "data/wire/classic_join_leave.jsonl.gz"

UNLISTED = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""A broker names these only when a receiver of client metrics is configured."""


def test_the_table_is_what_kafka_advertises() -> None:
    with gzip.open(RECORDED) as lines:
        frames = (json.loads(line) for line in lines)
        line = next(frame for frame in frames if frame["api_key"] == ApiKey.API_VERSIONS and frame["dir"] == "response")
    frame = bytes.fromhex(line["hex"])
    _, offset = read_response_header(frame, ApiKey.API_VERSIONS, line["api_version"])
    response = response_reader(ApiKey.API_VERSIONS, line["api_version"])(frame, offset)
    advertised = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert advertised == {int(api): (api.oldest_advertised, api.newest_stable) for api in ApiKey if api not in UNLISTED}


def test_keys_are_found_by_number() -> None:
    assert API_KEYS[12] is ApiKey.HEARTBEAT
    assert all(API_KEYS[int(api)] is api for api in ApiKey)


def test_versions_that_are_not_what_one_expects() -> None:
    assert (ApiKey.PRODUCE.oldest, ApiKey.PRODUCE.oldest_advertised) == (3, 0)
    assert (ApiKey.INIT_PRODUCER_ID.newest, ApiKey.INIT_PRODUCER_ID.newest_stable) == (6, 5)


def test_header_versions() -> None:
    assert [ApiKey.HEARTBEAT.request_header_version(version) for version in (3, 4)] == [1, 2]
    assert [ApiKey.HEARTBEAT.response_header_version(version) for version in (3, 4)] == [0, 1]
    assert [ApiKey.API_VERSIONS.request_header_version(version) for version in (2, 3)] == [1, 2]
    assert [ApiKey.API_VERSIONS.response_header_version(version) for version in (2, 3, 4)] == [0, 0, 0]
    assert not any(ApiKey.SASL_HANDSHAKE.is_flexible(version) for version in (0, 1))
