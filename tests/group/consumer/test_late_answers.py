"""
Clients that subscribe, unsubscribe and subscribe again faster than they are answered, as librdkafka does.

Requests and answers of a client are under way in order, for as long as the test likes; a broken connection loses both. A client
does not wait for the answer to a heartbeat before it leaves, nor for that to its leaving before it joins again under the same
member id. Every code is that of Kafka's rules for the state in which the group was when the request arrived, and in the end
every client that subscribes has its partitions.

Source: Kafka GroupMetadataManager.consumerGroupHeartbeat, consumerGroupLeave, consumerGroupStaticMemberGroupLeave; KIP-848.
"""

from collections import deque
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kohort.group.configs import GroupConfig
from kohort.group.consumer.group import ConsumerGroup
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.consumer.protocol import NO_TOPIC, ProtocolMember
from tests.group.harness import Answer, Coordinator
from tests.group.trouble import SETTINGS

GROUP = "group"
INTERVAL_MS, SESSION_MS = 5_000, 45_000
SIZE_MAX = 4
INSTANCES = (None, None, None, "x", "x")
"""The last two clients contend for one instance id."""
JOINING_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
LATER = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Fatal for real clients. Those of this test come back when their place is free."""
which = st.integers(0, len(INSTANCES) - 1)


def expected(group: ConsumerGroup | None, request: m.ConsumerGroupHeartbeatRequest) -> ErrorCode:
    """The code by Kafka's rules, in their order."""
    epoch, instance = request.member_epoch, request.instance_id
    if epoch == 0 and request.rebalance_timeout_ms == -1:
        return ErrorCode.UNKNOWN_MEMBER_ID  # docs/unsupported.md
    if group is None:
        return ErrorCode.NONE if epoch == 0 else ErrorCode.GROUP_ID_NOT_FOUND
    members = group.members
    holder = next((each for each in members.values() if instance is not None and each.instance_id == instance), None)
    is_known = request.member_id in members or holder is not None
    if epoch >= 0 and len(members) >= SIZE_MAX and not is_known:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    member = members.get(request.member_id)
    if instance is not None:
        if epoch == 0:
            is_free = holder is None or holder.epoch == -2
            return ErrorCode.NONE if is_free else ErrorCode.UNRELEASED_INSTANCE_ID
        if holder is not None and holder.member_id != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member = holder
    if member is None:
        return ErrorCode.NONE if epoch == 0 else ErrorCode.UNKNOWN_MEMBER_ID
    if epoch <= 0 or epoch == member.epoch:
        return ErrorCode.NONE
    told = {
        (each.topic_id or NO_TOPIC, number) for each in request.topic_partitions or () for number in each.partitions
    }
    assigned = {(topic_id, number) for topic_id, numbers in member.assigned.items() for number in numbers}
    is_last = epoch == member.previous_epoch and request.topic_partitions is not None and told <= assigned
    return ErrorCode.NONE if is_last else ErrorCode.FENCED_MEMBER_EPOCH


class Client:
    """
    Attributes:
        sent: requests that the coordinator has not seen yet, each with the life of the member in which it was sent.
        answers: those that the client has not heard yet.
        life: rises with each join and each leave: an answer of an earlier life is ignored.
        waits: whether an answer of this life is under way, so that no heartbeat is sent.
    """

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.sent: deque[tuple[int, m.ConsumerGroupHeartbeatRequest]] = deque()
        self.answers: deque[tuple[int, Answer]] = deque()
        self.life = 0
        self.waits = False
        self.member: ProtocolMember | None = None

    def join(self) -> None:
        self.life += 1
        self.member = ProtocolMember(GROUP, self.name, ("orders",), instance_id=self.instance)
        self.send(self.member.heartbeat())

    def leave(self) -> None:
        if self.member is not None:
            self.life += 1
            self.send(self.member.leaving())
            self.member, self.waits = None, False

    def beat(self) -> None:
        if self.member is not None and not self.waits:
            self.send(self.member.heartbeat())

    def send(self, request: m.ConsumerGroupHeartbeatRequest) -> None:
        self.sent.append((self.life, request))
        self.waits = True

    def hear(self) -> None:
        life, answer = self.answers.popleft()
        member = self.member
        if life != self.life or member is None:
            return
        self.waits = False
        if answer.code in LATER:
            self.member = None
            return
        assert answer.code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, *JOINING_AGAIN)
        member.heard(answer.response)


