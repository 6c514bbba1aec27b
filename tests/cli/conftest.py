"""Fixtures of the commands of `kohort transactions`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.cli.main import EXIT_ERROR, run
from tests.cli.transaction_cluster import Command, Refused, TransactionCluster
from tests.clients.waiting import PATIENCE_S

PATIENT = ("--timeout", str(PATIENCE_S))
"""Codecs are compiled at their first use, which takes seconds on a busy machine."""


@pytest.fixture
def cluster() -> Iterator[TransactionCluster]:
    """Two brokers, and the topic `orders` with a partition on each."""
    with TransactionCluster() as made:
        made.add_topic("orders", [1, 2])
        yield made


@pytest.fixture
def command(cluster: TransactionCluster, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*words: str) -> Any:
        code = run(["transactions", *words, "--json", "--bootstrap", cluster.bootstrap, *PATIENT])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return json.loads(printed.out)

    return command


@pytest.fixture
def refused(cluster: TransactionCluster, capsys: pytest.CaptureFixture[str]) -> Refused:
    def refused(*words: str) -> str:
        assert run(["transactions", *words, "--bootstrap", cluster.bootstrap, *PATIENT]) == EXIT_ERROR
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err.removeprefix("kohort: ").rstrip("\n")

    return refused
