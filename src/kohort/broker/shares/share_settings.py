"""
The configurations of share groups that the leader of a partition uses, read at each use.

Source: Kafka ShareGroupConfigProvider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kohort.broker.configs.group_configs import GroupConfigs, duration_ms
from kohort.broker.shares.record_states import ShareSettings
from kohort.model.numbers import trim

DEAD_LETTER_LEVEL: Final = 2
"""The level of `share.version` from which on there are dead letters."""

_CACHED_MAX: Final = 1000


class LeaderSettings(NamedTuple):
    """
    The configuration of a share group.

    Attributes:
        reset: share.auto.offset.reset, `earliest`, `latest` or a duration in milliseconds.
        dead_letter_topic: errors.deadletterqueue.topic.name; empty without dead letters.
        copies_records: errors.deadletterqueue.copy.record.enable.
    """

    of_records: ShareSettings
    reset: str | int
    dead_letter_topic: str
    copies_records: bool


class LeaderSettingsOfGroups:
    """
    The settings by group.

    Args:
        level: the level of `share.version`.
    """

    def __init__(self, configs: GroupConfigs, level: Callable[[], int]) -> None:
        self._configs = configs
        self._level = level
        self._known: dict[str, tuple[Mapping[str, str], int, LeaderSettings]] = {}

    def of(self, group_id: str) -> LeaderSettings:
        in_force, level = self._configs.in_force(group_id), self._level()
        known = self._known.get(group_id)
        if known is not None and known[0] is in_force and known[1] == level:
            return known[2]
        if len(self._known) >= _CACHED_MAX:
            self._known.clear()
        settings = self._read(in_force, level)
        self._known[group_id] = in_force, level, settings
        return settings

    def _read(self, configs: Mapping[str, str], level: int) -> LeaderSettings:
        def text(name: str) -> str:
            return trim(self._configs.value(name, configs) or "")

        topic = text("errors.deadletterqueue.topic.name") if level >= DEAD_LETTER_LEVEL else ""
        of_records = ShareSettings(
            lock_ms=int(text("share.record.lock.duration.ms")),
            delivery_limit=int(text("share.delivery.count.limit")),
            locks_max=int(text("share.partition.max.record.locks")),
            can_renew=text("share.renew.acknowledge.enable").lower() == "true",
            has_dead_letters=bool(topic),
            is_committed=text("share.isolation.level").lower() == "read_committed",
        )
        reset = text("share.auto.offset.reset")
        duration = duration_ms(reset)
        copies_records = text("errors.deadletterqueue.copy.record.enable").lower() == "true"
        return LeaderSettings(of_records, reset if duration is None else duration, topic, copies_records)
