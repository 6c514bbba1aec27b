"""
The catalog: topics, group configurations, producer ids and other settings of the cluster, durably.

The catalog is a state machine over a log of its own, `__kohort_catalog-0`, in the same store as the logs of the topics. A
record has the whole new state of one entry, so the log can be compacted:

| key               | value (JSON, `version` 0)                    | tombstone             |
|-------------------|----------------------------------------------|-----------------------|
| `topic:<id>`      | name, id, partition count, configuration,    | the topic was deleted |
|                   | replicas and leaders                         |                       |
| `group:<id>`      | group id, configuration                      | -                     |
| `producer-ids`    | the first producer id beyond all id blocks   | -                     |
| `setting:<kind>:` | kind, name and fields (`view.py`);           | the setting was       |
| `<name>`          | for example a client quota                   | deleted               |

Leader epochs rise with every start of the process, without a record for each partition: a setting counts the starts, and the
record of a topic has the number of the start to which its leader epochs refer.

There are two views. The newest view includes changes in progress and decides whether another change is possible. The durable
view is what all other code sees. A change moves to the durable view, and is answered, when the high watermark has passed its
records.

Source: Kafka's metadata log (KRaft) has this role there.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID, uuid4

import msgspec

from kohort.broker.catalog.view import (
    SETTING_PREFIX,
    CatalogChange,
    CatalogView,
    ConfiguredGroup,
    Setting,
    Topic,
    deleted_setting,
    is_too_large,
)
from kohort.broker.cluster import Cluster
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState
from kohort.model.errors import ConfigError, CorruptError, ErrorCode, StorageError
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta
from kohort.model.limits import CONFIGURED_GROUPS_MAX
from kohort.runtime.loading.checks import check_batches
from kohort.runtime.ports import Clock
from kohort.storage.log import Log, LogConfig, LogStore
from kohort.wire import batches

CATALOG = TopicPartition("__kohort_catalog", 0)
CATALOG_ID = UUID(int=0x6B6F686F72740000000000000001)
"""The topic id of the catalog. It is not a version 4 UUID, so no topic gets it."""
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})

CATALOG_CONFIG = LogConfig(cleanup_policy="compact", max_message_bytes=(1 << 31) - 1)
_VERSION = 0
_PRODUCER_IDS = b"producer-ids"
_STARTS = "starts"
_TOPIC = b"topic:"
_GROUP = b"group:"
_SETTING = SETTING_PREFIX.encode()
_READ_BYTES = 1 << 20
_PRODUCER_ID_MAX = (1 << 63) - 1

EPOCHS_PER_START = 2
"""By how much a start raises the leader epochs: the end of the process before it and the election at the start are one each."""

_log = logging.getLogger("kohort.broker")


NO_CHANGE = CatalogChange()

Done: TypeAlias = Callable[[ErrorCode], None]
Listener: TypeAlias = Callable[[ImageDelta], None]


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a record: it has one of the entries."""

    version: int
    topic: Topic | None = None
    group: ConfiguredGroup | None = None
    setting: Setting | None = None
    next_producer_id: int | None = None


class _Versioned(msgspec.Struct, frozen=True):
    version: int


T = TypeVar("T")


class _Pending(msgspec.Struct, frozen=True):
    end_offset: int
    change: CatalogChange
    done: Done


def _value(**entry: Any) -> bytes:
    return msgspec.json.encode(_Record(_VERSION, **entry))


def forward_batch(starts: int, next_producer_id: int, now_ms: int) -> bytes:
    """
    The batch of a catalog's log that an older content of the log is read with: leader epochs and producer ids that clients have
    seen do not come again.
    """
    setting = Setting(_STARTS, "", {"count": starts})
    records: list[tuple[bytes, bytes | None]] = [
        (setting.key, _value(setting=setting)),
        (_PRODUCER_IDS, _value(next_producer_id=next_producer_id)),
    ]
    return batches.encode_batch(records, now_ms, base_sequence=-1)


def topic_record(topic: Topic) -> tuple[bytes, bytes]:
    """Key and value of a topic's record."""
    return _TOPIC + topic.topic_id.hex.encode(), _value(topic=topic)


def entry_key(value: bytes) -> bytes:
    """
    The key that a record has by its value.

    Raises:
        ConfigError: the value is not one of this version's records.
    """
    record = _decode(value)
    if record.topic is not None:
        return _TOPIC + record.topic.topic_id.hex.encode()
    if record.group is not None:
        return _GROUP + record.group.group_id.encode()
    if record.setting is not None:
        return record.setting.key
    _entry(record.next_producer_id)
    return _PRODUCER_IDS


def new_topic_id() -> UUID:
    """A random id whose base64 text does not begin with a dash, which command lines parse as an option. Source: Kafka Uuid."""
    while True:
        topic_id = uuid4()
        if topic_id.int >> 122 != 0b111110:
            return topic_id


