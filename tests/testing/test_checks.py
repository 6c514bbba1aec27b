"""The command line that the checks under faults share: exit codes, seeds and directories."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from kohort.testing import Broker
from kohort_lab.checks import CheckError, new_parser, run_check
from kohort_lab.exactly_once.topics import committed_offsets, create, end_offsets
from kohort_lab.exactly_once.torture import Outcome
from kohort_lab.exactly_once.verdict import judge

PARSER = new_parser("kohort_lab.exactly_once", "For tests.", 1.0)


def outcome_of(acknowledged: int) -> Outcome:
    return Outcome(judge([], []), acknowledged, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(("acknowledged", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_tells_whether_the_outcome_is_right(
    acknowledged: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_check(PARSER.parse_args([]), lambda *_: outcome_of(acknowledged)) == code
    assert f"{acknowledged} inputs acknowledged" in capsys.readouterr().out


def test_a_run_that_could_not_be_completed(capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: Path, __: Random, report: Callable[[str], None]) -> Outcome:
        report("a step")
        raise CheckError("the group has stopped")

    assert run_check(PARSER.parse_args(["--seed", "7"]), run) == 2
    printed = capsys.readouterr()
    assert printed.out == "seed 7\na step\n"
    assert printed.err == "the group has stopped\n"
    assert run_check(PARSER.parse_args(["--seed", "7", "--quiet"]), run) == 2
    assert capsys.readouterr().out == "seed 7\n"


def test_a_named_directory_is_kept_and_the_seed_repeats_the_choices(tmp_path: Path) -> None:
    found: list[tuple[Path, float]] = []

    def run(directory: Path, rng: Random, _: Callable[[str], None]) -> Outcome:
        assert directory.is_dir()
        found.append((directory, rng.random()))
        return outcome_of(0)

    kept = tmp_path / "a" / "b"
    run_check(PARSER.parse_args(["--seed", "7", "--directory", str(kept)]), run)
    run_check(PARSER.parse_args(["--seed", "7"]), run)
    (first, one), (second, other) = found
    assert one == other == Random(7).random()
    assert first == kept
    assert first.is_dir()
    assert not second.exists()


@pytest.mark.clients
def test_ends_while_partitions_get_other_leaders() -> None:
    with Broker(in_process=True) as broker:
        create(broker.bootstrap, {"orders": 2})
        fault = broker.fault(api="ListOffsets", error="NOT_LEADER_OR_FOLLOWER", times=3)
        assert end_offsets(broker.bootstrap, "orders", 2) == {0: 0, 1: 0}
        assert fault.hits == 3


@pytest.mark.clients
@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_committed_offsets_while_the_coordinator_cannot_say(error: str) -> None:
    with Broker(in_process=True) as broker:
        create(broker.bootstrap, {"orders": 2})
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)
        consumer.close()
        fault = broker.fault(api="OffsetFetch", error=error)
        while (found := committed_offsets(broker.bootstrap, "billing", "orders", 2)) is None:
            pass
        assert found == {1: 0}
        assert fault.hits == 1
