"""What is checked before any shard is asked, and what older versions are answered."""

from typing import Any

import pytest

from kohort.group.errors import append_error, stable_fetch_error
from kohort.group.service import GroupService
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import CoordinatorError, ErrorCode, RecordTooLargeError, UnavailableError
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.group.harness import NEWEST, Coordinator
from tests.group.share.members import ShareCoordinator

NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_GROUP_ID

REQUESTS: dict[str, Any] = {
    "join_group": m.JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer"),
    "sync_group": m.SyncGroupRequest(protocol_type="consumer", protocol_name="range"),
    "heartbeat": m.HeartbeatRequest(),
    "leave_group": m.LeaveGroupRequest(),
    "offset_delete": m.OffsetDeleteRequest(),
    "list_groups": m.ListGroupsRequest(),
    "describe_groups": m.DescribeGroupsRequest(groups=[""]),
    "delete_groups": m.DeleteGroupsRequest(groups_names=[""]),
    "offset_commit": m.OffsetCommitRequest(
        generation_id_or_member_epoch=-1,
        topics=[
            m.OffsetCommitRequestTopic(
                name="orders", partitions=[m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            )
        ],
    ),
    "txn_offset_commit": m.TxnOffsetCommitRequest(
        transactional_id="transaction",
        producer_id=7,
        generation_id_or_member_epoch=-1,
        topics=[
            m.TxnOffsetCommitRequestTopic(
                name="orders", partitions=[m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            )
        ],
    ),
    "offset_fetch": m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(topics=None)]),
    "consumer_group_heartbeat": m.ConsumerGroupHeartbeatRequest(member_id="a", member_epoch=1),
    "consumer_group_describe": m.ConsumerGroupDescribeRequest(group_ids=[""]),
    "share_group_heartbeat": m.ShareGroupHeartbeatRequest(member_id="a", member_epoch=1),
    "share_group_describe": m.ShareGroupDescribeRequest(group_ids=[""]),
    "describe_share_group_offsets": m.DescribeShareGroupOffsetsRequest(
        groups=[m.DescribeShareGroupOffsetsRequestGroup(topics=None)]
    ),
    "alter_share_group_offsets": m.AlterShareGroupOffsetsRequest(
        topics=[
            m.AlterShareGroupOffsetsRequestTopic(
                topic_name="orders",
                partitions=[m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)],
            )
        ]
    ),
    "delete_share_group_offsets": m.DeleteShareGroupOffsetsRequest(
        topics=[m.DeleteShareGroupOffsetsRequestTopic(topic_name="orders")]
    ),
}

# fmt: off
EMPTY_GROUP_ID = {  # what a group id of "" is answered
    "join_group":      INVALID,
    "sync_group":      INVALID,
    "heartbeat":       INVALID,
    "leave_group":     INVALID,
    "offset_delete":   INVALID,
    "list_groups":     NONE,
    "describe_groups": ErrorCode.GROUP_ID_NOT_FOUND,
    "delete_groups":   ErrorCode.GROUP_ID_NOT_FOUND,
    "offset_commit":   NONE,
    "txn_offset_commit": INVALID,
    "offset_fetch":    NONE,
    "consumer_group_heartbeat": ErrorCode.INVALID_REQUEST,
    "consumer_group_describe": INVALID,
    "share_group_heartbeat": ErrorCode.INVALID_REQUEST,
    "share_group_describe": INVALID,
    "describe_share_group_offsets": NONE,
    "alter_share_group_offsets": INVALID,
    "delete_share_group_offsets": INVALID,
}

