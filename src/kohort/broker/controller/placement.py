"""Which node leads which partition: changes that spread leaders evenly, and move few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kohort.broker.partitions.replicas import NO_LEADER, PartitionState


def candidates(state: PartitionState, active: Collection[int]) -> list[int]:
    """
    The nodes that a partition may be moved to: one of its replicas, or, if it has one replica, any node, since all read one
    store.
    """
    if len(state.replicas) > 1:
        return [replica for replica in state.isr if replica in active]
    return sorted(active)


def leader_counts(states: Iterable[PartitionState], active: Collection[int]) -> Counter[int]:
    """How many partitions each active node leads."""
    counts = Counter(dict.fromkeys(sorted(active), 0))
    counts.update(state.leader for state in states if state.leader in active)
    return counts


def least_loaded(counts: Mapping[int, int]) -> int:
    """The node that leads the fewest partitions, of several the one with the lowest id; `NO_LEADER` without nodes."""
    return min(counts, key=lambda node_id: (counts[node_id], node_id), default=NO_LEADER)


def balanced(states: Sequence[PartitionState], active: Collection[int], counts: Counter[int]) -> list[tuple[int, int]]:
    """
    Moves of leaders of one topic: no node then leads two partitions more of it than another one that could lead them, and of
    two nodes that differ by one the node that leads more partitions of all topics leads fewer of this one.

    Args:
        active: the nodes that may lead.
        counts: how many partitions of all topics each node leads; the moves are counted there.

    Returns:
        (index, node) of each move. The leaders that are well placed stay.
    """
    led: dict[int, list[int]] = {node_id: [] for node_id in sorted(active)}
    for index, state in enumerate(states):
        if state.leader in led and not state.is_reassigned:
            led[state.leader].append(index)
    moves: list[tuple[int, int]] = []
    while (move := _next_move(states, led, counts)) is not None:
        index, source, target = move
        led[source].remove(index)
        led[target].append(index)
        counts[source] -= 1
        counts[target] += 1
        moves.append((index, target))
    return moves


def _next_move(
    states: Sequence[PartitionState], led: Mapping[int, list[int]], counts: Mapping[int, int]
) -> tuple[int, int, int] | None:
    """Index, source and target of the next move: from the node with the most partitions to the one with the fewest."""
    by_load = sorted(led, key=lambda node_id: (len(led[node_id]), counts[node_id], node_id))
    for source in reversed(by_load):
        for target in by_load:
            gap = len(led[source]) - len(led[target])
            if gap < 1 or (gap == 1 and counts[source] - counts[target] < 2):
                continue
            for index in reversed(led[source]):
                if target in candidates(states[index], led):
                    return index, source, target
    return None
