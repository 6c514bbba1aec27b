"""The list of past bugs names tests that exist; and the tests of those that belong nowhere else."""

import re
from pathlib import Path

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode
from tests.group.harness import Coordinator

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (Path(__file__).with_name("PAST_BUGS.md")).read_text())
MINUTE_MS = 60_000


def test_there_is_a_list() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_tests_exist(path: str, name: str) -> None:
    assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / path).read_text(), re.MULTILINE)


def test_a_group_with_only_a_pending_member_is_deleted_by_the_cleanup() -> None:
    """Source: GroupMetadataManager.maybeDeleteGroup; tried with Apache Kafka 4.2.1."""
    coordinator = Coordinator(GroupConfig(offsets_retention_check_interval_ms=MINUTE_MS))
    member = coordinator.new_member_id(session_ms=5 * MINUTE_MS)
    assert coordinator.listed() == {"group": "Empty"}
    coordinator.advance(MINUTE_MS)
    assert coordinator.listed() == {}
    assert coordinator.join(member).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_retention_time_is_kept_over_a_load_and_loses_the_leader_epoch() -> None:
    """Source: OffsetCommitValue version 1, the only one with an expire timestamp."""
    coordinator = Coordinator(GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS))
    coordinator.commit({("orders", 0): 1}, retention_ms=3 * MINUTE_MS, version=4)
    coordinator.commit({("orders", 1): 1}, version=4)
    coordinator.restart()
    assert coordinator.shard.offsets.by_group["group"]["orders", 0].leader_epoch == -1
    coordinator.advance(2 * MINUTE_MS)
    assert coordinator.fetch() == {("orders", 0): 1}
    coordinator.advance(MINUTE_MS)
    assert coordinator.fetch() == {}
