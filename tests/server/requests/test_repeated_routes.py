"""The requests that a connection decodes once: those of versions in which clients repeat the same bytes."""

import pytest

from kohort.server.requests.dispatch import Route
from kohort.wire.apis import ApiKey


@pytest.mark.parametrize(
    ("api_key", "version", "is_repeated"),
    [
        (ApiKey.OFFSET_FETCH, 9, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 4, False),
        (ApiKey.END_TXN, 4, True),
        (ApiKey.END_TXN, 5, False),
        (ApiKey.METADATA, 12, False),
    ],
)
def test_versions_whose_requests_are_decoded_once(api_key: ApiKey, version: int, is_repeated: bool) -> None:
    route = Route(api_key, version, lambda *_: None)
    assert (route.read_repeated is not None) is is_repeated