LOADING = dict.fromkeys(REQUESTS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) | {"heartbeat": NONE}
ELSEWHERE = dict.fromkeys(REQUESTS, ErrorCode.NOT_COORDINATOR) | {"list_groups": NONE}
INACTIVE = dict.fromkeys(REQUESTS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
# fmt: on


class Spread:
    """A runner of many partitions that notes which one was asked, and refuses everything, half of the writes later."""

    partition_count = 50

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[int] = []
        self.later: list[Any] = []

    def write(self, partition: int, operation: Any, reply: Any, on_error: Any) -> Any:
        self.asked.append(partition)
        response = on_error(self.error)
        if partition % 2:
            return response
        self.later.append(lambda: reply(response))
        return None

    def write_transactional(self, partition: int, _producer: Any, operation: Any, reply: Any, on_error: Any) -> Any:
        return self.write(partition, operation, reply, on_error)

    def read(self, partition: int, query: Any, on_error: Any) -> Any:
        self.asked.append(partition)
        return on_error(self.error)

    def read_all(self, query: Any, on_error: Any) -> list[Any]:
        return [on_error(self.error)]


def code_of(api: str, response: Any) -> ErrorCode:
    match api:
        case (
            "describe_groups"
            | "consumer_group_describe"
            | "share_group_describe"
            | "describe_share_group_offsets"
            | "offset_fetch"
        ):
            return ErrorCode(response.groups[0].error_code)
        case "delete_groups":
            return ErrorCode(response.results[0].error_code)
        case "offset_commit" | "txn_offset_commit":
            return ErrorCode(response.topics[0].partitions[0].error_code)
    return ErrorCode(response.error_code)


def with_group(api: str) -> Any:
    """The request about "g"."""
    values = {name: getattr(REQUESTS[api], name) for name in type(REQUESTS[api]).__struct_fields__}
    if api == "describe_groups":
        values["groups"] = ["g"]
    elif api in ("consumer_group_describe", "share_group_describe"):
        values["group_ids"] = ["g"]
    elif api == "describe_share_group_offsets":
        values["groups"] = [m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    elif api == "delete_groups":
        values["groups_names"] = ["g"]
    elif api == "offset_fetch":
        values["groups"] = [m.OffsetFetchRequestGroup(group_id="g", topics=None)]
    elif api != "list_groups":
        values["group_id"] = "g"
    return type(REQUESTS[api])(**values)


def test_every_api_is_here() -> None:
    assert set(REQUESTS) == set(EMPTY_GROUP_ID) == set(NEWEST)


@pytest.mark.parametrize("api", NEWEST)
def test_an_empty_group_id(api: str) -> None:
    assert code_of(api, ShareCoordinator().ask(api, REQUESTS[api])) is EMPTY_GROUP_ID[api]


@pytest.mark.parametrize("api", NEWEST)
def test_while_the_shard_loads(api: str) -> None:
    coordinator = ShareCoordinator()
    runner = Spread(CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    coordinator.service = GroupService(runner, coordinator.config, coordinator.image, persister=coordinator.persister)  # type: ignore[arg-type]
    answer = coordinator.ask(api, with_group(api))
    for deliver in runner.later:
        deliver()
    assert code_of(api, answer) is LOADING[api]


@pytest.mark.parametrize("api", NEWEST)
def test_when_the_partition_is_led_elsewhere(api: str) -> None:
    coordinator = ShareCoordinator()
    coordinator.runtime.unload(0, None)
    assert code_of(api, coordinator.ask(api, with_group(api))) is ELSEWHERE[api]


def test_a_shard_that_is_elsewhere_has_nothing_to_list() -> None:
    coordinator = ShareCoordinator()
    runner = Spread(CoordinatorError(ErrorCode.NOT_COORDINATOR))
    coordinator.service = GroupService(runner, coordinator.config, coordinator.image, persister=coordinator.persister)  # type: ignore[arg-type]
    assert coordinator.listed() == {}


@pytest.mark.parametrize("api", NEWEST)
def test_when_the_service_is_not_active(api: str) -> None:
    coordinator = ShareCoordinator()
    coordinator.service.is_active = False
    assert code_of(api, coordinator.ask(api, with_group(api))) is INACTIVE[api]
    if api in ("join_group", "sync_group", "heartbeat", "leave_group", "offset_delete", "txn_offset_commit"):
        # before the group id is looked at
        assert code_of(api, coordinator.ask(api, REQUESTS[api])) is INACTIVE[api]


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [(5_999, ErrorCode.INVALID_SESSION_TIMEOUT), (6_000, ErrorCode.MEMBER_ID_REQUIRED),
     (1_800_000, ErrorCode.MEMBER_ID_REQUIRED), (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT)],
)  # fmt: skip
def test_session_timeouts_have_bounds(session_ms: int, code: ErrorCode) -> None:
    answer = Coordinator().join(session_ms=session_ms)
    assert answer.code is code


def test_up_to_version_6_no_protocol_is_an_empty_string() -> None:
    coordinator = Coordinator()
    assert coordinator.join(version=6).protocol_name == ""
    assert coordinator.join(version=7).protocol_name is None
    parked = coordinator.join("", instance="a", version=5)
    coordinator.join("", instance="a", version=9)
    assert (parked.code, parked.protocol_name) == (ErrorCode.FENCED_INSTANCE_ID, "")


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_protocol_without_a_name_is_null_since_version_7(version: int, name: str | None) -> None:
    coordinator = Coordinator()
    member = coordinator.new_member_id(protocols=(("", b""),))
    answer = coordinator.join(member, protocols=(("", b""),), version=version)
    coordinator.advance(3_000)
    assert (answer.code, answer.protocol_name) == (NONE, name)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_up_to_version_2_one_member_leaves(version: int) -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    for code in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        request = m.LeaveGroupRequest(group_id="group", member_id=leader)
        answer = coordinator.ask("leave_group", request, version=version)
        assert (answer.code, answer.members) == (code, ())


@pytest.mark.parametrize("version", [3, 5])
def test_since_version_3_each_member_has_its_own_error(version: int) -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    members = [m.LeaveGroupRequestMemberIdentity(member_id=member_id) for member_id in (leader, "stranger")]
    request = m.LeaveGroupRequest(group_id="group", members=members)
    answer = coordinator.ask("leave_group", request, version=version)
    assert answer.code is NONE
    assert [member.error_code for member in answer.members] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ((), (), {"a", "b"}),
        ((" sTaBle ",), (), {"b"}),
        (("Empty", "Stable"), ("CLASSIC",), {"a", "b"}),
        (("",), (), set()),
        (("nonsense",), (), set()),
        ((), ("consumer",), set()),
        ((), (" classic",), set()),  # types are not trimmed
        ((), ("",), set()),
    ],
)
def test_filters_of_a_listing(states: tuple[str, ...], types: tuple[str, ...], listed: set[str]) -> None:
    coordinator = Coordinator()
    coordinator.commit(group="a")
    coordinator.stable(1, group="b")
    request = m.ListGroupsRequest(states_filter=states, types_filter=types)
    answer = coordinator.ask("list_groups", request)
    assert {group.group_id for group in answer.groups} == listed
    assert {(g.group_id, g.protocol_type, g.group_type) for g in answer.groups} <= {
        ("a", "", "classic"),
        ("b", "consumer", "classic"),
    }


