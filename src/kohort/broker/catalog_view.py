"""One view of the catalog: its newest state, or the state that is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.catalog_settings import SettingsView
from kohort.model.image import ImageDelta
from kohort.model.limits import CONFIGURED_GROUPS_MAX

if TYPE_CHECKING:
    from uuid import UUID

    from kohort.broker.catalog import CatalogChange, ConfiguredGroup, Topic


class CatalogView:
    """Topics by name and by id, group configurations by group id, settings."""

    __slots__ = ("by_id", "by_name", "groups", "settings")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.groups: dict[str, ConfiguredGroup] = {}
        self.settings = SettingsView()

    def put(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic

    def remove(self, topic_id: UUID) -> None:
        topic = self.by_id.pop(topic_id, None)
        if topic is not None and self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]

    def delta(self, change: CatalogChange) -> ImageDelta:
        """The difference that a change makes to this view."""
        return ImageDelta(
            created=tuple(topic for topic in change.put if topic.topic_id not in self.by_id),
            changed=tuple(topic for topic in change.put if topic.topic_id in self.by_id),
            deleted=change.deleted,
            changed_group_configs=tuple(group.group_id for group in change.groups),
        )

    def apply(self, change: CatalogChange) -> None:
        for topic in change.deleted:
            self.remove(topic.topic_id)
        for topic in change.put:
            self.put(topic)
        for group in change.groups:
            self.groups[group.group_id] = group
            if len(self.groups) > CONFIGURED_GROUPS_MAX:
                self.groups = {name: each for name, each in self.groups.items() if each.configs}
        for setting in change.settings:
            self.settings.apply(setting)
