"""
Invariants of share groups under random requests, and faults of the log and of the share coordinators.

Every request is answered once. A shard that is loaded from the log equals the one that wrote it. A heartbeat that takes the
short way ends as by the long one. When the trouble is over, every partition of a subscribed topic has a state and a member.
"""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from kohort.group.configs import GroupConfig
from kohort.group.share import heartbeat as handler
from kohort.group.share.group import ShareGroup
from kohort.group.share.registry import registry_of
from kohort.machine.ports import SharePartitionKey
from kohort.model.errors import ErrorCode
from kohort.runtime.states import State
from kohort.testing import FixedContext
from kohort.wire import messages as m
from tests.group.consumer.picture import loaded
from tests.group.harness import Answer, Topic
from tests.group.share.members import ShareCoordinator
from tests.group.share.picture import picture
from tests.group.trouble import SETTINGS, Trouble

GROUPS = ("a", "b")
OFTEN_A = st.sampled_from(("a", "a", "a", "b"))
TOPICS = ("orders", "payments", "clicks")
MEMBERS_MAX = 6
ROUNDS_MAX = 8
RETRY_MS, SESSION_MS, INTERVAL_MS = 20_000, 45_000, 1_000
CONFIG = GroupConfig(
    group_share_max_size=4,
    group_share_session_timeout_ms=SESSION_MS,
    group_share_initialize_retry_interval_ms=RETRY_MS,
    offsets_retention_check_interval_ms=1_000_000_000,
)
which = st.integers(0, MEMBERS_MAX - 1)
subscriptions = st.sampled_from([("orders",), ("orders", "payments"), ("payments",), TOPICS])
names = st.sampled_from(TOPICS)


