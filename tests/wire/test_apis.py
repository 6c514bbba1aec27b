"""The API table equals the ApiVersions responses of Apache Kafka."""

import gzip
import json
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError, WireError
from kohort.wire import messages
from kohort.wire.apis import API_KEYS, RELEASES, ApiKey, release_named, versions_in
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import response_reader

DATA = Path(__file__).parent.parent / "data"
RECORDED = DATA / "wire/classic_join_leave.jsonl.gz"

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
    assert advertised == {
        int(api): (api.oldest_advertised, versions.newest_stable)
        for api, versions in versions_in("4.2.1").items()
        if api not in UNLISTED
    }


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_the_versions_that_its_broker_advertises(release: str) -> None:
    answer = json.loads((DATA / f"api-versions-{release}.json").read_text())
    versions = versions_in(release)
    assert {int(key): tuple(found) for key, found in answer.items()} == {
        int(api): (api.oldest_advertised, versions[api].newest_stable) for api in versions if api not in UNLISTED
    }


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read_and_written_whole(release: str) -> None:
    for api, versions in versions_in(release).items():
        assert api.oldest == versions.oldest <= versions.newest_stable <= versions.newest <= api.newest
        assert versions.newest_stable <= api.newest_stable
    assert set(versions_in(RELEASES[-1])) == {api for api in ApiKey if not api.is_between_nodes}


def test_no_client_is_told_of_the_apis_between_nodes() -> None:
    between = {api for api in ApiKey if api.is_between_nodes}
    assert between == {ApiKey.ENVELOPE, ApiKey.ALLOCATE_PRODUCER_IDS}
    for release in RELEASES:
        assert not between & set(versions_in(release))


def test_a_header_may_have_any_stable_version_of_the_newest_release() -> None:
    api = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
    assert api not in versions_in("4.2.1")
    request = messages.StreamsGroupTopologyDescriptionUpdateRequest()
    assert read_request_header(request_encoder(api, 0)(1, "c", request)[4:])[:2] == (api, 0)
    begin = ApiKey.INIT_PRODUCER_ID
    with pytest.raises(WireError, match="version 6 of the API with key 22 is not served"):
        read_request_header(request_encoder(begin, 6)(1, "c", messages.InitProducerIdRequest())[4:])


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_is_found_by_its_number(release: str) -> None:
    assert release_named(release) == release
    assert release_named(release.rpartition(".")[0]) == release


@pytest.mark.parametrize("text", ["", "4", "4.3", "4.2.", "4.2.0", "44"])
def test_an_unknown_release_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match=r"there are 4\.2, 4\.4$"):
        release_named(text)


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
