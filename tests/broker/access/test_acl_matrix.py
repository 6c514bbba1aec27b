"""
Every recorded decision of Apache Kafka 4.4.0, asked again in process.

`data/security/acl-matrix-unserved.txt` names the rows that need share groups or streams groups, which the broker refuses. A row
of these APIs is equal if the refusal of the user comes first.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.storage.log import LogStore
from kohort.testing.virtual import VirtualNode
from tests.broker.access.matrix import DATA, Replay, rows
from tests.broker.harness import disk_store

ON_DISK = ("DescribeLogDirs",)
"""APIs whose answers tell the sizes of a disk."""


@cache
def unserved() -> frozenset[str]:
    return frozenset((DATA / "acl-matrix-unserved.txt").read_text().splitlines())


class Brokers:
    """A broker for each setting of the rows, made at its first use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: dict[tuple[str, bool], Replay] = {}

    def of(self, row: dict[str, Any]) -> Replay:
        is_on_disk = row["api"] in ON_DISK
        key = str(row.get("settings")), is_on_disk
        if key not in self._made:
            node = VirtualNode()
            store: LogStore | None = disk_store(self._path, node) if is_on_disk else None
            self._made[key] = Replay(row.get("settings"), node=node, store=store)
        return self._made[key]

    def close(self) -> None:
        for replay in self._made.values():
            replay.broker.hosted.close()
            replay.broker.store.close()

    def differences(self, row: dict[str, Any]) -> str | None:
        return self.of(row).difference(row)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("disk"))
    yield made
    made.close()


def is_served(row: dict[str, Any]) -> bool:
    return row["id"] not in unserved()


@pytest.mark.parametrize("api", sorted({row["api"] for row in rows() if is_served(row)}))
def test_the_rows_of_an_api_are_equal(api: str, brokers: Brokers) -> None:
    asked = [row for row in rows() if row["api"] == api and is_served(row)]
    differences = {row["id"]: brokers.differences(row) for row in asked}
    assert not {name: found for name, found in differences.items() if found is not None}


def test_the_list_of_rows_that_are_not_served_is_true(brokers: Brokers) -> None:
    asked = {row["id"]: row for row in rows()}
    assert unserved() <= asked.keys()
    assert not [name for name in unserved() if brokers.differences(asked[name]) is None]


def test_each_row_is_either_equal_or_listed() -> None:
    assert len(rows()) == 1_598
    assert sum(map(is_served, rows())) == 1_578
