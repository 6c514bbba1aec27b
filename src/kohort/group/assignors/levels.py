"""
The subscribers of a topic, by their number of partitions.

Partitions go to the subscribers with the fewest partitions in rounds. Each member of the lowest level gets one, and has then as
many as the members of the next level, which join the next round. Partitions are taken from the highest level in the same way.

Source: Kafka 4.2 UniformHeterogeneousAssignmentBuilder.MemberAssignmentBalancer.
"""

from typing import Final

NOBODY: Final = -1


class Levels:
    """
    Subscribers sorted by size, then by member index. The caller updates the sizes as it moves partitions.

    The lowest level is `_order[:_low_end]`, and each of its members has `_low_size` partitions when its round begins. The
    highest level is `_order[_high_start:_high_end]`, with `_high_size` partitions. Members after it cannot give partitions.
    """

    def __init__(self, subscribers: list[int], sizes: list[int]) -> None:
        """
        Args:
            subscribers: indexes of members; at least one.
            sizes: the number of partitions of all members, by index.
        """
        count = len(sizes)
        keys = [sizes[member] * count + member for member in subscribers]
        keys.sort()
        self._order: Final = [key % count for key in keys]
        self._sizes: Final = sizes
        self._low_end = 0
        self._low_size = sizes[self._order[0]] - 1
        self._low_next = 0
        self._high_start = len(subscribers)
        self._high_end = len(subscribers)
        self._high_size = sizes[self._order[-1]] + 1
        self._high_next = len(subscribers) - 1

    def is_balanced(self) -> bool:
        return self._high_size - self._low_size <= 1

    def next_lowest(self) -> int:
        """Return the member that gets the next partition."""
        order = self._order
        if self._low_next >= self._low_end:
            self._low_size += 1
            end = self._low_end
            while end < len(order) and self._sizes[order[end]] == self._low_size:
                end += 1
            self._low_end = end
            self._low_next = 0
        member = order[self._low_next]
        self._low_next += 1
        return member

    def next_highest(self) -> int:
        """Return the member that gives the next partition; `NOBODY` if there is none."""
        order = self._order
        if self._high_next < self._high_start:
            start = self._high_start
            if self._high_end <= start and start > 0:
                self._high_size = self._sizes[order[start - 1]]
            else:
                self._high_size -= 1
            while start > 0 and self._sizes[order[start - 1]] == self._high_size:
                start -= 1
            self._high_start = start
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return NOBODY
        member = order[self._high_next]
        self._high_next -= 1
        return member

    def exclude_highest(self) -> None:
        """Exclude the member that `next_highest` returned last: it has no partition of the topic."""
        order = self._order
        self._high_end -= 1
        member = order[self._high_next + 1]
        order[self._high_next + 1] = order[self._high_end]
        order[self._high_end] = member
