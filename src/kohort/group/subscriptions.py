"""
The topics that the members of a group are subscribed to, counted; and groups by topic.

A topic is subscribed by name, or because it matches a resolved pattern. The counts are hard state: replay keeps them. A handler
that has a changed member in hand asks a `SubscriptionView` for the topics as they will be.

Source: Kafka ModernGroup.subscribedTopicNames, SubscriptionCount, ConsumerGroup.subscriptionType,
GroupMetadataManager.groupsByTopics.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from kohort.machine.timeline import SnapshotRegistry, TimelineDict

NO_TOPICS: Final[frozenset[str]] = frozenset()


class Subscriber(Protocol):
    """A member of a group."""

    @property
    def topic_names(self) -> frozenset[str]:
        """The topics that it subscribes to by name."""

    @property
    def topic_pattern(self) -> str:
        """The regular expression of its other topics; "" for none."""


class ResolvedPattern(msgspec.Struct, frozen=True):
    """
    The topics that a pattern matches.

    Attributes:
        version: of the cluster image in which it was resolved.
        timestamp_ms: the time of the resolution.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


UNRESOLVED: Final = ResolvedPattern(NO_TOPICS, 0, 0)


class Subscriptions:
    """
    Args:
        on_first: called with a topic that nobody was subscribed to until now; `on_last` when nobody is any more.

    Attributes:
        names: by topic, the number of members that name it.
        patterns: by pattern, the number of members that use it.
        resolved: by pattern, its topics.
        matches: by topic, the number of resolved patterns that match it.
    """

    __slots__ = ("_on_first", "_on_last", "matches", "names", "patterns", "resolved")

    def __init__(
        self, registry: SnapshotRegistry, on_first: Callable[[str], None], on_last: Callable[[str], None]
    ) -> None:
        self.names: TimelineDict[str, int] = TimelineDict(registry)
        self.patterns: TimelineDict[str, int] = TimelineDict(registry)
        self.resolved: TimelineDict[str, ResolvedPattern] = TimelineDict(registry)
        self.matches: TimelineDict[str, int] = TimelineDict(registry)
        self._on_first = on_first
        self._on_last = on_last

    def __contains__(self, topic: object) -> bool:
        return topic in self.names or topic in self.matches

    # Replay

    def replace(self, old: Subscriber | None, new: Subscriber | None) -> None:
        """Count `new` in place of `old`."""
        before = NO_TOPICS if old is None else old.topic_names
        after = NO_TOPICS if new is None else new.topic_names
        if before != after:
            self._count(self.names, after - before, before - after)
        old_pattern = "" if old is None else old.topic_pattern
        new_pattern = "" if new is None else new.topic_pattern
        if old_pattern != new_pattern:
            _change(self.patterns, new_pattern, 1)
            _change(self.patterns, old_pattern, -1)

    def resolve(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        """Set the topics of a pattern; None forgets it."""
        old = self.resolved.get(pattern)
        before = NO_TOPICS if old is None else old.topics
        after = NO_TOPICS if resolved is None else resolved.topics
        if resolved is None:
            self.resolved.remove(pattern)
        else:
            self.resolved.put(pattern, resolved)
        self._count(self.matches, after - before, before - after)

    def clear(self) -> None:
        """Forget everything: the group is removed."""
        for topic in {*self.names, *self.matches}:
            self._on_last(topic)
        for counts in (self.names, self.patterns, self.resolved, self.matches):
            counts.clear()

    def _count(self, counts: TimelineDict[str, int], added: Iterable[str], removed: Iterable[str]) -> None:
        for topic in added:
            if topic not in self:
                self._on_first(topic)
            _change(counts, topic, 1)
        for topic in removed:
            _change(counts, topic, -1)
            if topic not in self:
                self._on_last(topic)

    # Reading

    @property
    def last_resolution(self) -> ResolvedPattern | None:
        """Any resolved pattern: all are resolved together, at the same time and from the same image."""
        return next(iter(self.resolved.values()), None)

    def topics_of(self, member: Subscriber) -> frozenset[str]:
        """The topics of one member: by name, and by its pattern if that is resolved."""
        resolved = self.resolved.get(member.topic_pattern) if member.topic_pattern else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics


class SubscriptionView:
    """
    The subscriptions of a group as they will be after a change of members.

    Args:
        old: the members that `new` replaces; those that are removed if `new` is None.
        resolved: the resolved patterns; the present ones by default.

    Attributes:
        names: by topic, the number of members that name it.
        patterns: by pattern, the number of members that use it.
    """

    __slots__ = ("_resolved", "names", "patterns")

    def __init__(
        self,
        subscriptions: Subscriptions,
        old: Iterable[Subscriber],
        new: Subscriber | None = None,
        resolved: Mapping[str, ResolvedPattern] | None = None,
    ) -> None:
        names: dict[str, int] = dict(subscriptions.names)
        patterns: dict[str, int] = dict(subscriptions.patterns)
        for member in old:
            _add_member(names, patterns, member, -1)
        if new is not None:
            _add_member(names, patterns, new, 1)
        self.names = {topic: count for topic, count in names.items() if count > 0}
        self.patterns = {pattern: count for pattern, count in patterns.items() if count > 0}
        self._resolved: Mapping[str, ResolvedPattern] = subscriptions.resolved if resolved is None else resolved

    @property
    def topics(self) -> frozenset[str]:
        """Every topic that a member is subscribed to."""
        matched = (self._resolved[pattern].topics for pattern in self.patterns if pattern in self._resolved)
        return frozenset(self.names).union(*matched)

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members are subscribed to the same topics, as far as Kafka looks: one pattern, or the same names."""
        if not self.patterns:
            return all(count == member_count for count in self.names.values())
        return not self.names and list(self.patterns.values()) == [member_count]


def _add_member(names: dict[str, int], patterns: dict[str, int], member: Subscriber, step: int) -> None:
    for topic in member.topic_names:
        names[topic] = names.get(topic, 0) + step
    if member.topic_pattern:
        patterns[member.topic_pattern] = patterns.get(member.topic_pattern, 0) + step


def _change(counts: TimelineDict[str, int], key: str, step: int) -> None:
    if not key:
        return
    count = counts.get(key, 0) + step
    if count > 0:
        counts.put(key, count)
    else:
        counts.remove(key)


class TopicIndex:
    """The ids of the groups of one shard that are subscribed to each topic. It is part of the hard state."""

    __slots__ = ("_groups", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._groups: TimelineDict[str, TimelineDict[str, None]] = TimelineDict(registry)

    def add(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is None:
            groups = TimelineDict(self._registry)
            self._groups.put(topic, groups)
        groups.put(group_id, None)

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is not None:
            groups.remove(group_id)
            if not groups:
                self._groups.remove(topic)

    def groups(self, topic: str) -> Iterable[str]:
        """The ids of the groups that are subscribed to the topic."""
        return tuple(self._groups.get(topic, ()))
