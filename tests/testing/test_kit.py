"""Faults of `kohort.testing`, seen by a client: handles, scopes, several processes at one broker."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import get_type_hints

import pytest

from kohort.client import Client, Versions
from kohort.control.requests.faults import FaultSpec
from kohort.control.requests.filters import Filter
from kohort.control.requests.holds import HoldSpec
from kohort.model.errors import ErrorCode
from kohort.testing import Broker, ControlError, RunningBroker, WaitTimeoutError
from kohort.testing.kit.fields import FaultFields, FilterFields, HoldFields
from kohort.testing.kit.kit import Kit
from kohort.wire import messages
from kohort.wire.apis import ApiKey


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as started:
        yield started


def committed(kit: Kit, group: str, topic: str) -> ErrorCode:
    """Commit an offset, and return the code of the answer."""
    request = messages.OffsetCommitRequest(
        group_id=group,
        topics=(
            messages.OffsetCommitRequestTopic(
                name=topic,
                partitions=(messages.OffsetCommitRequestPartition(partition_index=0, committed_offset=1),),
            ),
        ),
    )
    with Client(kit.bootstrap) as client:
        answered = client.send(ApiKey.OFFSET_COMMIT, request, within=Versions(2, 9))
    return ErrorCode(answered.topics[0].partitions[0].error_code)


def test_the_arguments_are_the_fields_of_the_api() -> None:
    fields = get_type_hints(FaultFields)
    assert fields.keys() == set(FaultSpec.__struct_fields__) - {"scope"}
    assert get_type_hints(FilterFields).keys() == set(Filter.__struct_fields__)
    for name, kind in get_type_hints(FaultSpec).items():
        assert name == "scope" or kind in (fields[name], fields[name] | None), name


def test_the_arguments_of_a_hold_are_the_fields_of_the_api() -> None:
    fields = get_type_hints(HoldFields)
    assert fields.keys() == set(HoldSpec.__struct_fields__) - {"scope"}
    for name, kind in get_type_hints(HoldSpec).items():
        assert name == "scope" or kind in (fields[name], fields[name] | None), name


def test_a_fault_hits_the_requests_that_match(broker: Broker) -> None:
    with broker.scope("one") as scope:
        topic, group = scope.topic(), scope.unique("billing")
        fault = scope.fault(api="OffsetCommit", group=group, error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert (fault.hits, fault.calls, fault.is_spent) == (0, 0, False)
        codes = [committed(scope, group, topic) for _ in range(3)]
        assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [ErrorCode.NONE]
        assert committed(scope, scope.unique("other"), topic) is ErrorCode.NONE
        assert fault.wait(2, timeout=0) == 2
        assert (fault.hits, fault.calls, fault.is_spent) == (2, 2, True)
        assert [each.id for each in scope.faults()] == [fault.id]
    assert fault.hits == 2, "counts survive the end of the test"


def test_a_fault_ends_with_its_context_and_with_its_scope(broker: Broker) -> None:
    with broker.scope("one") as scope, broker.scope("two") as other:
        topic, group = scope.topic(), scope.unique("billing")
        with scope.fault(api="OffsetCommit", error=14, always=True):
            assert committed(scope, group, topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert committed(scope, group, topic) is ErrorCode.NONE
        scope.fault(api="OffsetCommit", group=group, error=14, always=True)
        kept = other.fault(api="OffsetCommit", group=group, error=15, always=True)
        assert committed(scope, group, topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        scope.close()
        assert committed(other, group, other.topic()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [each.id for each in other.faults()] == [kept.id]
        assert kept.id in [each.id for each in broker.faults()]


def test_what_did_not_happen_is_an_error(broker: Broker) -> None:
    fault = broker.fault(api="OffsetCommit", error=14)
    with pytest.raises(WaitTimeoutError, match=f"{fault.id} has 0 hits and not 1: waited 0.01 s"):
        fault.wait(timeout=0.01)
    fault.remove()
    with pytest.raises(WaitTimeoutError, match="was removed"):
        fault.wait()
    with pytest.raises(ControlError, match=r"did you mean group\?"):
        broker.fault(api="OffsetCommit", grup="billing", error=14)  # type: ignore[call-arg]


def test_two_processes_share_a_broker(broker: Broker) -> None:
    """The second one knows the address of the control port only."""
    running = RunningBroker(broker.control)
    assert (running.cluster_id, running.bootstrap) == (broker.cluster_id, broker.bootstrap)
    assert RunningBroker(broker.control, bootstrap="other:1").bootstrap == "other:1"
    with running.scope("one") as scope, broker.scope("one") as other:
        topic, group = scope.topic(), scope.unique("billing")
        fault = scope.fault(api="OffsetCommit", group=group, error=14)
        assert other.faults() == []
        assert committed(scope, group, topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert fault.hits == 1


def test_the_addresses_of_several_brokers_are_those_that_run() -> None:
    with Broker(brokers=2, in_process=True) as broker:
        first, second = broker.bootstrap.split(",")
        broker.events.stop_broker(1)
        assert RunningBroker(broker.control).bootstrap == second
        broker.events.start_broker(1)
        assert RunningBroker(broker.control).bootstrap == f"{first},{second}"


def test_a_handle_of_an_earlier_start_is_not_known() -> None:
    with Broker(in_process=True) as broker:
        fault = broker.fault(api="OffsetCommit", error=14)
        address = broker.control
        broker.restart()
        assert broker.control == address
        other = broker.fault(api="OffsetCommit", error=14)
        assert other.id != fault.id
        with pytest.raises(ControlError, match="there is no fault") as raised:
            _ = fault.hits
        assert raised.value.status == 404
        fault.remove()


def test_a_hold_holds_until_it_is_released(broker: Broker) -> None:
    with broker.scope("one") as scope, ThreadPoolExecutor(3) as clients:
        topic, group = scope.topic(), scope.unique("billing")
        hold = scope.hold(api="OffsetCommit", group=group)
        answers = [clients.submit(committed, scope, group, topic) for _ in range(3)]
        assert hold.wait(3) == hold.waiting == 3
        assert [each["api"] for each in hold.held] == ["OffsetCommit"] * 3
        assert not any(answer.done() for answer in answers)
        hold.release(1)
        assert (hold.waiting, hold.hits) == (2, 3)
        hold.release()
        assert [answer.result() for answer in answers] == [ErrorCode.NONE] * 3
        assert committed(scope, group, topic) is ErrorCode.NONE, "nothing is held any more"
        with pytest.raises(WaitTimeoutError, match=f"{hold.id} holds 0 and not 1: it has ended"):
            hold.wait()


def test_a_point_inside_the_broker_is_held(broker: Broker) -> None:
    with broker.scope("one") as scope, ThreadPoolExecutor(1) as clients:
        topic, group = scope.topic(), scope.unique("billing")
        assert committed(scope, group, topic) is ErrorCode.NONE
        hold = scope.hold(point="flush", topic="__consumer_offsets")
        answer = clients.submit(committed, scope, group, topic)
        hold.wait()
        assert hold.held[0]["text"].startswith("flush __consumer_offsets-")
        hold.release()
        assert answer.result() is ErrorCode.NONE
        with pytest.raises(ControlError, match=r"the point flush has the filters topic and partition; it has no group"):
            scope.hold(point="flush", group=group)


def test_the_end_of_a_context_and_of_a_scope_releases(broker: Broker) -> None:
    with ThreadPoolExecutor(2) as clients:
        with broker.scope("one") as scope:
            topic, group = scope.topic(), scope.unique("billing")
            with scope.hold(api="OffsetCommit", group=group) as hold:
                first = clients.submit(committed, scope, group, topic)
                hold.wait()
            assert first.result() is ErrorCode.NONE
            scope.hold(api="OffsetCommit", group=group, at="reply")
            second = clients.submit(committed, scope, group, topic)
            scope.holds()[-1].wait()
        assert second.result() is ErrorCode.NONE
        assert all(each.state["is_ended"] for each in scope.holds())


def test_the_requests_of_a_test(broker: Broker) -> None:
    with broker.scope("an earlier one") as scope:
        committed(scope, scope.unique("billing"), scope.topic())
    with broker.scope("one") as scope:
        topic, group = scope.topic(), scope.unique("billing")
        assert scope.requests(api="OffsetCommit") == []
        fault = scope.fault(api="OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS")
        for _ in range(2):
            committed(scope, group, topic)
        first, second = scope.requests(api=["OffsetCommit", "Fetch"], group=group, topic=topic, partition=0, wait=2)
        assert first["request"]["topics"][0]["partitions"][0]["committed_offset"] == 1
        assert (first["errors"], first["fault"]) == (["COORDINATOR_LOAD_IN_PROGRESS"], fault.id)
        assert "errors" not in second
        assert scope.requests(api="OffsetCommit", limit=1) == [second]
        assert len(broker.requests(api="OffsetCommit")) > 2
        with pytest.raises(WaitTimeoutError) as raised:
            scope.requests(api="JoinGroup", wait=1, timeout=0)
        assert "0 requests match and not 1" in str(raised.value)
        line = f"  OffsetCommit 9 of kohort-cli: COORDINATOR_LOAD_IN_PROGRESS by {fault.id}"
        assert line in str(raised.value).splitlines()


def test_a_broker_without_a_journal() -> None:
    with Broker(journal=False, in_process=True) as broker:
        topic = broker.scope("one").topic()
        committed(broker, "billing", topic)
        assert broker.requests() == []
        broker.keep_journal()
        committed(broker, "billing", topic)
        assert [each["api"] for each in broker.requests(api="OffsetCommit")] == ["OffsetCommit"]