def test_many_groups_of_a_shard_are_listed_in_steps() -> None:
    """Of those that are there from the beginning to the end none is missing; each is listed as of its own time."""
    coordinator = Coordinator()
    names = [f"group-{number:04}" for number in range(5 * HANDLER_STEP)]
    for name in names:
        coordinator.commit(group=name)
    handler = coordinator.service.handlers()[ApiKey.LIST_GROUPS]
    steps = handler(m.ListGroupsRequest(), FixedContext(5), lambda _: None)
    next(steps)
    next(steps)
    coordinator.delete(names[0], names[-1])
    coordinator.commit(group="later")
    answers: list[m.ListGroupsResponse] = []
    for _ in range(4):
        next(steps)
    take_all(steps, answers.append)
    assert [group.group_id for group in answers[0].groups] == names[:-1]
    now = {group.group_id for group in coordinator.ask("list_groups", m.ListGroupsRequest()).groups}
    assert now == {*names[1:-1], "later"}


def test_a_shard_that_moves_while_its_groups_are_listed() -> None:
    coordinator = Coordinator()
    for number in range(2 * HANDLER_STEP):
        coordinator.commit(group=f"group-{number}")
    handler = coordinator.service.handlers()[ApiKey.LIST_GROUPS]
    steps = handler(m.ListGroupsRequest(), FixedContext(5), lambda _: None)
    next(steps)
    next(steps)
    coordinator.runtime.unload(0, None)
    answers: list[m.ListGroupsResponse] = []
    take_all(steps, answers.append)
    assert (answers[0].error_code, list(answers[0].groups)) == (NONE, [])


