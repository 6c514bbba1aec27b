"""The entries of the catalog, a change of them, and one view: the newest state, or the state that is durable."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.broker.partitions.replicas import PartitionState
from kohort.model.image import ImageDelta
from kohort.model.limits import SCRAM_STORED_BYTES_MAX

SETTING_PREFIX = "setting:"
SCRAM: Final = "scram"
TOKENS: Final = "token"
_STORED_BYTES_MAX: Final = {SCRAM: SCRAM_STORED_BYTES_MAX}
"""By kind: the size of the value of a record. Other kinds have the limits of configurations."""


class Topic(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One topic.

    Attributes:
        configs: the topic's own configurations, as text in the form in which they were set.
        start: the start of the process to which the leader epochs refer.
        partitions: replicas and leader of each partition. Empty if the first broker has had the only replica of every partition
            since the topic was created.
    """

    name: str
    topic_id: UUID
    partition_count: int
    configs: dict[str, str] = {}
    start: int = 0
    partitions: tuple[PartitionState, ...] = ()


class ConfiguredGroup(msgspec.Struct, frozen=True):
    """
    The configuration of a group, which need not exist.

    Attributes:
        configs: the group's own configurations, as text in the form in which they were set; empty if all were deleted.
    """

    group_id: str
    configs: dict[str, str] = {}


class Setting(msgspec.Struct, frozen=True):
    """
    A small value by kind and name, such as a client quota, a SCRAM credential or the level of a feature. The module that owns a
    kind defines the names and the fields of its values, and bounds their number.

    Attributes:
        kind: of the setting, without a colon.
        name: unique within the kind.
        value: fields that JSON can express; None deletes the setting.
    """

    kind: str
    name: str
    value: dict[str, Any] | None

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return f"{SETTING_PREFIX}{self.kind}:{self.name}".encode()


def deleted_setting(key: bytes) -> Setting:
    """The deletion of a setting that a tombstone with this key says."""
    kind, _, name = key.decode().removeprefix(SETTING_PREFIX).partition(":")
    return Setting(kind, name, None)


def is_too_large(key: bytes, value: bytes) -> bool:
    """Whether a stored setting is larger than one that can be stored: an earlier version had no limit."""
    kind = key.decode(errors="replace").removeprefix(SETTING_PREFIX).partition(":")[0]
    return len(value) > _STORED_BYTES_MAX.get(kind, len(value))


class CatalogChange(msgspec.Struct, frozen=True):
    """A change to write: `put` topics are created, or replace the topic of the same id."""

    put: tuple[Topic, ...] = ()
    deleted: tuple[Topic, ...] = ()
    groups: tuple[ConfiguredGroup, ...] = ()
    settings: tuple[Setting, ...] = ()


class CatalogView:
    """Topics by name and by id, group configurations by group id, settings."""

    __slots__ = ("_settings", "by_id", "by_name", "groups")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.groups: dict[str, ConfiguredGroup] = {}
        self._settings: dict[str, dict[str, dict[str, Any]]] = {}

    def settings(self, kind: str) -> Mapping[str, dict[str, Any]]:
        """Values by name, in the order in which the names were first set."""
        return self._settings.get(kind, {})

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
            if group.configs:
                self.groups[group.group_id] = group
            else:
                self.groups.pop(group.group_id, None)
        for setting in change.settings:
            settings = self._settings.setdefault(setting.kind, {})
            if setting.value is None:
                settings.pop(setting.name, None)
            else:
                settings[setting.name] = setting.value
