"""
The random tests of the coordinators and of the runtime, with loads from a database: each start, and each reload after a fault.

What is loaded equals what was live before, and what a replay record by record finds, as in the tests of the rooms.
"""

import random

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.runtime.loading import loader
from kohort.runtime.loading.ahead import ReadAhead
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.runtime.processors import InlineProcessor
from kohort.testing import VirtualNode
from kohort.wire.batches import iter_batches
from tests.conftest import LONG
from tests.group.consumer.test_machine import Members
from tests.group.raw_offsets import RUNS, LogMaker, RawLog, fresh, picture, recorded, replay_one_by_one
from tests.group.share.test_machine import ShareGroups
from tests.group.test_machine import Groups
from tests.runtime.test_machine import Promises
from tests.storage.stored_loads import loads_from_database, stored_view
from tests.transaction.test_machine import Transactions

FEW = settings(max_examples=300 if LONG else 3, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("machine", [Groups, Members, ShareGroups, Transactions, Promises])
def test_a_coordinator_keeps_its_promises_on_a_database(machine: type[RuleBasedStateMachine]) -> None:
    with loads_from_database() as loads:
        run_state_machine_as_test(machine, settings=FEW)
    assert loads, "and there were loads"


def test_a_load_waits_for_no_background_task_of_the_process_before() -> None:
    with loads_from_database():
        state = Members()
        state.start(count=1, is_classic=False, assignment_interval_ms=0)
        state.hold_background()
        state.restart(is_tail_lost=True)
        state.a_loaded_shard_equals_the_live_one()


def loaded(log: RawLog, buffer_bytes: int) -> tuple[GroupShard, LoadSummary]:
    """A shard that is loaded from a database, as a node does it, and what the load tells."""
    node, shard, summary = VirtualNode(), fresh(), LoadSummary()
    executor = InlineProcessor(node.wheel, node.defer, node.call_soon)
    view = stored_view(log.batches, log.end_offset)
    ahead = ReadAhead(view.topic_partition, view, executor)
    steps = load(
        view, shard, GroupRecordSerde(), summary, start=0, end=log.end_offset, buffer_bytes=buffer_bytes, ahead=ahead
    )
    for _ in steps:
        node.settle()
    return shard, summary


@pytest.mark.parametrize("run", RUNS)
def test_logs_of_a_broker_say_the_same_on_a_database(run: str) -> None:
    loader._import()
    for name, log in recorded(run).items():
        wanted = picture(replay_one_by_one(log))
        for buffer_bytes in (1 << 24, 3000):
            assert picture(loaded(log, buffer_bytes)[0]) == wanted, (run, name, buffer_bytes)


@pytest.mark.parametrize("number", range(500 if LONG else 10))
def test_any_log_says_the_same_on_a_database(number: int, seed: int) -> None:
    loader._import()
    log = LogMaker(seed).log()
    shard, summary = loaded(log, random.Random(seed).choice((1 << 24, 20_000, 500)))
    assert picture(shard) == picture(replay_one_by_one(log))
    headers = [header for batch in log.batches for _, header in iter_batches(batch)]
    assert summary.records == sum(header.record_count for header in headers if not header.is_control)