class Catalog:
    """
    The catalog as one node has it. Implements `kohort.model.image.ClusterImage` with the durable view.

    Args:
        store: has the log, which this node leads; None if several nodes share a store. Then the catalog is empty until it
            follows the log, and may be changed by the node that leads it.
        cluster: the brokers. Default: one without a rack.

    Attributes:
        is_new: whether the store had no catalog at the start.
        starts: how often the process was started on a store with a catalog.

    Raises:
        ConfigError: the catalog was written by a newer version.
        StorageError: the catalog's log cannot be read, or is damaged.
    """

    def __init__(self, store: LogStore | None, clock: Clock, cluster: Cluster | None = None) -> None:
        self._log: Log | None = None
        self._clock = clock
        self._durable = CatalogView()
        # Every request looks at topics, and to call a function of Python takes as long as some look-ups.
        self.topic: Final[Callable[[str], Topic | None]] = self._durable.by_name.get
        self.topic_by_id: Final[Callable[[UUID], Topic | None]] = self._durable.by_id.get
        self._newest = CatalogView()
        self._pending: deque[_Pending] = deque()
        self._listeners: list[Listener] = []
        self._settings_listeners: dict[str, list[Callable[[list[Setting]], None]]] = {}
        self._next_producer_id = 0
        self._cluster = Cluster(1, "") if cluster is None else cluster
        self.starts = 0
        self.is_new = False
        self._version = 0
        if store is not None:
            log = store.open(CATALOG, CATALOG_ID, CATALOG_CONFIG)
            self.is_new = log.end_offset == 0
            self._load(log)
            self._version = log.end_offset
            log.become_leader(max(log.leader_epoch, 0))
            self.lead(log)
            if not self.is_new:
                self._begin_start()

    def lead(self, log: Log) -> None:
        """Append changes to the log from now on. Everything that it has was loaded or followed."""
        assert self._version == log.end_offset, "the node has followed the log to its end"
        self._log = log
        log.add_listener(self._on_high_watermark)
        log.when_offline(self._on_offline)

    def follow(self, data: bytes, up_to: int) -> None:
        """
        Take batches that the node which leads the log has appended, and tell the listeners.

        Args:
            data: whole batches, the first of which has the record at `version`.
            up_to: the end offset of what is read.

        Raises:
            CorruptError: a batch is damaged.
            ConfigError: a newer version has written it.
        """
        for _ in check_batches(data, self._version, up_to):
            pass
        for position, header in batches.iter_batches(data):
            records = batches.read_records(memoryview(data)[position:], header=header)
            change = _joined([self._read(record.key or b"", record.value) for record in records])
            self._newest.apply(change)
            self._publish(change, header.next_offset)

    def _begin_start(self) -> None:
        """Raise the leader epochs of all partitions. A start before this record is durable has announced nothing that lasts."""
        self.starts = self._durable.settings(_STARTS).get("", {}).get("count", 0) + 1
        change = CatalogChange(settings=(Setting(_STARTS, "", {"count": self.starts}),))
        self.change(change, lambda _: None)

    def replace_loaded(self, change: CatalogChange) -> None:
        """Replace entries that were loaded, in memory only. No listener is told."""
        self._durable.apply(change)
        self._newest.apply(change)

    # -- the durable view --------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The end offset of the last durable change in the catalog's log."""
        return self._version

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the catalog's log; -1 if another node leads it."""
        return -1 if self._log is None else self._log.leader_epoch

    @property
    def is_led(self) -> bool:
        """Whether this node leads the log, and may change the catalog."""
        return self._log is not None

    @property
    def has_racks(self) -> bool:
        return any(broker.rack is not None for broker in self._cluster.brokers.values())

    def racks(self, topic_id: UUID, partition: int, /) -> Collection[str]:
        topic = self._durable.by_id.get(topic_id)
        brokers = self._cluster.brokers
        replicas = () if topic is None else self.state(topic, partition).replicas
        found = (brokers[replica].rack for replica in replicas if replica in brokers)
        return [rack for rack in found if rack is not None]

    def state(self, topic: Topic, index: int) -> PartitionState:
        """Replicas and leader of a partition, with the leader epoch of this start of the process."""
        epochs = EPOCHS_PER_START * (self.starts - topic.start)
        if not topic.partitions:
            only = (self._cluster.first,)
            if self._cluster.is_shared:
                return PartitionState(only, (), NO_LEADER, epochs)
            return PartitionState(only, only, only[0], epochs)
        state = topic.partitions[index]
        return msgspec.structs.replace(state, leader_epoch=state.leader_epoch + epochs) if epochs else state

    def states(self, topic: Topic) -> tuple[PartitionState, ...]:
        """The states of all partitions, with the leader epochs of this start of the process."""
        return tuple(self.state(topic, index) for index in range(topic.partition_count))

    def with_states(self, topic: Topic, states: Iterable[PartitionState]) -> Topic:
        """The topic with other replicas or leaders. Leader epochs are those of this start of the process."""
        partitions = tuple(states)
        return msgspec.structs.replace(topic, partition_count=len(partitions), start=self.starts, partitions=partitions)

    def topics(self) -> Iterable[Topic]:
        return self._durable.by_name.values()

    def configured_group(self, group_id: str) -> ConfiguredGroup:
        """The configuration of a group; an empty one if none was set."""
        return self._durable.groups.get(group_id) or ConfiguredGroup(group_id)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """A group's own configurations. Those of all groups without any are one object: every heartbeat asks."""
        group = self._durable.groups.get(group_id)
        return NO_CONFIGS if group is None else group.configs

    def configured_groups(self) -> Iterable[ConfiguredGroup]:
        return self._durable.groups.values()

    def settings(self, kind: str) -> Mapping[str, dict[str, Any]]:
        """The settings of a kind, by name."""
        return self._durable.settings(kind)

    def watch_settings(self, kind: str, listener: Callable[[list[Setting]], None]) -> None:
        """Call `listener(settings)` for every change of settings of a kind, as `watch` does."""
        self._settings_listeners.setdefault(kind, []).append(listener)

    def watch(self, listener: Listener) -> None:
        """Call `listener(delta)` for every change, when it has become durable and before it is answered."""
        self._listeners.append(listener)

    # -- the newest view, and changes --------------------------------------------------------------------------

    def newest(self, name: str) -> Topic | None:
        """The topic as it will be when all changes in progress are durable."""
        return self._newest.by_name.get(name)

    def newest_by_id(self, topic_id: UUID) -> Topic | None:
        return self._newest.by_id.get(topic_id)

    def newest_group(self, group_id: str) -> ConfiguredGroup:
        return self._newest.groups.get(group_id) or ConfiguredGroup(group_id)

    @property
    def has_room_for_groups(self) -> bool:
        """Whether one more group may have configurations."""
        return len(self._newest.groups) < CONFIGURED_GROUPS_MAX

    def newest_settings(self, kind: str) -> Mapping[str, dict[str, Any]]:
        return self._newest.settings(kind)

    def newest_names(self) -> Iterable[str]:
        return self._newest.by_name.keys()

    def change(self, change: CatalogChange, done: Done) -> None:
        """Write a change. `done(code)` is called once: when the change is durable, or at once if it cannot be written."""
        records: list[tuple[bytes, bytes | None]] = [
            (_TOPIC + topic.topic_id.hex.encode(), None) for topic in change.deleted
        ]
        records += [topic_record(topic) for topic in change.put]
        records += [(_GROUP + group.group_id.encode(), _value(group=group)) for group in change.groups]
        records += [
            (setting.key, None if setting.value is None else _value(setting=setting)) for setting in change.settings
        ]
        self._append(records, change, done)

    @property
    def next_producer_id(self) -> int:
        """The first producer id that is not reserved."""
        return self._next_producer_id

    def reserve_producer_ids(self, first: int, count: int, done: Callable[[ErrorCode, int], None]) -> None:
        """
        Reserve the producer ids from `first` on for ever. `done(code, first)` is called when the reservation is durable.

        The code is INVALID_UPDATE_VERSION if `first` is not `next_producer_id`: another caller has reserved it. It is
        UNKNOWN_SERVER_ERROR if the ids, which are 63-bit integers, are used up. Source: Kafka ProducerIdControlManager.
        """
        if first != self._next_producer_id:
            done(ErrorCode.INVALID_UPDATE_VERSION, first)
            return
        if first > _PRODUCER_ID_MAX - count:
            _log.critical("producer_ids.exhausted next=%d", first)
            done(ErrorCode.UNKNOWN_SERVER_ERROR, first)
            return
        self._next_producer_id = first + count
        self._append(
            [(_PRODUCER_IDS, _value(next_producer_id=first + count))], NO_CHANGE, lambda code: done(code, first)
        )

    def _append(self, records: Sequence[tuple[bytes, bytes | None]], change: CatalogChange, done: Done) -> None:
        if self._log is None:
            done(ErrorCode.NOT_CONTROLLER)
            return
        batch = batches.encode_batch(records, self._clock.now_ms(), base_sequence=-1)
        try:
            end_offset = self._log.append(batch, leader_epoch=self._log.leader_epoch)
        except StorageError as error:
            done(error.code)
            return
        self._newest.apply(change)
        self._pending.append(_Pending(end_offset, change, done))

    def _on_high_watermark(self, high_watermark: int) -> None:
        while self._pending and self._pending[0].end_offset <= high_watermark:
            pending = self._pending.popleft()
            self._publish(pending.change, pending.end_offset)
            pending.done(ErrorCode.NONE)

    def _publish(self, change: CatalogChange, end_offset: int) -> None:
        """Make a change durable, and tell the listeners."""
        delta = self._durable.delta(change)
        self._durable.apply(change)
        self._version = end_offset
        if not delta.is_empty:
            for listener in self._listeners:
                listener(delta)
        for kind in dict.fromkeys(setting.kind for setting in change.settings):
            changed = [setting for setting in change.settings if setting.kind == kind]
            for notify in self._settings_listeners.get(kind, ()):
                notify(changed)

    def _on_offline(self) -> None:
        """Fail the changes in progress. The next start may still find them in the log."""
        while self._pending:
            self._pending.popleft().done(ErrorCode.KAFKA_STORAGE_ERROR)

    def _load(self, log: Log) -> None:
        """
        Raises:
            CorruptError: a batch is damaged. Without one topic its partitions would be strays.
        """
        offset = log.log_start_offset
        while offset < log.end_offset:
            try:
                offset = self._load_batches(log.read(offset, bytes_max=_READ_BYTES), offset, log.end_offset)
            except CorruptError as error:
                where = log.location_of(offset)
                raise CorruptError(
                    f"the catalog of topics is damaged in {where} from offset {offset} on: {error}. Nothing was changed; "
                    f"`kohort log repair --dry-run DIR` shows the topics that can be kept"
                ) from error

    def _load_batches(self, data: bytes, offset: int, end_offset: int) -> int:
        """Check and replay whole batches, and return the offset behind them."""
        for _ in check_batches(data, offset, end_offset):
            pass
        for position, header in batches.iter_batches(data):
            for record in batches.read_records(memoryview(data)[position:], header=header):
                self.replace_loaded(self._read(record.key or b"", record.value))
            offset = header.next_offset
        return offset

    def _read(self, key: bytes, value: bytes | None) -> CatalogChange:
        """The change of a record that was read from the log. Producer ids count at once."""
        if key.startswith(_TOPIC) and value is None:
            topic = self._durable.by_id.get(UUID(hex=key.removeprefix(_TOPIC).decode()))
            return NO_CHANGE if topic is None else CatalogChange(deleted=(topic,))
        if key.startswith(_TOPIC):
            return CatalogChange(put=(_entry(_decode(value).topic),))
        if key.startswith((_GROUP, _SETTING)):
            return _read_value(key, value)
        if key == _PRODUCER_IDS:
            self._next_producer_id = _entry(_decode(value).next_producer_id)
            return NO_CHANGE
        raise _too_new(f"the key {key!r}")


