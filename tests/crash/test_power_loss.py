"""
What a broker that flushes has acknowledged it keeps, though the machine lose power.

After SIGKILL the page cache still has what was written. Here it loses it: of every log only what lies below its recovery point
is left, that is what a checkpoint has flushed. All else has to come from the journal.
"""

import shutil
from pathlib import Path
from random import Random

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.files.checkpoint_formats import RECOVERY_POINTS, read_offsets
from kohort.testing.served import ServedKohort
from kohort.wire.batches import iter_batches
from tests.conftest import LONG
from tests.crash.writers import RETENTION, Ledger, Writers, await_coordinators, check, create_topic

ROUNDS = 30 if LONG else 2

pytestmark = pytest.mark.timeout(3_600 if LONG else 900)


def lose_page_cache(data_dir: Path, *, zeros: bool) -> int:
    """
    Take from the logs what no checkpoint has flushed.

    Args:
        zeros: files keep their sizes and read as zeros, as file systems leave them that had written the size alone.

    Returns:
        How many bytes were taken.
    """
    recovery_points = read_offsets(data_dir / RECOVERY_POINTS)
    taken = 0
    for directory in sorted(path for path in data_dir.glob("*-*") if path.is_dir()):
        topic, _, partition = directory.name.rpartition("-")
        recovery_point = recovery_points.get(TopicPartition(topic, int(partition)), 0)
        if not recovery_point and not zeros:
            # Not even the names of new files are certain.
            taken += sum(path.stat().st_size for path in directory.glob("*.log"))
            shutil.rmtree(directory)
            continue
        for segment in directory.glob("*.log"):
            taken += _forget(segment, recovery_point, zeros=zeros)
    return taken


def _forget(segment: Path, recovery_point: int, *, zeros: bool) -> int:
    data = segment.read_bytes()
    flushed = len(data)
    for position, header in iter_batches(data):
        if header.base_offset >= recovery_point:
            flushed = position
            break
    lost = len(data) - flushed
    segment.write_bytes(data[:flushed] + bytes(lost if zeros else 0))
    return lost


@pytest.mark.parametrize("zeros", [False, True], ids=["cut", "zeros"])
def test_acknowledged_commits_and_records_survive_a_power_loss(tmp_path: Path, zeros: bool, rng: Random) -> None:
    ledger = Ledger()
    data_dir = tmp_path / "data"
    with ServedKohort(tmp_path, RETENTION, flush="commit") as broker:
        create_topic(broker)
        for _ in range(ROUNDS):
            await_coordinators(broker)
            Writers(ledger, broker.port, acknowledgements=rng.randint(50, 2_500)).run_until_killed(broker)
            assert lose_page_cache(data_dir, zeros=zeros) > 0
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)


def test_without_a_journal_a_power_loss_is_noticed(tmp_path: Path) -> None:
    """The test above would fail on a broker that did not flush."""
    ledger = Ledger()
    data_dir = tmp_path / "data"
    with ServedKohort(tmp_path, RETENTION, flush="os") as broker:
        create_topic(broker)
        await_coordinators(broker)
        broker.stop()
        broker.start()
        await_coordinators(broker)
        Writers(ledger, broker.port, acknowledgements=200).run_until_killed(broker)
        lose_page_cache(data_dir, zeros=True)
        broker.start()
        await_coordinators(broker)
        with pytest.raises(AssertionError, match="was acknowledged"):
            check(ledger, broker)
