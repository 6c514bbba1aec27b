"""Each method of the administration clients has the same result with Kohort as with Apache Kafka."""

import re
from collections.abc import Iterator

import pytest

from kohort.testing.served import ServedKohort
from tests.clients.admins.rows import CLIENTS, SETTINGS, answers, recorded
from tests.clients.differences import differences

UNSUPPORTED = (
    r"/describe_features/(share|streams)\.version",
    # A controller within the broker has no listener of its own.
    r"/describe_metadata_quorum/nodes/0/listeners",
)
"""Paths in the results that docs/unsupported.md explains."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServedKohort(tmp_path_factory.mktemp("admins"), SETTINGS) as served:
        yield served.bootstrap


@pytest.mark.filterwarnings(r"ignore:(alter_configs|list_groups)\b.* deprecated:DeprecationWarning")
@pytest.mark.parametrize("client", CLIENTS)
def test_results_are_those_of_kafka(client: str, address: str) -> None:
    found = differences(answers(client, address), recorded(client))
    ignored = re.compile("|".join(UNSUPPORTED))
    assert [each for each in found if not ignored.fullmatch(each[0])] == []
