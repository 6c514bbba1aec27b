"""The directory of a partition is removed under a running broker: the stop and the next start say so, until a repair."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kohort.model.errors import ErrorCode
from kohort.testing.process import KOHORT
from kohort.testing.served import ServedKohort, ServerFailedError
from tests.crash.connection import Connection
from tests.crash.test_full_disk import produce
from tests.crash.writers import RETENTION, create_topic


def test_a_stop_and_the_next_start_name_it(base: Path) -> None:
    broker = ServedKohort(base, RETENTION, expected=[r"log\.missing_data", r"log\.damaged", r"log\.offline"])
    broker.start()
    create_topic(broker)
    with Connection(broker.port) as connection:
        assert produce(connection) == ErrorCode.NONE
    shutil.rmtree(broker.data_dir / "ledger-0")
    with pytest.raises(ServerFailedError, match=r"(?s)exit code 1.*log\.missing_data partition=ledger-0"):
        broker.stop()
    assert "acknowledged data is missing: ledger-0: " in broker.log_tail()
    broker.start()
    with Connection(broker.port) as connection:
        assert produce(connection) == ErrorCode.KAFKA_STORAGE_ERROR
    broker.stop()
    assert "log.damaged partition=ledger-0" in broker.log_tail()
    for command, code in (("--dry-run", 1), (None, 0)):
        arguments = [*KOHORT, "log", "repair", *filter(None, [command]), str(broker.data_dir)]
        assert subprocess.run(arguments, capture_output=True, check=False).returncode == code
    with broker, Connection(broker.port) as connection:
        assert produce(connection) == ErrorCode.NONE


def test_a_directory_that_is_removed_after_a_clean_stop_is_named_by_the_start(base: Path) -> None:
    with ServedKohort(base, RETENTION, expected=[r"log\.damaged"]) as broker:
        create_topic(broker)
        with Connection(broker.port) as connection:
            assert produce(connection) == ErrorCode.NONE
        broker.stop()
        shutil.rmtree(broker.data_dir / "ledger-0")
        broker.start()
        with Connection(broker.port) as connection:
            assert produce(connection) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "log.damaged partition=ledger-0" in broker.log_tail()
