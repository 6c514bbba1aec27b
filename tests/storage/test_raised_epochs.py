"""A leader epoch that began is never forgotten, though nothing was appended in it: clients may have seen it."""

import shutil
from pathlib import Path

import pytest

from kohort.storage.log import LogConfig
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("appended", [0, 2])
@pytest.mark.parametrize("flush", ["commit", "os"])
def test_an_epoch_without_records_is_there_after_a_start(
    tmp_path: Path, flush: str, appended: int, is_clean: bool
) -> None:
    owner = Owner()
    store = owner.disk(tmp_path / "data", flush=flush)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(appended):
        log.append(batch("x"), leader_epoch=0)
    log.become_leader(7)
    store.flush()
    done: list[bool] = []
    store._committer.submit(lambda: owner.post(lambda: done.append(True)))
    owner.wait_for(lambda: bool(done))
    if not is_clean:
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    store.close()
    store = Owner().disk(tmp_path / ("data" if is_clean else "killed"), flush=flush)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    assert (log.leader_epoch, log.end_offset) == (7, appended)
    assert log.end_offset_for_epoch(7) == (7, appended)
    assert log.end_offset_for_epoch(3)[1] == appended
    log.append(batch("y"), leader_epoch=7)
    assert log.epoch_for_offset(appended) == 7
    store.close()