class Client:
    """
    Attributes:
        is_new: whether its next heartbeat tells everything.
    """

    def __init__(self, group: str, member_id: str, topics: tuple[str, ...]) -> None:
        self.group = group
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.is_new = True
        self.is_fenced = False

    def request(self, **fields: Any) -> m.ShareGroupHeartbeatRequest:
        known: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "subscribed_topic_names": list(self.topics) if self.is_new else None,
        }
        return m.ShareGroupHeartbeatRequest(**{**known, **fields})

    def heard(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.epoch, self.is_new, self.is_fenced = response.member_epoch, False, False
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch, self.is_new = 0, True
        else:
            self.is_fenced = code is ErrorCode.GROUP_MAX_SIZE_REACHED
            self.is_new = True


class ShareGroups(Trouble):
    coordinator: ShareCoordinator

    @initialize(interval_ms=st.sampled_from([0, INTERVAL_MS]))
    def start(self, interval_ms: int) -> None:
        self.coordinator = ShareCoordinator(CONFIG, assignment_interval_ms=interval_ms)
        self.clients: list[Client] = []
        self.answers: list[Answer] = []
        self.waiting: list[tuple[Client, Answer]] = []
        self.number = 0
        self.short = 0

    # Requests

    def ask(self, api: str, request: Any) -> Answer:
        answer = self.coordinator.ask(api, request)
        self.answers.append(answer)
        self.hear()
        return answer

    def hear(self) -> None:
        waiting = []
        for client, answer in self.waiting:
            if answer.is_parked:
                waiting.append((client, answer))
            else:
                assert answer.code is not ErrorCode.UNKNOWN_SERVER_ERROR, answer.error_message
                client.heard(answer.response)
        self.waiting = waiting

    def client(self, index: int) -> Client | None:
        """The client, if it does not wait for an answer."""
        found = self.clients[index % len(self.clients)] if self.clients else None
        return None if found is None or any(client is found for client, _ in self.waiting) else found

    def send(self, client: Client, *, is_lost: bool = False, **fields: Any) -> None:
        request = client.request(**fields)
        self.compare_with_the_long_way(request)
        answer = self.coordinator.ask("share_group_heartbeat", request)
        self.answers.append(answer)
        if not is_lost:
            self.waiting.append((client, answer))
        self.hear()

    def compare_with_the_long_way(self, request: m.ShareGroupHeartbeatRequest) -> None:
        if request.member_epoch <= 0 or self.coordinator.runtime.states().get(0) is not State.ACTIVE:
            return
        registry, context = registry_of(self.coordinator.shard), FixedContext(1, "client", "/127.0.0.1")
        short = handler._unchanged(registry, request, context)
        if short is not None:
            self.short += 1
            full = handler._Heartbeat(registry, request, context, self.coordinator.now_ms).run()
            assert (list(short.records), short.response) == (list(full.records), full.response)

    # Members

    @rule(group=OFTEN_A, topics=subscriptions)
    def arrive(self, group: str, topics: tuple[str, ...]) -> None:
        if len(self.clients) < MEMBERS_MAX:
            self.number += 1
            self.clients.append(Client(group, f"m{self.number}", topics))
            self.send(self.clients[-1])

    @rule(beats=st.lists(st.tuples(which, st.booleans()), min_size=1, max_size=5))
    def beat(self, beats: list[tuple[int, bool]]) -> None:
        for index, is_lost in beats:
            client = self.client(index)
            if client is not None:
                self.send(client, is_lost=is_lost)

    @rule()
    def everybody_beats(self) -> None:
        for index in range(len(self.clients)):
            client = self.client(index)
            if client is not None:
                self.send(client)

    @rule(index=which, topics=subscriptions)
    def subscribe(self, index: int, topics: tuple[str, ...]) -> None:
        client = self.client(index)
        if client is not None:
            client.topics, client.is_new = topics, True
            self.send(client)

    @rule(index=which)
    def leave(self, index: int) -> None:
        client = self.client(index)
        if client is not None:
            self.clients.remove(client)
            self.ask("share_group_heartbeat", client.request(member_epoch=-1, subscribed_topic_names=None))

    @rule(index=which)
    def die(self, index: int) -> None:
        client = self.client(index)
        if client is not None:
            self.clients.remove(client)

    # Topics

    @rule(name=names)
    def change_topic(self, name: str) -> None:
        """Make it, or give it one more partition."""
        found = self.coordinator.image.by_name.get(name)
        self.number += 1
        topic_id = UUID(int=1_000 + self.number) if found is None else found.topic_id
        self.coordinator.set_topic(Topic(name, topic_id, 2 if found is None else found.partition_count + 1))

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        if name in self.coordinator.image.by_name:
            topic_id = self.coordinator.image.by_name[name].topic_id
            self.coordinator.delete_topic(name)
            known = self.coordinator.states.known
            for key in [key for key in known if key.topic_id == topic_id]:
                del known[key]  # The share coordinators hear of it, too.

    # Administrators

    @rule(group=OFTEN_A, name=names, offset=st.integers(0, 3))
    def alter(self, group: str, name: str, offset: int) -> None:
        self.answers.append(self.coordinator.alter({name: {0: offset, 1: offset}}, group))
        self.hear()

    @rule(group=OFTEN_A, name=names)
    def delete_offsets(self, group: str, name: str) -> None:
        self.answers.append(self.coordinator.delete_offsets(name, group=group))
        self.hear()

    @rule(group=OFTEN_A)
    def delete_group(self, group: str) -> None:
        self.ask("delete_groups", m.DeleteGroupsRequest(groups_names=[group]))

    # Share coordinators

    @rule()
    def hold_states(self) -> None:
        self.coordinator.states.is_held = True

    @rule()
    def let_states_go(self) -> None:
        self.coordinator.states.let_go()
        self.settle()

    @rule(name=names)
    def fail_state(self, name: str) -> None:
        if name in self.coordinator.image.by_name:
            self.coordinator.fail(name, 1)

    @rule()
    def heal_states(self) -> None:
        self.coordinator.states.failures.clear()

    @rule(duration_ms=st.sampled_from([INTERVAL_MS, RETRY_MS // 2, RETRY_MS, SESSION_MS]))
    def wait(self, duration_ms: int) -> None:
        self.pass_time(duration_ms)

    # What holds at any time

    @invariant()
    def a_loaded_shard_equals_the_live_one(self) -> None:
        if not hasattr(self, "coordinator") or self.coordinator.is_burst or self.coordinator.log.fail_next_append:
            return
        if self.coordinator.runtime.states().get(0) is State.ACTIVE:
            records = self.coordinator.records()
            assert picture(self.coordinator.shard) == picture(loaded(records, self.coordinator.image))

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.heal_states()
        self.coordinator.log.fail_next_append = None
        self.go_on()
        self.let_states_go()
        for _ in range(2):  # A retry for one topic puts off those for topics that a member subscribes to later.
            self.pass_time(RETRY_MS)
            for _ in range(ROUNDS_MAX):
                self.everybody_beats()
                self.pass_time(INTERVAL_MS)
        assert not self.waiting
        assert all(len(answer.responses) == 1 for answer in self.answers)
        image, states = self.coordinator.image, self.coordinator.states.known
        for group_id in GROUPS:
            group = self.coordinator.shard.groups.get(group_id)
            members = [each for each in self.clients if each.group == group_id and not each.is_fenced]
            if not isinstance(group, ShareGroup) or not members:
                continue
            assert group.assignment_epoch.get() == group.epoch.get()
            assert {each.member_id for each in members} <= set(group.members)
            for name in group.subscribed_topics():
                topic = image.topic(name)
                if topic is None:
                    continue
                every = set(range(topic.partition_count))
                assigned = [set(target.get(topic.topic_id, ())) for target in group.targets.values()]
                assert set().union(*assigned) == every
                assert set(group.known_states.initialized[topic.topic_id]) == every
                assert {SharePartitionKey(group_id, topic.topic_id, each) for each in every} <= states.keys()
            for client in members:
                member = group.members[client.member_id]
                assert member.epoch == client.epoch == group.epoch.get()


TestShareGroups = ShareGroups.TestCase
TestShareGroups.settings = SETTINGS
