"""A member, statement by statement: joins, refusals, the catalog, handovers."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID, Catalog
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.controller.controller import Controller
from kohort.broker.controller.leaderships import Leaderships
from kohort.broker.controller.leases import LeaseWatch
from kohort.broker.controller.member import Member
from kohort.broker.controller.registrations import Registrations, registered
from kohort.broker.partitions.replicas import PartitionState
from kohort.broker.partitions.replication import ReplicationControl
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.shared import Claim, NodeRow, NodeState, Registration, Renewal
from kohort.testing.virtual import VirtualNode
from kohort_lab.nodes.database import Database
from tests.broker.controller.held_store import HeldStore
from tests.conftest import extends_logs

pytestmark = extends_logs

LEASE_S = 6.0
PLACE = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=77)


class Node:
    """A member over a held store, in virtual time."""

    def __init__(self, database: Database, node_id: int, *, is_dead: bool = False) -> None:
        self.virtual = virtual = VirtualNode()
        self.store = store = HeldStore(database)
        self.lost: list[str] = []
        self.refused: list[str] = []
        self.led: list[TopicPartition] = []
        self.cluster = cluster = Cluster(node_id, "held", is_shared=True)
        self.catalog = catalog = Catalog(None, virtual.clock, cluster)
        registrations = Registrations(catalog, cluster)
        replication = ReplicationControl(catalog, TopicConfigs(BrokerConfig()), cluster)

        def controller(watch: LeaseWatch, look_again: Callable[[], None]) -> Controller:
            return Controller(
                node_id, store, catalog, registrations, replication, watch, virtual.call_later, look_again
            )

        self.member = Member(
            node_id,
            UUID(int=node_id),
            Registration,
            store,
            catalog,
            cluster,
            registrations,
            controller,
            Leaderships(node_id, store, catalog, virtual.defer, lambda *place: self.led.append(TopicPartition(*place))),
            self,
            is_dead=lambda _: is_dead,
            seconds=lambda: virtual.clock.now_ms() / 1000,
            duration_s=LEASE_S,
            call_later=virtual.call_later,
        )
        self.member.look()

    def on_lost(self, reason: str, /) -> None:
        self.lost.append(reason)

    def on_refused(self, reason: str, /) -> None:
        self.refused.append(reason)

    def run(self, *names: str) -> None:
        for name in names:
            self.store.run(name)
            self.virtual.settle()

    def settle(self) -> None:
        """Answer all statements, and let time pass for the next ones."""
        while self.store.sent:
            self.run(self.store.names[0])

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.virtual.advance(250)
            self.settle()

    def put(self, *states: PartitionState) -> None:
        codes: list[ErrorCode] = []
        topic = Topic("orders", TOPIC_ID, len(states), partitions=states)
        self.catalog.change(CatalogChange(put=(topic,)), codes.append)
        self.settle()
        assert codes == [ErrorCode.NONE]


def row(node_id: int, state: NodeState = NodeState.LIVE, counter: int = 5, incarnation: int = 99) -> NodeRow:
    return NodeRow(node_id, UUID(int=incarnation), counter, state, 0, Registration())


def joined(database: Database, node_id: int) -> Node:
    node = Node(database, node_id)
    node.settle()
    node.pass_time(1)
    return node


def controller_of(database: Database) -> Node:
    node = joined(database, 1)
    assert node.catalog.is_led
    assert node.member.is_ready
    return node


# Joins


def test_the_first_node_joins_leads_the_catalog_and_registers_itself() -> None:
    database = Database()
    node = Node(database, 1)
    node.run("look", "join", "look", "claim catalog")
    assert node.member.lease.is_held
    assert (node.member.is_registered,) == (False,)
    node.settle()
    assert node.member.is_registered
    assert database.catalog().leader_id == 1


def test_the_id_of_a_process_that_lives_is_refused() -> None:
    database = Database()
    database.nodes[1] = row(1)
    node = Node(database, 1)
    node.run("look")
    assert (node.store.names, node.refused) == ([], [])
    database.nodes[1] = row(1, counter=6)
    node.pass_time(1)
    assert not node.refused, "a late renewal of a process that is dead"
    database.nodes[1] = row(1, counter=7)
    node.pass_time(1)
    assert "another process is node 1" in node.refused[0]
    assert not node.store.sent


def test_the_row_of_a_dead_process_of_this_machine_is_taken_at_once() -> None:
    database = Database()
    database.nodes[1] = row(1)
    node = Node(database, 1, is_dead=True)
    node.run("look", "join")
    assert (database.nodes[1].incarnation, database.nodes[1].counter) == (UUID(int=1), 6)


def test_the_row_of_another_process_is_taken_when_its_lease_is_over() -> None:
    for state in (NodeState.LIVE, NodeState.DRAINING):
        database = Database()
        database.nodes[1] = row(1, state)
        node = Node(database, 1)
        node.settle()
        node.pass_time(6)
        assert database.nodes[1] == row(1, state)
        node.pass_time(2)
        assert database.nodes[1].incarnation == UUID(int=1)


def test_a_process_that_drains_is_waited_for() -> None:
    database = Database()
    database.nodes[1] = row(1)
    node = Node(database, 1)
    node.settle()
    database.nodes[1] = row(1, NodeState.DRAINING, 6)
    node.pass_time(1)
    assert not node.refused
    database.nodes[1] = row(1, NodeState.ENDED, 7)
    node.pass_time(1)
    assert node.member.lease.is_held


def test_a_late_join_finds_no_row() -> None:
    """It was answered with an error, repeated, and takes effect after the lease was ended: the row stays ended."""
    database = Database()
    node = Node(database, 1)
    node.run("look")
    late = node.store.next("join")
    late.lose_answer()
    node.virtual.advance(1_000)
    node.run("look", "join")
    database.end_lease(database.nodes[1])
    late.take_effect()
    assert database.nodes[1].state is NodeState.ENDED


def test_a_join_whose_effect_was_not_told_is_repeated_and_raises_the_counter() -> None:
    """A node that has seen the counter of the first one ends nothing."""
    database = Database()
    node = Node(database, 1)
    node.run("look")
    node.store.next("join").take_effect().lose_answer()
    seen = database.nodes[1]
    node.virtual.advance(1_000)
    node.run("look", "join")
    assert node.member.lease.is_held
    assert not database.end_lease(seen)


# Leases


def test_a_node_whose_renewal_does_not_take_effect_has_lost_its_lease() -> None:
    database = Database()
    node = controller_of(database)
    database.end_lease(database.nodes[1])
    node.pass_time(1)
    assert "was ended by another node" in node.lost[0]
    assert not node.member.lease.is_held
    assert not node.store.sent


def test_a_node_without_answers_keeps_its_lease_to_its_end() -> None:
    node = controller_of(Database())
    while node.store.sent:
        node.settle()
    for _ in range(24):
        node.virtual.advance(240)
        while node.store.sent:
            node.store.next(node.store.names[0]).lose_answer()
    assert (node.member.lease.is_held,) == (True,)
    node.virtual.advance(1_000)
    assert not node.member.lease.is_held
    assert not node.lost


def test_a_look_from_before_the_claim_does_not_cost_the_catalog() -> None:
    database = Database()
    node = Node(database, 1)
    node.run("look", "join", "look")
    claim = node.store.next("claim catalog")
    node.member.look()
    early = node.store.next("look").take_effect()
    claim.take_effect().answer()
    early.answer()
    node.settle()
    assert (node.lost, node.catalog.is_led) == ([], True)


def test_a_controller_whose_epoch_was_taken_is_lost() -> None:
    database = Database()
    node = controller_of(database)
    database.claim(2, [Claim(CATALOG, CATALOG_ID, database.catalog().leader_epoch + 1)])
    node.pass_time(1)
    assert node.lost == ["node 2 leads the catalog now"]


# The catalog


def test_a_look_between_a_claim_and_its_answer_reads_nothing_twice() -> None:
    """The former controller has appended after the look that let this node claim."""
    database = Database()
    first = controller_of(database)
    second = joined(database, 2)
    database.end_lease(database.nodes[1])
    second.virtual.advance(500)
    second.run("look")
    claim = second.store.next("claim catalog")
    first.catalog.change(CatalogChange(settings=(registered(row(3)).setting(3),)), lambda _: None)
    second.member.look()
    second.run("look")
    claim.take_effect().answer()
    assert second.store.names.count("read catalog") == 2
    second.settle()
    second.pass_time(1)
    assert (second.refused, second.lost, second.catalog.is_led) == ([], [], True)
    assert second.catalog.version == database.catalog().next_offset


def test_a_change_is_current_when_a_later_look_has_been_followed() -> None:
    database = Database()
    first = controller_of(database)
    second = joined(database, 2)
    first.settle()
    seen: list[int] = []
    second.member.look()
    early = second.store.next("look").take_effect()
    first.put(PartitionState((1,), (1,), 1))
    second.member.when_current(lambda: seen.append(second.catalog.version))
    early.answer()
    assert seen == []
    second.pass_time(0.5)
    assert seen == [database.catalog().next_offset]


# Handovers


def handover(database: Database) -> tuple[Node, Node]:
    """Two nodes, and a partition that moves from the second to the first, which has claimed it."""
    first = controller_of(database)
    second = joined(database, 2)
    for node in (first, second, first, second):
        node.pass_time(0.5)
    first.put(PartitionState((2,), (2,), 2, 3))
    second.pass_time(1)
    first.pass_time(1)
    second.pass_time(1)
    assert second.led == [PLACE]
    moved = PartitionState((1,), (1,), 1, 4)
    topic = Topic("orders", TOPIC_ID, 1, partitions=(moved,))
    first.catalog.change(CatalogChange(put=(topic,)), lambda _: None)
    first.settle()
    assert database.logs[PLACE, TOPIC_ID].leader_id == 1
    return first, second


def test_a_partition_is_answered_for_when_the_views_of_others_have_passed_the_change() -> None:
    database = Database()
    first, second = handover(database)
    first.pass_time(2)
    assert first.led == []
    second.pass_time(1)
    assert second.store.left == [PLACE]
    first.pass_time(0.25)
    assert first.led == [PLACE]


def test_a_partition_is_answered_for_when_the_lease_of_the_other_was_ended() -> None:
    database = Database()
    first, second = handover(database)
    first.pass_time(2)
    assert first.led == []
    database.end_lease(database.nodes[2])
    first.pass_time(0.25)
    assert first.led == [PLACE]
    assert second.store.left == []


def test_a_partition_is_not_claimed_before_this_process_is_registered() -> None:
    """Its id may lead it for a former process."""
    database = Database()
    first = controller_of(database)
    second = joined(database, 2)
    for node in (first, second):
        node.pass_time(0.5)
    first.put(PartitionState((2,), (2,), 2, 3))
    database.end_lease(database.nodes[2])
    again = Node(database, 2)
    again.member.incarnation = UUID(int=22)
    again.settle()
    again.pass_time(1)
    assert again.catalog.topic("orders") is not None
    assert (PLACE, TOPIC_ID) not in database.logs
    first.pass_time(1)
    again.pass_time(1)
    first.pass_time(1)
    again.pass_time(1)
    assert database.logs[PLACE, TOPIC_ID].leader_epoch > 3


def test_a_view_is_published_after_it_was_applied() -> None:
    database = Database()
    first = controller_of(database)
    second = joined(database, 2)
    first.put(PartitionState((1,), (1,), 1))
    before = second.catalog.version
    second.virtual.advance(500)
    second.run("look")
    assert database.nodes[2].view == before
    second.member.look()
    second.run("look")
    assert database.nodes[2].view == before
    second.run("read catalog")
    assert database.nodes[2].view == before
    second.run("look")
    assert database.nodes[2].view == second.catalog.version > before


# Stops


def test_a_node_that_drains_gives_its_partitions_and_then_its_lease() -> None:
    database = Database()
    first, second = handover(database)
    second.pass_time(1)
    first.pass_time(1)
    first.member.drain()
    first.settle()
    assert (database.nodes[1].state,) == (NodeState.DRAINING,)
    first.pass_time(1)
    assert first.member.is_drained
    first.member.leave()
    assert not first.member.lease.is_held
    first.settle()
    assert database.nodes[1].state is NodeState.ENDED


def test_an_old_renewal_does_not_revive_a_lease() -> None:
    database = Database()
    controller_of(database)
    ended = msgspec.structs.replace(database.nodes[1], state=NodeState.ENDED)
    database.nodes[1] = ended
    assert not database.renew(Renewal(1, UUID(int=1), 0))
    assert database.nodes[1] == ended
