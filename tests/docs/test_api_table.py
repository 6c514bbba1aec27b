"""docs/apis.md has the versions that the code serves, beside those of Apache Kafka."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.access.table import ACCESS_TABLE
from kohort.wire.apis import DEFAULT_RELEASE, RELEASES, versions_in
from tests.server.coordinators.test_group_coordinator import Groups

ROOT = Path(__file__).resolve().parents[2]


def table() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/api_table.py"))


def test_the_page_is_up_to_date() -> None:
    """To refresh it: .venv/bin/python tools/api_table.py"""
    assert (ROOT / "docs/apis.md").read_text() == table()["page"]()


def test_cve_2026_41115_the_page_has_the_permissions_that_are_asked_for() -> None:
    """They are made from the table that runs; Kafka's documents said READ where DESCRIBE was asked for."""
    rows = [line for line in table()["page"]().splitlines() if line.startswith("| ConsumerGroupDescribe |")]
    assert rows[0].startswith("| ConsumerGroupDescribe | DESCRIBE of GROUP (each); ")
    assert {key.api_name for key in ACCESS_TABLE} <= {
        line.split(" | ")[0][2:] for line in table()["_permissions"]().splitlines()
    }


def test_an_api_has_a_handler_unless_the_page_says_that_it_is_not_served() -> None:
    groups = Groups()
    groups.harness.host_transactions()
    groups.harness.host_shares()
    not_served = {key for key, state in table()["STATES"].items() if state.startswith("not served")}
    assert set(groups.harness.broker.handlers) == set(versions_in(DEFAULT_RELEASE)) - not_served


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_lists_no_api_that_is_missing_here(release: str) -> None:
    assert set(table()["recorded"](release)) == set(versions_in(release)) - table()["KAFKA_WITH_A_RECEIVER"]
