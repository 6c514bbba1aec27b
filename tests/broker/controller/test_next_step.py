"""The next change that the rows of the nodes ask of the controller."""

from uuid import UUID

import pytest

from kohort.broker.controller.controller import Drain, EndLease, Fence, Register, next_step
from kohort.broker.controller.leases import LeaseWatch
from kohort.broker.controller.registrations import RegisteredNode
from kohort.storage.shared import NodeRow, NodeState, Registration

OWN = 1
OTHER = Registration({"PLAINTEXT": ("other", 9092)})


def row(node_id: int, state: NodeState = NodeState.LIVE, incarnation: int = 0, *, is_drained: bool = False) -> NodeRow:
    return NodeRow(node_id, UUID(int=incarnation or node_id), 3, state, 0, Registration(), is_drained)


def node(node_id: int, *, is_fenced: bool = False, is_draining: bool = False) -> RegisteredNode:
    return RegisteredNode(UUID(int=node_id), Registration(), is_fenced, is_draining)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


LIVE, DRAINING, ENDED = NodeState


@pytest.mark.parametrize(
    ("rows", "nodes", "expected"),
    [
        ([], {}, None),
        ([row(2)], {}, Register(row(2))),
        ([row(2)], {2: node(2)}, None),
        ([row(2)], {2: node(2, is_fenced=True)}, Register(row(2))),
        ([row(2)], {2: node(2, is_draining=True)}, Register(row(2))),
        ([row(2, DRAINING)], {2: node(2)}, Drain(2, node(2))),
        ([row(2, DRAINING)], {2: node(2, is_draining=True)}, None),
        ([row(2, DRAINING)], {2: node(2, is_fenced=True)}, None),
        ([row(2, DRAINING)], {}, None),
        ([row(2, is_drained=True)], {2: node(2)}, Drain(2, node(2))),
        ([row(2, is_drained=True)], {2: node(2, is_draining=True)}, None),
        ([row(2, is_drained=True)], {}, Register(row(2, is_drained=True))),
        ([row(2, ENDED)], {2: node(2)}, Fence(2, node(2))),
        ([row(2, ENDED)], {2: node(2, is_fenced=True)}, None),
        ([row(2, ENDED)], {}, None),
        ([row(2, incarnation=9)], {2: node(2)}, Fence(2, node(2))),
        ([row(2, incarnation=9)], {2: node(2, is_fenced=True)}, Register(row(2, incarnation=9))),
        ([], {2: node(2)}, Fence(2, node(2))),
        # Nodes that are gone come first.
        ([row(2), row(3, DRAINING), row(4, ENDED)], {3: node(3), 4: node(4)}, Fence(4, node(4))),
        ([row(2), row(3, DRAINING)], {3: node(3)}, Drain(3, node(3))),
    ],
)
def test_the_next_step(rows: list[NodeRow], nodes: dict[int, RegisteredNode], expected: object) -> None:
    watch = LeaseWatch(Clock(), 6.0)
    assert next_step({each.node_id: each for each in rows}, nodes, watch, OWN) == expected


@pytest.mark.parametrize("state", [LIVE, DRAINING])
def test_a_lease_that_is_over_is_ended_before_its_node_is_fenced(state: NodeState) -> None:
    clock, seen = Clock(), [row(OWN), row(2, state), row(3, ENDED)]
    watch = LeaseWatch(clock, 6.0)
    for clock.now in range(8):
        watch.see(seen, clock.now)
    nodes = {each: node(each) for each in (OWN, 2, 3)}
    rows = {each.node_id: each for each in seen}
    assert next_step(rows, nodes, watch, OWN) == EndLease(row(2, state))
    assert next_step({**rows, 2: row(2, ENDED)}, nodes, watch, OWN) == Fence(2, node(2))
