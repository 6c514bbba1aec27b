"""The log in a database beside a list: as `test_list_model.py`, without rolls, retention, cleaning. A crash kills a node."""

from contextlib import ExitStack
from typing import Any

from hypothesis import given, settings

from tests.conftest import LONG
from tests.storage.database import shared_database
from tests.storage.listed import ListedLog
from tests.storage.owner import PARTITION, TOPIC_ID, Owner
from tests.storage.test_list_model import CONFIGS, Run, do, steps

_OF_SEGMENTS = ("checkpoint", "roll", "retain", "clean")
_KEPT_BYTES = 1_000
"""Some of the batches are read from memory, and some from the database."""


class DatabaseRun(Run):
    """Each crash is followed by the start of another node."""

    def __init__(self) -> None:
        ExitStack.__init__(self)
        self.config = CONFIGS["delete"]
        self.owner, self.model = Owner(), ListedLog()
        self.values = self.epoch = 0
        self.schema = shared_database().new_schema()
        self.open()

    def open(self) -> None:
        self.store = self.owner.postgres(self.schema, written_bytes_kept=_KEPT_BYTES)
        self.log = self.store.open(PARTITION, TOPIC_ID, self.config)
        self.epoch = max(self.epoch, self.log.leader_epoch)

    def abandon(self) -> None:
        """The writer ends with what it was given; what was not given to it, and what was to be told of it, is gone."""
        self.store._writer.stop(60)
        self.store._removals.stop(60)
        self.store._reads.close()
        now_ms, self.owner = self.owner.clock.now_ms(), Owner()
        self.owner.clock.set(now_ms)

    def crash(self, _seed: int) -> None:
        acknowledged = self.log.high_watermark
        self.abandon()
        self.open()
        self.take_up(acknowledged)


@settings(max_examples=1000 if LONG else 20)
@given(steps)
def test_a_log_in_a_database_agrees_with_a_list(chosen: list[tuple[Any, ...]]) -> None:
    with DatabaseRun() as run:
        for step in chosen:
            if step[0] not in _OF_SEGMENTS:
                do(run, step)
                run.check()
        do(run, ("flush",))
        run.check()
        assert run.log.high_watermark == run.model.end
        run.stop()
        run.check()
        run.store.close()