class LateAnswers(RuleBasedStateMachine):
    @initialize(count=st.integers(0, len(INSTANCES)))
    def start(self, count: int) -> None:
        self.coordinator = Coordinator(GroupConfig(group_consumer_max_size=SIZE_MAX))
        self.clients = [Client(f"m{number}", instance) for number, instance in enumerate(INSTANCES)]
        for client in self.clients[:count]:
            client.join()

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.coordinator.shard.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @rule(index=which)
    def subscribe(self, index: int) -> None:
        """Join; a client that is in the group leaves and joins at once."""
        self.clients[index].leave()
        self.clients[index].join()

    @rule(index=which)
    def unsubscribe(self, index: int) -> None:
        self.clients[index].leave()

    @rule(index=which)
    def beat(self, index: int) -> None:
        self.clients[index].beat()

    @rule(index=which)
    def change_while_joining(self, index: int) -> None:
        """librdkafka tells the new subscription alone, though it has no epoch yet."""
        client = self.clients[index]
        if client.member is not None and client.member.epoch == 0:
            client.send(
                m.ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=client.name, subscribed_topic_names=["orders"]
                )
            )

    @rule(index=which, count=st.integers(1, 4))
    def arrive(self, index: int, count: int) -> None:
        for _ in range(count):
            self.deliver(self.clients[index])

    def deliver(self, client: Client) -> None:
        if not client.sent:
            return
        life, request = client.sent.popleft()
        code, before = expected(self.group, request), self.group
        epoch = 0 if before is None else before.epoch.get()
        answer = self.coordinator.ask("consumer_group_heartbeat", request)
        client.answers.append((life, answer))
        group = self.group
        if code is not ErrorCode.NONE:
            assert answer.is_parked or answer.code is code
            assert group is before
            assert group is None or group.epoch.get() == epoch
            return
        assert group is not None
        if request.member_epoch == -1:
            assert request.member_id not in group.members
            assert group.epoch.get() == epoch + 1
        else:
            member = group.members[request.member_id]
            assert member.epoch == -2 if request.member_epoch == -2 else 0 < member.epoch <= group.epoch.get()
        assert answer.is_parked or (answer.code, answer.member_id) == (ErrorCode.NONE, request.member_id)

    @rule(index=which, count=st.integers(1, 4))
    def hear(self, index: int, count: int) -> None:
        client = self.clients[index]
        for _ in range(count):
            if client.answers and not client.answers[0][1].is_parked:
                client.hear()

    @rule(index=which, is_repeated=st.booleans())
    def lose_the_connection(self, index: int, is_repeated: bool) -> None:
        """What is under way is lost. A client repeats its last request, or tells everything with its next heartbeat."""
        client = self.clients[index]
        last = client.sent[-1] if client.sent else None
        client.sent.clear()
        client.answers.clear()
        client.waits = False
        if client.member is not None:
            client.member.not_heard()
        if is_repeated and last is not None:
            client.sent.append(last)
            client.waits = last[0] == client.life

    @rule()
    def hold(self) -> None:
        """Answers wait for their records; after five seconds they are COORDINATOR_NOT_AVAILABLE."""
        self.coordinator.log.is_held = True

    @rule()
    def go_on(self) -> None:
        self.coordinator.log.is_held = False
        self.coordinator.node.settle()
        self.coordinator.log.commit()
        self.coordinator.node.settle()

    @rule(duration_ms=st.sampled_from((10, INTERVAL_MS, SESSION_MS)))
    def pass_time(self, duration_ms: int) -> None:
        self.coordinator.advance(duration_ms)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.group if hasattr(self, "coordinator") else None
        owned: list[tuple[UUID, int]] = [
            (topic_id, number)
            for member in (() if group is None else group.members.values())
            for each in (member.assigned, member.pending_revocation)
            for topic_id, numbers in each.items()
            for number in numbers
        ]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        """Every client that subscribes has its share, once the sessions of members that nobody is any more have ended."""
        if not hasattr(self, "coordinator"):
            return
        self.go_on()
        for _ in range(2 * SESSION_MS // INTERVAL_MS + 6):
            for client in self.clients[: len(INSTANCES) - 1]:
                while client.sent:
                    self.deliver(client)
                while client.answers:
                    client.hear()
                if client.member is None:
                    client.join()
                client.beat()
            self.clients[-1].leave()
            while self.clients[-1].sent:
                self.deliver(self.clients[-1])
            self.coordinator.advance(INTERVAL_MS)
        group = self.group
        assert group is not None
        assert set(group.members) == {f"m{number}" for number in range(len(INSTANCES) - 1)}
        assert group.state_name == "Stable"
        used = [partition for client in self.clients if client.member is not None for partition in client.member.used]
        topic = self.coordinator.image.by_name["orders"]
        assert sorted(used) == [(topic.topic_id, number) for number in range(topic.partition_count)]


LateAnswers.TestCase.settings = SETTINGS
TestLateAnswers = LateAnswers.TestCase