@pytest.mark.parametrize("version", range(7))
def test_describing_a_group_that_is_not_there(version: int) -> None:
    found = Coordinator().describe("x", version=version)
    assert found.group_state == "Dead"
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert found.error_message == ("Group x not found." if version >= 6 else None)


@pytest.mark.parametrize(("version", "unknown"), [(5, 3_400), (6, -2_147_483_648)])
def test_authorized_operations(version: int, unknown: int) -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    for is_asked in (False, True):
        request = m.DescribeGroupsRequest(groups=["group", "x", "group"], include_authorized_operations=is_asked)
        answer = coordinator.ask("describe_groups", request, version=version)
        expected = [3_400, unknown, 3_400] if is_asked else [-2_147_483_648] * 3
        assert [group.authorized_operations for group in answer.groups] == expected


def test_a_group_that_cannot_be_asked_has_no_state() -> None:
    coordinator = Coordinator()
    coordinator.runtime.unload(0, None)
    found = coordinator.describe()
    assert (found.error_code, found.group_state) == (ErrorCode.NOT_COORDINATOR, "")


# fmt: off
ERRORS = [  # what went wrong                     on a write                              on a stable fetch
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,        ErrorCode.COORDINATOR_NOT_AVAILABLE,    ErrorCode.NOT_COORDINATOR),
    (ErrorCode.NOT_ENOUGH_REPLICAS,               ErrorCode.COORDINATOR_NOT_AVAILABLE,    ErrorCode.NOT_COORDINATOR),
    (ErrorCode.REQUEST_TIMED_OUT,                 ErrorCode.COORDINATOR_NOT_AVAILABLE,    ErrorCode.NOT_COORDINATOR),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER,            ErrorCode.NOT_COORDINATOR,              ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR,               ErrorCode.NOT_COORDINATOR,              ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE,                 ErrorCode.UNKNOWN_SERVER_ERROR,         ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.NETWORK_EXCEPTION,                 ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
     ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE,         ErrorCode.COORDINATOR_NOT_AVAILABLE,    ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.FENCED_MEMBER_EPOCH,               ErrorCode.FENCED_MEMBER_EPOCH,          ErrorCode.FENCED_MEMBER_EPOCH),
]
# fmt: on


@pytest.mark.parametrize(("error", "written", "fetched"), ERRORS)
def test_errors_are_translated(error: ErrorCode, written: ErrorCode, fetched: ErrorCode) -> None:
    assert append_error(CoordinatorError(error)) is written
    assert stable_fetch_error(CoordinatorError(error)) is fetched


def test_errors_of_the_log_and_of_ours() -> None:
    assert append_error(UnavailableError()) is ErrorCode.NOT_COORDINATOR
    assert append_error(RecordTooLargeError()) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert append_error(KeyError("x")) is ErrorCode.UNKNOWN_SERVER_ERROR
    network = CoordinatorError(ErrorCode.NETWORK_EXCEPTION)
    assert append_error(network, from_sync=True) is ErrorCode.NETWORK_EXCEPTION


def test_groups_go_to_their_partitions_and_the_answer_waits_for_all() -> None:
    runner, coordinator = Spread(UnavailableError()), Coordinator()
    service = GroupService(runner, coordinator.config, coordinator.image)  # type: ignore[arg-type]
    groups = ["group", "my-group", "polygenelubricants", "gröup", "🙂", "payments-service", "group"]
    answers: list[Any] = []
    request = m.DeleteGroupsRequest(groups_names=groups)
    assert service.delete_groups(request, FixedContext(2), answers.append) is None
    assert runner.asked == [47, 12, 0, 32, 15, 43]
    for index, deliver in enumerate(reversed(runner.later)):
        assert not answers, index
        deliver()
    assert [result.group_id for result in answers[0].results] == groups[:-1]

    asked = [m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    runner.later.clear()
    stable = m.OffsetFetchRequest(groups=asked, require_stable=True)
    assert service.offset_fetch(stable, FixedContext(9), answers.append) is None
    for deliver in runner.later:
        deliver()
    assert [group.group_id for group in answers[1].groups] == groups
    at_once = service.offset_fetch(m.OffsetFetchRequest(groups=asked), FixedContext(9), answers.append)
    assert at_once is not None
    assert [group.group_id for group in at_once.groups] == groups
    assert len(answers) == 2