def _read_value(key: bytes, value: bytes | None) -> CatalogChange:
    """The change of a group's configuration, or of a setting. One that cannot be read is set aside: nothing depends on it."""
    try:
        if key.startswith(_GROUP):
            return CatalogChange(groups=(_entry(_decode(value).group),))
        if value is None:
            return CatalogChange(settings=(deleted_setting(key),))
        if is_too_large(key, value):
            raise _UnreadableError(f"its {len(value)} bytes are too many; store it anew")
        return CatalogChange(settings=(_entry(_decode(value).setting),))
    except _UnreadableError as error:
        _log.error("catalog.set_aside key=%r error=%r", key.decode(errors="replace"), str(error))
        return NO_CHANGE


def _joined(changes: Sequence[CatalogChange]) -> CatalogChange:
    """The change of a batch: those of its records together."""
    return CatalogChange(
        tuple(each for change in changes for each in change.put),
        tuple(each for change in changes for each in change.deleted),
        tuple(each for change in changes for each in change.groups),
        tuple(each for change in changes for each in change.settings),
    )


class _UnreadableError(ConfigError):
    """A record of this version has another form."""


def _decode(value: bytes | None) -> _Record:
    try:
        record = msgspec.json.decode(value or b"null", type=_Record)
    except msgspec.MsgspecError as error:
        version = _VERSION
        with suppress(msgspec.MsgspecError):
            version = msgspec.json.decode(value or b"null", type=_Versioned).version
        if version != _VERSION:
            raise _too_new(f"record version {version}") from error
        raise _UnreadableError(f"The catalog has a record that this version cannot read: {error}") from error
    if record.version != _VERSION:
        raise _too_new(f"record version {record.version}")
    return record


def _entry(entry: T | None) -> T:
    """The entry that a record has to have by its key."""
    if entry is None:
        raise _UnreadableError("The catalog has a record that this version cannot read: its entry is missing")
    return entry


def _too_new(what: str) -> ConfigError:
    return ConfigError(f"The catalog was written by a newer version of Kohort: it has {what}. Start that version.")
