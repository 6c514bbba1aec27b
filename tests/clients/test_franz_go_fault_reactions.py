"""franz-go, unmodified, meets the faults of the control port; see `test_fault_reactions`."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import Broker
from tests.clients.test_fault_reactions import values
from tests.clients.waiting import PATIENCE_S
from tests.conftest import NIGHTLY

pytestmark = NIGHTLY


class FailedError(Exception):
    """What the client tells its application."""


class FranzGo:
    """A client in a process of its own."""

    def __init__(self, program: str, **settings: Any) -> None:
        self._process = subprocess.Popen(
            (program,), stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", bufsize=1
        )
        self.ask(json.dumps(settings))

    def ask(self, line: str) -> list[str]:
        """
        Have the client do something; what it has read.

        Raises:
            FailedError: it tells of an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        said = json.loads(self._process.stdout.readline())
        if "error" in said:
            raise FailedError(said["error"])
        return said["values"] or []

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program with franz-go; skips without Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    built = tmp_path_factory.mktemp("franz-go") / "reactions"
    command = (go, "build", "-buildvcs=false", "-o", str(built), "./reactions")
    subprocess.run(command, cwd=Path(__file__).with_name("franz_go"), check=True, timeout=PATIENCE_S)
    return str(built)


Make = Callable[..., FranzGo]


@pytest.fixture
def make(program: str, kit: Broker, topic: str) -> Iterator[Make]:
    """Makes clients for the topic of the test."""
    opened: list[FranzGo] = []

    def made(**settings: Any) -> FranzGo:
        opened.append(FranzGo(program, bootstrap=kit.bootstrap, topic=topic, **settings))
        return opened[-1]

    yield made
    for each in opened:
        each.close()


@pytest.fixture
def written(kit: Broker, topic: str) -> str:
    """A topic with the record "x"."""
    kit.control_client.post("topics", topic, "records", body={"records": [{"value": "x"}]})
    return topic


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_a_batch_is_sent_again(kit: Broker, topic: str, make: Make, error: str) -> None:
    fault = kit.fault(api="Produce", topic=topic, error=error, times=2)
    make().ask("send")
    assert (fault.hits, values(kit, topic)) == (2, ["x"])


@pytest.mark.parametrize("error", ["MESSAGE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_batch_is_given_up(kit: Broker, topic: str, make: Make, error: str) -> None:
    fault = kit.fault(api="Produce", topic=topic, error=error)
    with pytest.raises(FailedError, match=error):
        make().ask("send")
    assert (fault.hits, values(kit, topic)) == (1, [])


def test_a_batch_whose_answer_was_lost_is_written_once(kit: Broker, topic: str, make: Make) -> None:
    fault = kit.fault(api="Produce", topic=topic, disconnect="after")
    make().ask("send")
    assert (fault.hits, values(kit, topic)) == (1, ["x"])


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"])
def test_a_producer_id_is_asked_for_again(kit: Broker, topic: str, make: Make, error: str) -> None:
    fault = kit.fault(api="InitProducerId", transactional_id=f"id-of-{topic}", error=error)
    make(id=f"id-of-{topic}").ask("transact")
    assert (fault.hits, values(kit, topic)) == (1, ["x"])


def test_a_transaction_whose_answer_was_lost_is_committed(kit: Broker, topic: str, make: Make) -> None:
    fault = kit.fault(api="EndTxn", transactional_id=f"id-of-{topic}", disconnect="after")
    make(id=f"id-of-{topic}").ask("transact")
    assert (fault.hits, values(kit, topic)) == (1, ["x"])


def test_a_producer_is_fenced(kit: Broker, topic: str, make: Make) -> None:
    kit.fault(api="EndTxn", transactional_id=f"id-of-{topic}", error="PRODUCER_FENCED")
    with pytest.raises(FailedError, match="PRODUCER_FENCED"):
        make(id=f"id-of-{topic}").ask("transact")
    assert values(kit, topic) == []


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_a_commit_is_sent_again(kit: Broker, written: str, make: Make, error: str) -> None:
    member = make(group=f"group-of-{written}")
    assert member.ask("poll") == ["x"]
    fault = kit.fault(api="OffsetCommit", group=f"group-of-{written}", error=error)
    member.ask("commit")
    assert fault.hits == 1
    assert kit.wait_group(f"group-of-{written}", topic=written, offset=1)


@pytest.mark.parametrize("error", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_a_commit_that_comes_too_late_is_told(kit: Broker, written: str, make: Make, error: str) -> None:
    member = make(group=f"group-of-{written}")
    assert member.ask("poll") == ["x"]
    kit.fault(api="OffsetCommit", group=f"group-of-{written}", error=error)
    with pytest.raises(FailedError, match=error):
        member.ask("commit")


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"])
def test_a_member_joins_again(kit: Broker, written: str, make: Make, error: str) -> None:
    group = f"group-of-{written}"
    assert make(group=group).ask("poll") == ["x"]
    fault = kit.fault(api="Heartbeat", group=group, error=error)
    kit.fault(api="JoinGroup", group=group, observe=True, after_fault=fault.id).wait(timeout=PATIENCE_S)
    kit.wait_group(group, stable=True, members=1, topic=written)


def test_a_member_of_kip_848_that_is_fenced_joins_again(kit: Broker, written: str, make: Make) -> None:
    group = f"group-of-{written}"
    assert make(group=group, isNext=True).ask("poll") == ["x"]
    fault = kit.fault(api="ConsumerGroupHeartbeat", group=group, error="FENCED_MEMBER_EPOCH")
    observed = kit.fault(api="ConsumerGroupHeartbeat", group=group, observe=True, after_fault=fault.id)
    observed.wait(timeout=PATIENCE_S)
    beats = kit.requests(api="ConsumerGroupHeartbeat", group=group)
    (place,) = [place for place, beat in enumerate(beats) if beat.get("fault") == fault.id]
    fenced, again = (beat["request"]["member_epoch"] for beat in beats[place : place + 2])
    assert fenced > again == 0


def test_a_member_tells_that_records_are_lost_and_begins_anew_where_its_offset_is_gone(
    kit: Broker, written: str, make: Make
) -> None:
    member = make(group=f"group-of-{written}")
    assert member.ask("poll") == ["x"]
    fault = kit.fault(api="Fetch", topic=written, error="OFFSET_OUT_OF_RANGE")
    with pytest.raises(FailedError, match="lost records"):
        member.ask("poll")
    assert member.ask("poll") == ["x"]
    assert fault.hits == 1


def test_a_corrupt_batch_is_told_and_read_again(kit: Broker, written: str, make: Make) -> None:
    fault = kit.fault(api="Fetch", topic=written, corrupt=True)
    member = make(group=f"group-of-{written}")
    with pytest.raises(FailedError, match="does not match calculated crc"):
        member.ask("poll")
    assert member.ask("poll") == ["x"]
    assert fault.hits == 1
