"""
Regular expressions of members: their validation, their resolution, and the records that keep the result.

A pattern is resolved on another thread. Until then it matches no topic. With an authorizer it matches only topics that the
member may describe whose request has caused the resolution, as in Kafka. All patterns of a group are resolved together, at most
every 10 s, and only one resolution runs at a time. Heartbeats trigger it: `patterns_are_due`.

Source: Kafka Utils.throwIfRegularExpressionIsInvalid, GroupMetadataManager.maybeUpdateRegularExpressions,
refreshRegularExpressions, handleRegularExpressionsResult; KIP-848.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry, registry_of
from kohort.group.context import HasContext
from kohort.group.events import EpochRaised, GroupEvent
from kohort.group.modern import REFRESH_INTERVAL_MS
from kohort.group.records import GroupRecord
from kohort.group.subscriptions import NO_TOPICS, UNRESOLVED, ResolvedPattern, SubscriptionView
from kohort.machine.shard import Executor, Result
from kohort.machine.steps import Operation as Step
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.expressions import Expression, ExpressionError, options
from kohort.model.limits import PATTERN_LENGTH_MAX, PATTERNS_OF_GROUP_MAX
from kohort.model.principals import Principal
from kohort.records.values import (
    ConsumerGroupMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupRegularExpressionTombstone,
)
from kohort.security.operations import Operation, ResourceType

DECISIONS_STEP: Final = 500
"""Topics about which the authorizer is asked in one operation."""


class Asker(NamedTuple):
    """The member whose request has caused a resolution, and its user."""

    member_id: str
    principal: Principal
    host: str


_EVERYTHING: Final = "(?s).*"
"""The first pattern of each set. A name without any match means that the automaton of the set ran out of memory."""


def check_pattern(pattern: str) -> None:
    """
    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION, the pattern is not an expression of RE2, or it costs too much.
    """
    try:
        Expression(pattern)
    except ExpressionError as error:
        shown = pattern.encode(errors="backslashreplace").decode()
        if len(shown) > PATTERN_LENGTH_MAX:
            shown = f"{shown[:PATTERN_LENGTH_MAX]}..."
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}.",
        ) from None


def match_topics(patterns: Sequence[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """
    The names that each pattern matches. A pattern of an old log that is invalid here matches none. May run on any thread.

    All patterns are matched in one pass over a name: 100 patterns do not take 100 times as long as one.
    """
    compiled = {pattern: regexp for pattern in patterns if (regexp := _compiled(pattern)) is not None}
    matched: list[list[str]] = [[] for _ in compiled]
    finder = _finder(compiled)
    for name in names:
        encoded = name.encode()
        found = None if finder is None else finder.Match(encoded)
        if found:
            for index in found:
                if index:
                    matched[index - 1].append(name)
            continue
        for topics, regexp in zip(matched, compiled.values(), strict=True):
            if regexp.fullmatch(encoded):
                topics.append(name)
    return dict.fromkeys(patterns, NO_TOPICS) | dict(zip(compiled, map(frozenset, matched), strict=True))


def _finder(patterns: Iterable[str]) -> Any:
    """A set of patterns that finds the indexes of all that match a name, from 1 on; None if it needs too much memory."""
    import re2

    finder = re2.Set.FullMatchSet(options())
    for pattern in (_EVERYTHING, *patterns):
        finder.Add(pattern)
    try:
        finder.Compile()
    except re2.error:
        return None
    return finder


def _compiled(pattern: str) -> Any:
    import re2

    try:
        return re2.compile(pattern, options())
    except re2.error:
        return None


MIN_INTERVAL_MS: Final = 10_000
"""Between two resolutions of a group. A constant in Kafka, too."""


def update_patterns(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    old: ConsumerMember,
    updated: ConsumerMember,
    records: list[GroupRecord],
    context: RequestContext,
    now_ms: int,
) -> bool:
    """
    Note the pattern of a member, and resolve the group's patterns if that is due.

    Returns:
        Whether the group epoch has to rise: the member goes over to a pattern that is resolved, or gives its pattern up. For a
        new pattern it rises when the pattern is resolved.

    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION.
    """
    patterns: Mapping[str, int] = group.subscriptions.patterns
    old_pattern, new_pattern = old.topic_pattern, updated.topic_pattern
    if old_pattern == new_pattern:
        if patterns and patterns_are_due(registry, group, now_ms):
            _resolve(registry, group, patterns, updated.member_id, context, now_ms)
        return False
    is_new = bool(new_pattern) and new_pattern not in patterns
    if is_new:
        check_pattern(new_pattern)
        if len(patterns) >= PATTERNS_OF_GROUP_MAX:
            raise CoordinatorError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"The consumer group has {len(patterns)} regular expressions; it may have at most {PATTERNS_OF_GROUP_MAX}.",
            )
    if patterns.get(old_pattern) == 1:
        records.append(ConsumerGroupRegularExpressionTombstone(group.group_id, old_pattern))
    after = _after(patterns, old_pattern, new_pattern)
    if after and patterns_are_due(registry, group, now_ms, after, is_new=is_new):
        _resolve(registry, group, after, updated.member_id, context, now_ms)
    return not new_pattern or (not is_new and new_pattern in group.subscriptions.resolved)


def _after(patterns: Mapping[str, int], old_pattern: str, new_pattern: str) -> dict[str, int]:
    """The patterns when the member with `old_pattern` has `new_pattern`; "" is none."""
    after = Counter(patterns)
    after[old_pattern] -= 1
    after[new_pattern] += 1
    return {pattern: count for pattern, count in after.items() if pattern and count > 0}


def patterns_are_due(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    now_ms: int,
    patterns: Mapping[str, int] | None = None,
    *,
    is_new: bool = False,
) -> bool:
    """
    Whether to resolve patterns now: one is not resolved, topics were created since, or the refresh interval has passed.

    Args:
        patterns: the present ones by default.
        is_new: whether one of the patterns is new in the group.
    """
    if patterns is None:
        patterns = group.subscriptions.patterns
    resolved = group.subscriptions.resolved
    last = group.subscriptions.last_resolution
    if last is not None and now_ms <= last.timestamp_ms + MIN_INTERVAL_MS:
        return False
    if now_ms < group.resolve_after_ms or _executor(registry).is_scheduled(_key(group)):
        return False
    return (
        is_new
        or last is None
        or last.version < registry.topic_names.created_version
        or now_ms > last.timestamp_ms + registry.config.group_consumer_regex_refresh_interval_ms
        or any(pattern not in resolved for pattern in patterns)
    )


def drop_unused_patterns(group: ConsumerGroup, removed: Iterable[ConsumerMember], records: list[GroupRecord]) -> None:
    """Forget the patterns that only the removed members used."""
    used = Counter(member.topic_pattern for member in removed if member.topic_pattern)
    patterns = group.subscriptions.patterns
    records += [
        ConsumerGroupRegularExpressionTombstone(group.group_id, pattern)
        for pattern, count in used.items()
        if patterns.get(pattern) == count
    ]


def _resolve(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    patterns: Mapping[str, int],
    member_id: str,
    context: RequestContext,
    now_ms: int,
) -> None:
    """Match the patterns with all topics on another thread, which gets values that nothing changes."""
    version, names = registry.topic_names.of(registry.context.image)
    asker = Asker(member_id, context.principal, context.client_host.removeprefix("/"))
    _executor(registry).schedule(
        _key(group),
        partial(_match, tuple(patterns), names, version, now_ms),
        partial(_permit, registry, group.group_id, asker),
    )


def _match(patterns: tuple[str, ...], names: tuple[str, ...], version: int, now_ms: int) -> dict[str, ResolvedPattern]:
    return {
        pattern: ResolvedPattern(topics, version, now_ms) for pattern, topics in match_topics(patterns, names).items()
    }


def _permit(
    registry: ConsumerRegistry,
    group_id: str,
    asker: Asker,
    result: dict[str, ResolvedPattern] | None,
    error: Exception | None,
    now_ms: int,
) -> Result[GroupRecord, None]:
    """
    Leave out the topics that the member which has caused the resolution may not describe, and write the others.

    Raises:
        Exception: the resolution failed.
    """
    group = registry.find(group_id)
    if group is None:
        return Result()
    if error is not None:
        group.resolve_after_ms = now_ms + MIN_INTERVAL_MS
        raise error
    resolved = result or {}
    if registry.context.authorizer is None:
        return _store(registry, group, asker.member_id, resolved, now_ms)
    found = sorted(frozenset().union(*(topics.topics for topics in resolved.values())))
    return _permit_some(registry, group, asker, resolved, found, frozenset(), now_ms)


def _permit_some(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    asker: Asker,
    resolved: Mapping[str, ResolvedPattern],
    left: Sequence[str],
    permitted: frozenset[str],
    now_ms: int,
) -> Result[GroupRecord, None]:
    """Decide about some topics; an operation of its own decides about the next ones."""
    authorizer = registry.context.authorizer
    assert authorizer is not None, "without an authorizer nothing is left out"
    permitted |= {
        name
        for name in left[:DECISIONS_STEP]
        if authorizer.may(asker.principal, asker.host, Operation.DESCRIBE, ResourceType.TOPIC, name, logs_refusal=False)
    }
    if len(left) > DECISIONS_STEP:
        arguments = group.group_id, asker, resolved, left[DECISIONS_STEP:], permitted
        return Result(then=Step(_permit_more, *arguments))
    visible = {
        pattern: msgspec.structs.replace(topics, topics=topics.topics & permitted)
        for pattern, topics in resolved.items()
    }
    return _store(registry, group, asker.member_id, visible, now_ms)


def _permit_more(
    shard: HasContext,
    now_ms: int,
    group_id: str,
    asker: Asker,
    resolved: Mapping[str, ResolvedPattern],
    left: Sequence[str],
    permitted: frozenset[str],
) -> Result[GroupRecord, None]:
    registry = registry_of(shard)
    group = registry.find(group_id)
    if group is None:
        return Result()
    return _permit_some(registry, group, asker, resolved, left, permitted, now_ms)


def _store(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    member_id: str,
    result: Mapping[str, ResolvedPattern],
    now_ms: int,
) -> Result[GroupRecord, None]:
    """
    Write the topics of the patterns that are still in use. The next heartbeat of a member computes the target assignment.
    """
    used = group.subscriptions.patterns
    resolved = {pattern: topics for pattern, topics in result.items() if pattern in used}
    if not resolved:
        return Result()
    records: list[GroupRecord] = [
        ConsumerGroupRegularExpression(
            group.group_id,
            pattern,
            topics=tuple(sorted(topics.topics)),
            version=topics.version,
            timestamp_ms=topics.timestamp_ms,
        )
        for pattern, topics in resolved.items()
    ]
    events: list[GroupEvent] = []
    _raise_epoch(registry, group, resolved, member_id, now_ms, records, events)
    return Result(records, effects=events, otherwise=Step(_resolution_failed, group.group_id))


def _raise_epoch(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    resolved: Mapping[str, ResolvedPattern],
    member_id: str,
    now_ms: int,
    records: list[GroupRecord],
    events: list[GroupEvent],
) -> None:
    """
    Raise the epoch if patterns match other topics than until now, or if the topics changed since it was written.

    It also rises if a member changed to a pattern that matches none of its former topics. Kafka leaves the partitions of such
    topics in the member's target, where nobody reads them.
    """
    known = group.subscriptions.resolved
    is_changed = any(
        topics.topics != known.get(pattern, UNRESOLVED).topics for pattern, topics in resolved.items()
    ) or _has_foreign_target(registry, group, {name: resolved[name] for name in resolved if name not in known})
    view = SubscriptionView(group.subscriptions, (), resolved={**known, **resolved})
    metadata_hash = registry.metadata_hash(view.topics)
    if not is_changed and metadata_hash == group.metadata_hash.get():
        return
    epoch = group.epoch.get() + 1
    records.append(ConsumerGroupMetadata(group.group_id, epoch, metadata_hash))
    events.append(EpochRaised(group.group_id, epoch, member_id))
    group.refresh_at_ms = now_ms + REFRESH_INTERVAL_MS
    group.refresh_epoch = epoch


def _has_foreign_target(
    registry: ConsumerRegistry, group: ConsumerGroup, resolved: Mapping[str, ResolvedPattern]
) -> bool:
    """Whether a member with one of these patterns has a topic in its target that it is not subscribed to."""
    if not resolved:
        return False
    for member in group.members.values():
        pattern = resolved.get(member.topic_pattern)
        target = group.targets.get(member.member_id)
        if pattern is not None and target:
            topic_ids = registry.topic_ids(member.topic_names | pattern.topics)
            if any(topic_id not in topic_ids for topic_id in target):
                return True
    return False


def _executor(registry: ConsumerRegistry) -> Executor:
    executor = registry.context.executor
    assert executor is not None, "the runtime gives each shard an executor before the first record"
    return executor


def _key(group: ConsumerGroup) -> str:
    return f"patterns-{group.group_id}"


def _resolution_failed(shard: HasContext, now_ms: int, group_id: str, _error: Exception) -> Result[GroupRecord, None]:
    """The result could not be written: the next resolution waits."""
    group = registry_of(shard).find(group_id)
    if group is not None:
        group.resolve_after_ms = now_ms + MIN_INTERVAL_MS
    return Result()
