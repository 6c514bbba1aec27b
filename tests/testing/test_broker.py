"""`kohort.testing.Broker`, as a process and in this one."""

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort.testing
from kohort.client import Client, CoordinatorKind
from kohort.model.errors import ErrorCode
from kohort.testing import Broker, BrokerError
from kohort.wire import messages
from kohort.wire.apis import RELEASES, ApiKey

SECONDS_MAX = 60.0


@pytest.fixture(params=[False, True], ids=["process", "in-process"], scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker({"num.partitions": 3, "delete.topic.enable": True}, in_process=request.param) as started:
        yield started


def topics(broker: Broker) -> dict[str, int]:
    """The number of partitions of each topic that clients have created."""
    with Client(broker.bootstrap) as client:
        found = client.send(ApiKey.METADATA, messages.MetadataRequest(topics=None)).topics
    return {topic.name: len(topic.partitions) for topic in found if not topic.is_internal}


def test_every_public_name_is_found() -> None:
    assert all(getattr(kohort.testing, name) for name in kohort.testing.__all__)
    assert sorted(kohort.testing._MODULES) == sorted(kohort.testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Brokers'"):
        _ = kohort.testing.Brokers


def test_clients_are_served_with_the_configurations(broker: Broker) -> None:
    assert broker.is_running
    with broker.scope("one") as scope:
        names = [scope.topic("orders", configs={"retention.ms": 7}), scope.topic(partitions=5)]
        assert topics(broker) == dict(zip(names, (3, 5), strict=True))
        with Client(scope.bootstrap) as client:
            answered = client.send(ApiKey.METADATA, messages.MetadataRequest(topics=()))
        assert answered.cluster_id == broker.cluster_id
    assert topics(broker) == {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_first_client_of_a_coordinator_does_not_wait(release: str) -> None:
    """Else the answer is COORDINATOR_NOT_AVAILABLE, after which librdkafka waits for a second."""
    with Broker(kafka=release, in_process=True) as broker, Client(broker.bootstrap) as client:
        for kind in CoordinatorKind:
            request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=("billing",))
            (found,) = client.send(ApiKey.FIND_COORDINATOR, request).coordinators
            assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)


def test_two_tests_with_the_same_name_do_not_meet(broker: Broker) -> None:
    with broker.scope("a test[x/y]") as first, broker.scope("a test[x/y]") as second:
        assert first.name != second.name
        assert first.name.startswith("a-test-x-y")
        assert first.topic("orders") != second.topic("orders")
        assert first.unique("group") != second.unique("group")


def test_what_a_test_has_deleted_itself_is_no_failure(broker: Broker) -> None:
    with broker.scope("one") as scope:
        scope.delete_topic(scope.topic())


@pytest.mark.parametrize("in_process", [False, True])
def test_data_survives_a_restart_at_the_same_port(tmp_path: Path, *, in_process: bool) -> None:
    with Broker(data_dir=tmp_path / "data", in_process=in_process) as broker:
        name = broker.scope("one").topic()
        address = broker.bootstrap
        broker.restart()
        assert (topics(broker), broker.bootstrap) == ({name: 1}, address)
        if not in_process:
            broker.kill()
            assert not broker.is_running
            broker.start()
            assert (topics(broker), broker.bootstrap) == ({name: 1}, address)
    assert not broker.is_running


def test_several_brokers_keep_their_ports() -> None:
    with Broker(brokers=3, in_process=True) as broker:
        addresses = broker.bootstrap.split(",")
        assert len(addresses) == 3
        broker.restart()
        assert broker.bootstrap.split(",") == addresses


@pytest.mark.parametrize("in_process", [False, True])
def test_why_a_broker_does_not_start(*, in_process: bool) -> None:
    broker = Broker({"num.partitions": "many"}, in_process=in_process)
    with pytest.raises(BrokerError, match=r"did not start.*num\.partitions"):
        broker.start()
    assert not broker.is_running
    broker.stop()
    with pytest.raises(BrokerError, match="was not started yet"):
        _ = broker.bootstrap
    with pytest.raises(BrokerError, match="did not start"):
        Broker(options=["--no-such-option"], in_process=in_process).start()


def test_a_broker_in_this_process_leaves_the_process_as_it_was() -> None:
    before = (gc.get_threshold(), gc.isenabled(), signal.getsignal(signal.SIGTERM))
    threads, frozen = threading.active_count(), gc.get_freeze_count()
    with Broker(in_process=True) as broker:
        with pytest.raises(BrokerError, match="cannot be killed alone"):
            broker.kill()
        with pytest.raises(BrokerError, match="runs already"):
            broker.start()
    assert before == (gc.get_threshold(), gc.isenabled(), signal.getsignal(signal.SIGTERM))
    assert threading.active_count() <= threads
    assert gc.get_freeze_count() <= frozen, "those of the tests (`plugins/garbage.py`), of which some may have died"


def test_it_starts_in_asyncio() -> None:
    async def begin() -> bool:
        async with Broker(in_process=True) as broker:
            return broker.is_running

    assert asyncio.run(begin())


def test_an_end_by_itself_is_an_error_and_a_note_of_the_test_that_fails() -> None:
    broker = Broker().start()
    assert broker._process is not None
    broker._process.kill()
    broker._process.wait(SECONDS_MAX)
    assert not broker.is_running
    with pytest.raises(BrokerError, match="ended with exit code -9"):
        broker.stop()
    failure = ValueError("of the test")
    broker.start()
    assert broker._process is not None
    broker._process.kill()
    broker.__exit__(ValueError, failure, None)
    assert "ended with exit code -9" in failure.__notes__[0]


def test_a_killed_test_leaves_no_broker() -> None:
    """The broker hands its standard error on, so the output ends when both have ended."""
    program = """
        import os, signal, sys, tempfile
        tempfile.TemporaryFile = lambda: sys.stdout.buffer
        from kohort.testing import Broker
        Broker().start()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == -9
    assert "kohort stopped" in done.stdout
