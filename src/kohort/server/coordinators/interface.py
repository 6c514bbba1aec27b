"""The interface between a node and the coordinators that it hosts; `kohort.server.coordinators.hosted` lists these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from kohort.broker.broker import Broker
from kohort.broker.ports import CallLater, Handler, MarkerWriter
from kohort.machine.ports import Verification
from kohort.model.image import ClusterImage, ImageDelta
from kohort.runtime.ports import Clock, PartitionLog
from kohort.runtime.processors import Processor
from kohort.server.coordinators.local_runner import Leads
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.scrape import Family


class CoordinatorEnvironment(msgspec.Struct, frozen=True):
    """The objects that a node provides to a hosted coordinator."""

    broker: Broker
    clock: Clock
    call_later: CallLater
    make_processor: Callable[[], Processor]
    """A new processor over the node's event loop; one for each runtime."""


class HostedCoordinator(Protocol):
    """
    One coordinator, as the node sees it. The loop of the node calls everything here on its thread.

    To add a coordinator: implement this protocol and add the class to `kohort.server.coordinators.hosted.COORDINATORS`.
    """

    @property
    def topic(self) -> str:
        """The internal topic that holds the coordinator's records; a shard runs on each of its partitions."""

    def handlers(self, leads: Leads | None = None) -> Mapping[ApiKey, Handler]:
        """
        Make the handlers of the coordinator's APIs, for one broker.

        Args:
            leads: whether the broker leads a partition of the topic. None for a broker that leads all.
        """

    @property
    def marker_writer(self) -> MarkerWriter | None:
        """See `kohort.broker.ports.CoordinatorDirectory.marker_writer`."""

    @property
    def verification(self) -> Verification | None:
        """See `kohort.broker.ports.CoordinatorDirectory.verification`."""

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> None:
        """Become the coordinator of a partition. A leader epoch that is not newer than the known one is ignored."""

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """
        Resign from a partition since `leader_epoch`; None if the partition does not exist any more.

        An epoch that is not newer than the known one is ignored.
        """

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Tell the active shards what changed in the cluster."""

    @property
    def loading(self) -> int:
        """How many partitions are being loaded."""

    def metrics(self) -> Iterable[Family | None]:
        """The metrics of the coordinator and of its runtime, as they are now, and None between steps of work."""

    def close(self) -> None:
        """Unload everything; waiting requests are answered NOT_COORDINATOR. Later requests are refused."""


CoordinatorFactory = Callable[[CoordinatorEnvironment], HostedCoordinator]
