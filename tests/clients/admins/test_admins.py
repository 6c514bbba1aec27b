"""Each method of the administration clients has the same result with Kohort as with Apache Kafka."""

import re
from collections.abc import Iterator

import pytest

from kohort.testing.served import ServedKohort
from tests.clients.admins.rows import CLIENTS, SETTINGS, answers, recorded
from tests.clients.differences import differences

_SASL, _SHARE, _STREAMS = (17, 36, 38, 39, 40, 41, 51), (*range(76, 80), *range(83, 88), *range(90, 93)), (88, 89)
_VOTERS = (80, 81)
_KEYS = "|".join(str(key) for key in (*_SASL, *_VOTERS, *_SHARE, *_STREAMS))
UNSUPPORTED = (
    rf"/(api_versions|get_broker_version_data)/({_KEYS})",
    r"/describe_features/(share|streams|kraft|eligible\.leader\.replicas)\.version",
    # A controller within the broker has no listener of its own.
    r"/describe_metadata_quorum/nodes/0/listeners",
)
"""Paths in the results that docs/unsupported.md explains."""
PENDING = (
    r"/(api_versions|get_broker_version_data)/(49|57)",
    r"/describe_features/metadata\.version",
    r"/update_features.*",
    r"/(alter|reset)_configs of a broker.*",
    r"/incremental_alter_configs, (broker|broker back|static)/.*",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServedKohort(tmp_path_factory.mktemp("admins"), SETTINGS) as served:
        yield served.bootstrap


@pytest.mark.filterwarnings(r"ignore:(alter_configs|list_groups)\b.* deprecated:DeprecationWarning")
@pytest.mark.parametrize("client", CLIENTS)
def test_results_are_those_of_kafka(client: str, address: str) -> None:
    found = differences(answers(client, address), recorded(client))
    ignored = re.compile("|".join((*UNSUPPORTED, *PENDING)))
    assert [each for each in found if not ignored.fullmatch(each[0])] == []
