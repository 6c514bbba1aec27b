"""The coordinators of a node: leadership of their partitions, changes of the cluster, request handlers, markers, metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.broker import Broker
from kohort.broker.partitions.partitions import Partition
from kohort.broker.partitions.replicas import NO_LEADER
from kohort.broker.ports import Cancel, Handler, MarkerWriter
from kohort.machine.ports import Persister, Verification
from kohort.model.errors import NotLeaderError, NotYetError, StorageError
from kohort.model.image import ImageDelta
from kohort.runtime.ports import Defer
from kohort.runtime.processors import Processor
from kohort.server.coordinators.hosted_coordinator import CoordinatorEntry, HostedCoordinator
from kohort.storage.log import Log
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.runtime.runtime import Runtime
    from kohort.scrape import Family

_log = logging.getLogger("kohort.server")

RETRY_MS_MIN: Final = 500
RETRY_MS_MAX: Final = 60_000
"""The back-off of a partition whose log cannot be opened. Data partitions are tried again by each request."""
_DOUBLINGS_MAX: Final = 16


class Coordinators:
    """
    The coordinators of a node; also the `kohort.broker.ports.CoordinatorDirectory` of its broker.

    Args:
        defer: runs a function at the end of the present turn of the event loop.
    """

    def __init__(self, defer: Defer) -> None:
        self._defer = defer
        self._hosted: dict[str, HostedCoordinator] = {}
        self._led: dict[str, dict[int, tuple[int, int]]] = {}
        """By topic: leader and leader epoch of the loaded partitions."""
        self._watched: dict[tuple[str, int], Log] = {}
        """By topic and partition: the log whose failure unloads the partition."""
        self._retries: dict[tuple[str, int], Cancel] = {}
        """By topic and partition: cancels the next attempt to open a log."""
        self._is_closed = False

    def start(
        self, entries: Iterable[CoordinatorEntry], broker: Broker, make_processor: Callable[[], Processor]
    ) -> None:
        """
        Host the coordinators, each with a processor, and register their APIs with the broker. Each is made when it is needed.

        Raises:
            ConfigError: a configuration of one of them is invalid.
        """
        self._broker = broker
        for entry in entries:
            entry.check(broker.config)
            hosted = HostedCoordinator(entry, broker, make_processor())
            self._hosted[hosted.topic] = hosted
            self._led[hosted.topic] = {}
            for node_id, apis in self._broker.apis.items():
                leads = partial(self._leads, hosted.topic, node_id) if len(self._broker.apis) > 1 else None
                handlers = cache(partial(hosted.handlers, leads))
                for api_key in entry.apis:
                    apis.serve_later(api_key, partial(_handler, handlers, api_key))
        self._broker.catalog.watch(self._on_delta)

    def _leads(self, topic: str, node_id: int, partition: int) -> bool:
        led = self._led[topic].get(partition)
        return led is not None and led[0] == node_id

    # -- the broker's directory --------------------------------------------------------------------------------

    def is_hosted(self, topic: str) -> bool:
        return topic in self._hosted

    def marker_writer(self, topic: str) -> MarkerWriter | None:
        hosted = self._hosted.get(topic)
        return None if hosted is None else hosted.marker_writer

    @cached_property
    def verification(self) -> Verification | None:
        found = (hosted.verification for hosted in self._hosted.values() if hosted.entry.has_verification)
        return next(found, None)

    @property
    def persister(self) -> Persister | None:
        return next((hosted.persister for hosted in self._hosted.values() if hosted.entry.has_persister), None)

    # -- leadership --------------------------------------------------------------------------------------------

    def load(self) -> None:
        """
        Load every partition of every coordinator's topic. A loaded partition stays loaded, under its newest leader epoch.
        """
        for hosted in self._hosted.values():
            self._load(hosted)

    def _on_delta(self, delta: ImageDelta) -> None:
        if self._is_closed:
            # The end of the store commits the changes that have begun.
            return
        deleted = {topic.name for topic in delta.deleted}
        changed = {topic.name for topic in (*delta.created, *delta.changed)}
        for topic, hosted in self._hosted.items():
            if topic in deleted:
                self._stop_retries(topic)
                for partition in sorted(self._led[topic]):
                    self._unload(hosted, partition, "deleted")
            if topic in changed:
                self._load(hosted)
            if hosted.is_made:
                hosted.runtime.on_image(delta)

    def _load(self, hosted: HostedCoordinator) -> None:
        topic = self._broker.catalog.topic(hosted.topic)
        if topic is not None and self._broker.cluster.is_shared:
            hosted.runtime.partition_count = topic.partition_count
        for partition in range(0 if topic is None else topic.partition_count):
            if (hosted.topic, partition) not in self._retries:
                self._load_partition(hosted, partition)

    def _load_partition(self, hosted: HostedCoordinator, partition: int, attempt: int = 0, reason: str = "") -> None:
        """
        Load one partition. If its log cannot be opened, try again with a back-off; other partitions load meanwhile.

        Args:
            reason: of the last failure; it is logged again only if it changes.
        """
        try:
            found = self._broker.partitions.find(hosted.topic, partition)
        except NotLeaderError:
            # A node of another process leads it, or this one when it has claimed the log: it calls `load_one` then.
            self._unload(hosted, partition, "moved")
            topic = self._broker.catalog.topic(hosted.topic)
            if topic is not None and self._broker.cluster.is_here(self._broker.catalog.state(topic, partition).leader):
                hosted.runtime.expect(partition)
            else:
                hosted.runtime.unload(partition, None)
            return
        except StorageError as error:
            level = logging.WARNING if isinstance(error, NotYetError) else logging.ERROR
            level = logging.DEBUG if str(error) == reason else level
            fields = "coordinator.not_loaded partition=%s-%d attempt=%d error=%r"
            _log.log(level, fields, hosted.topic, partition, attempt, str(error))
            again = partial(self._retry, hosted, partition, attempt + 1, str(error))
            delay_ms = min(RETRY_MS_MIN << min(attempt, _DOUBLINGS_MAX), RETRY_MS_MAX)
            self._retries[hosted.topic, partition] = self._broker.call_later(delay_ms, again)
            return
        if found is not None:
            self._lead(hosted, partition, found)

    def runtime(self, topic: str) -> Runtime[Any] | None:
        """The shards of a coordinator's topic; None if no coordinator is hosted on it."""
        hosted = self._hosted.get(topic)
        return None if hosted is None else hosted.runtime

    def load_one(self, topic: str, partition: int) -> None:
        """Load a partition that was unloaded by `unload_one`, or whose log this node has now."""
        if not self._is_closed and (topic, partition) not in self._retries:
            self._load_partition(self._hosted[topic], partition)

    def unload_one(self, topic: str, partition: int) -> None:
        """Unload a partition until `load_one`; clients are answered NOT_COORDINATOR."""
        self._unload(self._hosted[topic], partition, "asked for")

    def _retry(self, hosted: HostedCoordinator, partition: int, attempt: int, reason: str) -> None:
        del self._retries[hosted.topic, partition]
        self._load_partition(hosted, partition, attempt, reason)

    def _lead(self, hosted: HostedCoordinator, partition: int, found: Partition) -> None:
        """Load a partition at its leader. A partition whose leader is another broker than before is unloaded first."""
        led, leader, log = self._led[hosted.topic], (found.leader_id, found.leader_epoch), found.log
        known = led.get(partition)
        if known == leader:
            return
        fields = f"partition={hosted.topic}-{partition} leader_epoch={found.leader_epoch}"
        if known is not None and known[0] != found.leader_id:
            self._unload(hosted, partition, "moved")
        if found.leader_id == NO_LEADER:
            return
        if known is None:
            _log.debug("coordinator.load %s", fields)
        elif found.leader_epoch > known[1]:
            _log.info("coordinator.new_epoch %s broker=%d", fields, found.leader_id)
        else:
            _log.warning("coordinator.stale_epoch_ignored %s known=%d", fields, known[1])
            return
        if self._watched.get((hosted.topic, partition)) is not log:
            self._watched[hosted.topic, partition] = log
            log.when_offline(partial(self._defer, partial(self._unload, hosted, partition, "offline")))
        led[partition] = leader
        hosted.runtime.load(partition, log, found.leader_epoch)

    def _unload(self, hosted: HostedCoordinator, partition: int, reason: str) -> None:
        led = self._led[hosted.topic].pop(partition, None)
        if led is not None:
            _log.info(
                "coordinator.unload partition=%s-%d leader_epoch=%d reason=%s",
                hosted.topic,
                partition,
                led[1],
                reason,
            )
            hosted.runtime.unload(partition, None)

    def _stop_retries(self, topic: str) -> None:
        for key in [key for key in self._retries if key[0] == topic]:
            self._retries.pop(key)()

    # -- the rest ----------------------------------------------------------------------------------------------

    @property
    def loading(self) -> int:
        """Partitions that are being loaded, and those whose log could not be opened and is tried again."""
        return len(self._retries) + sum(hosted.loading for hosted in self._hosted.values())

    def metrics(self) -> Iterator[Family | None]:
        for hosted in self._hosted.values():
            yield from hosted.metrics()

    def close(self) -> None:
        """Unload everything, and load nothing from now on."""
        self._is_closed = True
        for topic, hosted in self._hosted.items():
            self._stop_retries(topic)
            hosted.close()


def _handler(handlers: Callable[[], Mapping[ApiKey, Handler]], api_key: ApiKey) -> Handler:
    return handlers()[api_key]
